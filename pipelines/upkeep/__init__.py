"""Maintenance of a lake: compact, vacuum, verify, rebuild."""
