"""A log on S3, on obstore's store in memory: few listings, and nothing is read twice that has not changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from jbod_model.errors import UsageError
from pipelines.source.log_dir import LogDir
from pipelines.source.plan import Planner
from pipelines.source.positions import Position
from pipelines.storage import filesystem, objects
from tests.support.paths import metadata_dir

AT = "s3://bucket/log"
FOLDER = f"{AT}/__cluster_metadata-0"
HERE = metadata_dir("kafka-4.1.2")
SEGMENTS = sorted((HERE / "__cluster_metadata-0").glob("*.log"))
Requests = list[tuple[str, str]]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """A log in a store in memory, all but its last segment, and what is asked of the store."""
    memory = MemoryStore()
    seen: Requests = []
    monkeypatch.setattr(objects, "_store", lambda *_: memory)
    for name in ("get_range_tagged", "head", "children"):
        function = getattr(objects, name)

        def count(location: str, *rest: Any, _name: str = name, _function: Any = function) -> Any:
            seen.append((_name, location.rpartition("/")[2]))
            return _function(location, *rest)

        monkeypatch.setattr(objects, name, count)
    for path in HERE.rglob("*"):
        if path.is_file() and path != SEGMENTS[-1]:
            put(path)
    return seen


def put(path: Path, content: bytes | None = None) -> None:
    objects.put(f"{AT}/{path.relative_to(HERE)}", path.read_bytes() if content is None else content)


def listings(requests: Requests) -> int:
    return sum(kind == "children" for kind, _ in requests)


def reads(requests: Requests) -> list[str]:
    return [name for kind, name in requests if kind != "children"]


def test_first_planner_needs_no_listing_of_its_own(requests: Requests) -> None:
    planner = Planner(LogDir(AT))
    planner.freeze()
    end = planner.advance(Position(0))
    assert end.offset == int(SEGMENTS[-1].stem)
    assert listings(requests) == 2, "the folder, and the one that holds it"
    assert len(reads(requests)) == len(set(reads(requests)))


def test_log_folder_itself_is_listed_once(requests: Requests) -> None:
    planner = Planner(LogDir(FOLDER))
    planner.freeze()
    assert planner.advance(Position(0)).offset == int(SEGMENTS[-1].stem)
    assert listings(requests) == 1


def test_second_planner_reads_only_what_changed(requests: Requests) -> None:
    log = LogDir(AT)
    end = Planner(log).advance(Position(0))
    requests.clear()
    again = Planner(log)
    assert again.advance(Position(0)) == end
    assert requests == [("children", FOLDER.rpartition("/")[2])], "a listing, no segment"
    requests.clear()
    put(SEGMENTS[-1])
    assert again.advance(end).offset == 630
    assert listings(requests) == 1
    assert reads(requests) == [SEGMENTS[-1].name]


def test_segment_of_the_same_size_with_other_bytes_is_read_again(requests: Requests) -> None:
    put(SEGMENTS[-1])
    log = LogDir(AT)
    planner = Planner(log)
    planner.advance(Position(0))
    content = bytearray(SEGMENTS[-1].read_bytes())
    content[-1] ^= 0xFF
    put(SEGMENTS[-1], bytes(content))
    other = Planner(log)
    assert other.advance(Position(0)).offset < 630
    assert other.scan.damage is not None


def test_no_more_is_kept_than_the_limit(requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "KEPT_BYTES", 1000)
    log = LogDir(AT)
    end = Planner(log).advance(Position(0))
    requests.clear()
    assert Planner(log).advance(Position(0)) == end
    assert reads(requests), "what was not kept is read again"


def test_what_the_listings_do_not_name_is_not_asked_for(requests: Requests) -> None:
    objects.delete([f"{AT}/meta.properties", f"{FOLDER}/partition.metadata"])
    log = LogDir(AT)
    assert (log.cluster_id(), log.node_id()) == ("", -1)
    assert reads(requests) == []


def test_identity_is_that_of_the_log_on_a_disk(requests: Requests) -> None:
    for place in (AT, FOLDER):
        assert LogDir(place).cluster_id() == LogDir(str(HERE)).cluster_id() != ""


def test_folder_without_a_log_says_what_it_holds(requests: Requests) -> None:
    objects.put("s3://bucket/other/letter.txt", b"x")
    with pytest.raises(UsageError, match=r"holds no segment or snapshot .*: it holds letter.txt"):
        LogDir("s3://bucket/other")
    with pytest.raises(UsageError, match="no such directory"):
        LogDir("s3://bucket/nothing")
