"""The Parquet files that executors write."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from tests.support import local
from tests.support.paths import metadata_dir

# What Spark's vectorised reader has a decoder for; it refuses BYTE_STREAM_SPLIT.
READ_BY_SPARK = {"PLAIN", "RLE", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "BIT_PACKED", "DELTA_BINARY_PACKED"}


def test_files_of_a_replay_have_only_encodings_that_spark_reads(tmp_path: Path) -> None:
    local.replay(metadata_dir("kafka-4.1.2"), tmp_path / "lake")
    files = [file for file in tmp_path.rglob("*.parquet") if "_delta_log" not in file.parts]
    assert files
    for file in files:
        groups = pq.read_metadata(file)
        for group in range(groups.num_row_groups):
            row_group = groups.row_group(group)
            for column in range(row_group.num_columns):
                chunk = row_group.column(column)
                assert set(chunk.encodings) <= READ_BY_SPARK, (file.name, chunk.path_in_schema)
