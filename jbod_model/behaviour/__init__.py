"""Whether a metadata log is a behaviour of the specification, and by which actions (docs/spec/behaviour.md)."""

from jbod_model.behaviour.steps import Refusal, Step, Undecidable
from jbod_model.behaviour.verdict import Verdict, judge
from jbod_model.behaviour.walk import Behaviour
from jbod_model.behaviour.with_requests import with_requests

__all__ = ["Behaviour", "Refusal", "Step", "Undecidable", "Verdict", "judge", "with_requests"]
