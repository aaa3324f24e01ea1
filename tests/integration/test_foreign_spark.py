"""Spark and Delta Lake work on a lake's tables beside jbod: accepted or refused, and no answer is ever wrong."""

from __future__ import annotations

import random
from pathlib import Path
from shutil import copytree

import pytest
from deltalake import DeltaTable

from pipelines.lake.foreign import last_own, since
from pipelines.lake.tables import BY_NAME, CHANGES, LEDGER
from pipelines.lake.written_lake import LakeConflict
from pipelines.upkeep.rebuild import rebuild
from pipelines.upkeep.verify import verify
from tests.support.foreign import NAMES, answers, parts
from tests.support.spark_engine import SparkEngine

_OFFSETS = {"ledger": "end_offset", "records": "log_offset", "changes": "log_offset"}
KEEPING = {
    "OPTIMIZE": "OPTIMIZE {t}",
    "ZORDER": "OPTIMIZE {t} ZORDER BY ({offset})",
    "VACUUM": "VACUUM {t} RETAIN 0 HOURS",
    "PROPERTY": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 40 days', 'team' = 'x')",
}
CHANGING = {
    "UPDATE": "UPDATE {t} SET {offset} = {offset} - 1",
    "DELETE": "DELETE FROM {t}",
    "INSERT": "INSERT INTO {t} SELECT * FROM {t} LIMIT 1",
    "MERGE": "MERGE INTO {t} t USING (SELECT min({offset}) AS least FROM {t}) s ON t.{offset} = s.least "
    "WHEN MATCHED THEN UPDATE SET t.{offset} = t.{offset} - 1",
    "RESTORE": "RESTORE TABLE {t} TO VERSION AS OF {old}",
    "ADD COLUMN": "ALTER TABLE {t} ADD COLUMN (seen_by STRING)",
    "DELETION VECTORS": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
}

AGAINST_APPEND_ONLY = ("UPDATE", "DELETE", "MERGE")
"""Operations that Delta Lake itself refuses on `changes`."""


def statement(lake: Path, sql: str, name: str) -> str:
    offset = _OFFSETS.get(name, "from_offset")
    return sql.format(t=f"delta.`{lake / name}`", offset=offset, old=len(BY_NAME[name].checks) + 1)


def refused_tables(lake: Path) -> set[str]:
    """The tables that a run would refuse."""
    own = last_own(str(lake), DeltaTable(str(lake / LEDGER.name)))
    assert own is not None
    rows = DeltaTable(str(lake / LEDGER.name), version=own).to_pyarrow_table().sort_by("end_offset").to_pylist()
    versions = {**dict(rows[-1]["versions"]), LEDGER.name: own}
    return {n for n in NAMES if since(str(lake), BY_NAME[n], DeltaTable(str(lake / n)), versions[n]).refused}


def sequences() -> list[tuple[list[tuple[str, str]], list[tuple[str, str]]]]:
    """Operations that change no data, then such that do, each with its table: all pairs, in twenty sequences.

    Those that Delta Lake refuses are left out.
    """
    chance = random.Random(3)
    keeping, changing = ([(what, name) for what in ops for name in NAMES] for ops in (KEEPING, CHANGING))
    changing = [pair for pair in changing if pair[1] != CHANGES.name or pair[0] not in AGAINST_APPEND_ONLY]
    chance.shuffle(keeping)
    chance.shuffle(changing)
    return [(keeping[at::20], changing[at::20]) for at in range(20)]


@pytest.mark.exhaustive  # of delta-rs: test_foreign_engines.py
def test_operations_of_spark_at_every_table_are_accepted_or_refused(engine: SparkEngine, tmp_path: Path) -> None:
    """Replay, work that changes no data, replay, ask, work that changes data, replay, ask."""
    expected = []
    for number in range(3):
        parts().publish(tmp_path / "undisturbed", number)
        expected.append(answers(tmp_path / "undisturbed"))
    first = tmp_path / "first"
    parts().publish(first, 0)
    parts().publish(first, 1)
    for number, (kept, changed) in enumerate(sequences()):
        lake = copytree(first, tmp_path / f"lake-{number}")
        print("sequence", number, kept, changed, flush=True)
        engine.sql([statement(lake, KEEPING[what], name) for what, name in kept])
        parts().publish(lake, 2)
        assert answers(lake) == expected[2]
        for what, name in changed:
            engine.sql([statement(lake, CHANGING[what], name)])
        assert refused_tables(lake) == {name for _, name in changed}
        with pytest.raises(LakeConflict, match=r"version \d+ .* UTC by Apache-Spark.*jbod rebuild"):
            parts().publish(lake, 3)
        assert answers(lake) == expected[2]


def test_spark_refuses_to_change_rows_of_changes_and_the_lake_goes_on(engine: SparkEngine, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    parts().publish(lake, 0)
    for what in AGAINST_APPEND_ONLY:
        with pytest.raises(AssertionError, match="DELTA_CANNOT_MODIFY_APPEND_ONLY"):
            engine.sql([statement(lake, CHANGING[what], CHANGES.name)])
    assert refused_tables(lake) == set()
    parts().publish(lake, 1)


def test_lake_that_spark_changed_is_rebuilt(engine: SparkEngine, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for number in range(3):
        parts().publish(lake, number)
    before = answers(lake)
    what = {"partitions": "ADD COLUMN", "records": "INSERT", "assignments": "DELETION VECTORS"}
    engine.sql([statement(lake, CHANGING[operation], name) for name, operation in what.items()])
    assert {difference.table for difference in verify(str(lake)).differences} == {*what}
    rebuild(str(lake), say=lambda _: None)
    assert answers(lake) == before
    assert verify(str(lake)).differences == []
    parts().publish(lake, 3)


def test_change_data_feed_of_a_history_table_can_be_read(engine: SparkEngine, tmp_path: Path) -> None:
    """Delta wants the size and the partition of what is removed."""
    lake = tmp_path / "lake"
    parts().publish(lake, 0)
    feed = f"ALTER TABLE delta.`{lake / 'assignments'}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    engine.sql([feed])
    begin = DeltaTable(str(lake / "assignments")).version() + 1
    parts().publish(lake, 1)
    engine.sql([f"SELECT assert_true(count(*) > 0) FROM table_changes_by_path('{lake / 'assignments'}', {begin})"])
