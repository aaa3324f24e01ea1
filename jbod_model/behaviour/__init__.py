"""Whether a metadata log is a behaviour of the specification, and by which actions (docs/spec/behaviour.md)."""

from jbod_model.behaviour.steps import Refusal, Step, Undecidable
from jbod_model.behaviour.walk import Behaviour


__all__ = ["Behaviour", "Refusal", "Step", "Undecidable"]
