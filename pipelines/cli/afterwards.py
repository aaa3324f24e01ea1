"""Errors that a command raises after its answer."""

from __future__ import annotations

from jbod_model.errors import JbodError

refusals: list[JbodError] = []
"""The errors that ended the reading of a log. The command raises the first one after its answer."""
