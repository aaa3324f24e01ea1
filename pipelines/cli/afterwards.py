"""What a command still has to say once it has answered."""

from __future__ import annotations

from jbod_model.errors import JbodError

refusals: list[JbodError] = []
"""Why a log was not read to its end. The command ends with the first, after its answer."""
