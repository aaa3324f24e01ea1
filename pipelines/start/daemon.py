"""The parent of Spark's Python workers. It loads what they need before it forks, so that they start in milliseconds.

``spark.python.daemon.module`` names this module; ``_JBOD_PRELOAD`` names a module whose ``warm()`` loads the rest.
Spark starts one such parent for each kind of worker; only that of ``pyspark.worker``, which runs the stages, needs it.
"""

from __future__ import annotations

import sys

from pipelines.start.forks import hand_over, load_modules

if __name__ == "__main__" and not hand_over():
    if "pyspark.worker" in sys.argv:
        load_modules()
    from pyspark.daemon import manager

    manager()
