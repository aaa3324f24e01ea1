"""The Delta tables: schemas, publishing, the ledger."""

FORMAT_VERSION = 1
"""The version of the lake's format, kept in the ledger's description. It changes if an older jbod would misread it."""
