"""What a question to a log imports."""

from __future__ import annotations

import subprocess
import sys

from tests.support.paths import ROOT, metadata_dir

NOT_NEEDED = ("deltalake", "numba", "scipy", "pyspark", "pyarrow.parquet")
"""Each takes a tenth of a second or more to import."""


def test_question_to_a_small_log_imports_no_library_that_it_does_not_use() -> None:
    program = (
        "import sys\nfrom pipelines.cli.main import main\n"
        "try:\n    main(sys.argv[2:])\nexcept SystemExit:\n    pass\n"
        "print([name for name in sys.argv[1].split(',') if name in sys.modules], file=sys.stderr)"
    )
    question = ["offline", "--log", str(metadata_dir("kafka-4.1.2")), "--at-offset", "200", "--limit=3", "--format=csv"]
    words = [sys.executable, "-c", program, ",".join(NOT_NEEDED), *question]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=True, timeout=120)
    assert len(done.stdout.splitlines()) == 4
    assert done.stderr.splitlines()[-1] == "[]"
