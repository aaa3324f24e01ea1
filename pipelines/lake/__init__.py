"""The Delta tables: schemas, publishing, the ledger."""

FORMAT_VERSION = 2
"""Of a lake: stands in the description of its ledger, and changes when an older jbod would misread a newer lake."""
