"""Whether a metadata log is a behaviour of the specification, and by which actions (docs/spec/behaviour.md)."""

from lab.behaviour.steps import Refusal, Step, Undecidable
from lab.behaviour.verdict import Verdict, judge
from lab.behaviour.walk import Behaviour
from lab.behaviour.with_requests import with_requests

__all__ = ["Behaviour", "Refusal", "Step", "Undecidable", "Verdict", "judge", "with_requests"]
