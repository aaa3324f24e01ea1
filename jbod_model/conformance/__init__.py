"""Whether the controller answers as Kafka did: the replay of a recorded trace (docs/spec/controller.md)."""

from jbod_model.conformance.replay import conform
from jbod_model.conformance.report import Mismatch, Report, Thrown

__all__ = ["Mismatch", "Report", "Thrown", "conform"]
