"""Chooses the planner by the options. Keep the module light: Spark loads the readers in processes that plan nothing."""

from __future__ import annotations

from pipelines.source.log_dir import LogDir
from pipelines.source.log_options import Options
from pipelines.source.planning import Planning
from pipelines.source.tail import Settle


def planner_of(options: Options) -> Planning:
    """The planner that decides how far the log may be read."""
    from pipelines.source.log_dirs import LogDirs
    from pipelines.source.plan import Planner

    settle = Settle.parse(options.settle)
    planner: Planning
    if options.more_dirs:
        planner = LogDirs((options.path, *options.more_dirs), tail=options.tail, settle=settle)
    else:
        planner = Planner(LogDir(options.path), tail=options.tail, settle=settle)
    planner.limit = options.limit if options.limit >= 0 else None
    return planner
