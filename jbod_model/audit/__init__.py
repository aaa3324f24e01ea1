"""Audits a controller: compares what each logged request should have written with what the metadata log has."""

from jbod_model.audit.compare import Judged, OwnWork, Verdict
from jbod_model.audit.walk import Audit

__all__ = ["Audit", "Judged", "OwnWork", "Verdict"]
