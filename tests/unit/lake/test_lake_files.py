"""The Parquet files that executors write."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.lake import files
from pipelines.lake.tables import PARTITIONS
from tests.support import local
from tests.support.full_disk import files_of_at_most
from tests.support.paths import metadata_dir

# What Spark's vectorised reader has a decoder for; it refuses BYTE_STREAM_SPLIT.
READ_BY_SPARK = {"PLAIN", "RLE", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "BIT_PACKED", "DELTA_BINARY_PACKED"}


def test_files_of_a_replay_have_only_encodings_that_spark_reads(tmp_path: Path) -> None:
    local.replay(metadata_dir("kafka-4.1.2"), tmp_path / "lake")
    written = [file for file in tmp_path.rglob("*.parquet") if "_delta_log" not in file.parts]
    assert written
    for file in written:
        groups = pq.read_metadata(file)
        for group in range(groups.num_row_groups):
            row_group = groups.row_group(group)
            for column in range(row_group.num_columns):
                chunk = row_group.column(column)
                assert set(chunk.encodings) <= READ_BY_SPARK, (file.name, chunk.path_in_schema)


def lists_of(topics: list[str], element: str = "element") -> pa.Table:
    """Two columns of ``partitions``: of text, and of lists of text with this name of their elements."""
    ids = pa.list_(pa.field(element, pa.string(), nullable=False))
    return pa.table({"topic_id": topics, "directories": pa.array([[topic, "d"] for topic in topics], type=ids)})


@pytest.mark.parametrize("element", ["element", "item"])
def test_text_that_is_read_as_dictionaries_is_the_same_text(tmp_path: Path, element: str) -> None:
    """Polars calls the elements of a list by another name: then they are encoded after reading."""
    (tmp_path / "partitions").mkdir()
    pq.write_table(lists_of(["a", "b", "a"], element), tmp_path / "partitions" / "x.parquet")
    columns = ["topic_id", "directories"]
    plain = files.read(str(tmp_path), PARTITIONS, ["x.parquet"], columns)
    encoded = files.read(str(tmp_path), PARTITIONS, ["x.parquet"], columns, encoded=True)
    assert pa.types.is_dictionary(encoded.schema.field("topic_id").type)
    assert pa.types.is_dictionary(encoded.schema.field("directories").type.value_type)
    assert encoded.cast(plain.schema) == plain
    assert plain["directories"].to_pylist() == [["a", "d"], ["b", "d"], ["a", "d"]]


@pytest.fixture
def many_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    """2,000 rows of as many topics in two files of ``partitions``, with 20 row groups of a file that holds them all."""
    monkeypatch.setattr(files, "ROW_GROUP", 100)
    (tmp_path / "partitions").mkdir()
    topics = [sha256(str(number).encode()).hexdigest() for number in range(2_000)]
    pq.write_table(lists_of(topics[:950]), tmp_path / "partitions" / "x.parquet")
    pq.write_table(lists_of(topics[950:]), tmp_path / "partitions" / "y.parquet")
    rows = files.read(str(tmp_path), PARTITIONS, ["x.parquet", "y.parquet"], encoded=True)
    return rows.select(["topic_id", "directories"]).unify_dictionaries()


def test_row_group_of_a_merged_file_has_only_its_own_values(tmp_path: Path, many_topics: pa.Table) -> None:
    """Regression: optimize made ``changes`` a third larger, because each row group had all topics of the file."""
    merged = files.merge(str(tmp_path), PARTITIONS, ["x.parquet", "y.parquet"])
    whole = files.write(str(tmp_path), "partitions", many_topics)
    assert merged.size < whole.size / 3
    assert pq.read_metadata(tmp_path / "partitions" / merged.path).num_row_groups == 20
    table = files.read(str(tmp_path), PARTITIONS, [merged.path])
    assert table["topic_id"] == many_topics["topic_id"].cast(pa.string())
    assert table["topic"].null_count == 2_000, "the files have no such column"
    assert (merged.rows, merged.stats) == (2_000, files.write(str(tmp_path), "partitions", table).stats)


def test_row_group_of_sorted_rows_has_no_large_dictionary(
    tmp_path: Path, many_topics: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = pa.array(range(1_999, -1, -1))
    small = files.write(str(tmp_path), "partitions", many_topics, order=order)
    monkeypatch.setattr(files, "_DICTIONARY", 1_000)
    large = files.write(str(tmp_path), "partitions", many_topics, order=order)
    assert large.size < small.size / 3
    assert large.stats == small.stats
    for written in (small, large):
        assert pq.read_metadata(tmp_path / "partitions" / written.path).num_row_groups == 20
        table = files.read(str(tmp_path), PARTITIONS, [written.path])
        assert table["topic_id"].to_pylist() == many_topics["topic_id"].to_pylist()[::-1]


def test_file_that_finds_no_room_raises_the_error_of_the_write(tmp_path: Path, many_topics: pa.Table) -> None:
    """Cause: the writer's metadata was asked for after it, and jbod optimize and rebuild ended with the traceback of
    "file metadata is only available after writer close" and exit code 3."""
    with files_of_at_most(1000), pytest.raises(OSError, match="File too large"):
        files.write(str(tmp_path), "partitions", many_topics)
