"""Whether the controller answers as Kafka did: the replay of a recorded trace (docs/spec/controller.md)."""

from lab.conformance.replay import conform
from lab.conformance.report import Mismatch, Report, Thrown

__all__ = ["Mismatch", "Report", "Thrown", "conform"]
