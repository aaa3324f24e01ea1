"""Checks the invariants in every behaviour of a small cluster, within bounds (docs/spec/simulation.md)."""
