"""Options that several commands of the laboratory have."""

from __future__ import annotations

from typing import Annotated

import typer

from jbod_model.ids import ID_TABLES
from jbod_model.profiles import PROFILES

ProfileName = Annotated[str, typer.Option("--profile", help=f"The rules of the cluster: {', '.join(PROFILES)}.")]
IdsName = Annotated[str, typer.Option("--ids", help=f"Whose reserved directory ids: {', '.join(ID_TABLES)}.")]
