"""The fold kernel against Kafka's own images of real clusters, for any split into micro-batches."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from jbod_model.errors import UsageError
from pipelines.fold.rules import PROFILES, rules
from pipelines.fold.tables import DIR_MIGRATING, DIR_UNASSIGNED
from tests.support import engine
from tests.support.kafka_images import kafka_images
from tests.support.paths import CLUSTERS
from tests.support.volume import amount, rare, sampled

COPIES = sorted(path for path in CLUSTERS.glob("*/metadata/*") if path.is_dir())
CONTROLLERS = [path for path in COPIES if path.name == "controller-100"]


def _name(path: Path) -> str:
    return f"{path.parts[-3]}/{path.name}"


def _images(copy: Path) -> tuple[dict[str, Any], ...]:
    return kafka_images(copy.parts[-3])


def _comparable(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)


@cache
def _whole(copy: Path) -> dict[str, list[dict[str, Any]]]:
    """The tables of a log, which tests only read."""
    return engine.replay(copy)


LONGEST = max(CONTROLLERS, key=lambda copy: sum(file.stat().st_size for file in copy.rglob("*.log")))


@pytest.mark.parametrize(
    ("copy", "most"),
    [
        *sampled([(copy, 7 if copy == LONGEST else 1) for copy in CONTROLLERS], 2),
        rare(LONGEST, 1),
        *(rare(copy, most) for copy in CONTROLLERS for most in (7, 1000, None) if (copy, most) != (LONGEST, 7)),
    ],
    ids=lambda value: _name(value) if isinstance(value, Path) else str(value),
)
def test_image_from_log_at_every_known_offset_equals_kafkas(copy: Path, most: int | None) -> None:
    tables = engine.replay(copy, most=most)
    for expected in _images(copy)[:: -amount(6, 1)]:
        assert engine.image(tables, expected["offset"]) == expected


@pytest.mark.parametrize("copy", sampled([path for path in COPIES if list(path.glob("*/*.checkpoint"))], 2), ids=_name)
@pytest.mark.parametrize("most", [1, rare(50), rare(None)])
def test_image_from_snapshot_and_tail_equals_kafkas(copy: Path, most: int | None) -> None:
    tables = engine.replay(copy, start="snapshot", most=most)
    first = min(row["from_offset"] for row in tables["brokers"])
    last = max(row["from_offset"] for table in tables.values() for row in table if "from_offset" in row)
    images = [expected for expected in _images(copy) if first <= expected["offset"] <= last]
    assert images
    for expected in images[:: -amount(4, 1)]:
        assert engine.image(tables, expected["offset"]) == expected


@pytest.mark.parametrize(("most", "shards"), [rare(1, 1), (7, 2), rare(50, 5)])
@pytest.mark.parametrize("copy", sampled(CONTROLLERS, 2), ids=_name)
def test_tables_for_any_micro_batch_and_number_of_shards_are_the_same(copy: Path, most: int, shards: int) -> None:
    split = engine.replay(copy, most=most, shards=shards)
    for name, rows in _whole(copy).items():
        assert _comparable(split[name]) == _comparable(rows), name


@pytest.mark.parametrize("copy", sampled([path for path in COPIES if path not in CONTROLLERS], 3), ids=_name)
def test_tables_from_a_brokers_copy_equal_the_controllers(copy: Path) -> None:
    controller = _whole(copy.parent / "controller-100")
    mine = engine.replay(copy)
    for name, rows in controller.items():
        end = max(row["from_offset"] for row in mine["partitions"])
        since = "log_offset" if name == "changes" else "from_offset"
        cut = [row for row in rows if row[since] <= end]
        kept = [row for row in mine[name] if row[since] <= end]
        keys = [{k: v for k, v in row.items() if not k.startswith(("to_", "ended"))} for row in cut]
        assert _comparable([{k: v for k, v in r.items() if not k.startswith(("to_", "ended"))} for r in kept]) == (
            _comparable(keys)
        )


@pytest.mark.parametrize("profile", PROFILES)
def test_rules_of_the_engine_follow_from_the_profile(profile: str) -> None:
    """R-PART-3, R-OFF-7, R-OFF-8."""
    numbers = {"migrating": DIR_MIGRATING, "unassigned": DIR_UNASSIGNED}
    engine_rules = rules(profile)
    assert engine_rules.absent_directory == numbers[PROFILES[profile].absent_directories]
    assert engine_rules.literal_offline == (PROFILES[profile].offline_rule == "kip858")


@pytest.mark.parametrize(
    ("names", "problem"),
    [(("zookeeper", "kafka"), "--profile zookeeper: no such"), (("kafka", "none"), "--ids none: no such table of ids")],
)
def test_rules_that_do_not_exist_are_refused(names: tuple[str, str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        rules(*names)
