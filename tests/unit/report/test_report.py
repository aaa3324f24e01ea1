"""The numbers of the report's page, and that it is safe whatever names a log holds."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import pytest

from jbod_model.errors import UsageError
from pipelines.ask.assignment_requests import queue, requests_until
from pipelines.ask.moves import moves, step_for
from pipelines.ask.offline_replicas import offline
from pipelines.cli import main
from pipelines.lake.reader import Lake
from pipelines.report.content import MOST_ROWS, REASONS, Content, gather, judge, over_time
from pipelines.report.page import page, pictures, write_page
from pipelines.report.tables import tables
from pipelines.settings import Settings
from pipelines.show.incidents import moves_in_words, outcome, queue_in_words
from pipelines.show.text import harmless, when
from tests.support import truth
from tests.support.full_disk import files_of_at_most
from tests.support.hostile import NAMES, with_hostile_names
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import KAFKAS, ROOT, metadata_dir
from tests.support.request_lakes import JoinedLake, request_lines
from tests.support.volume import amount, sampled
from tests.unit.check.story import Story, disk


@pytest.fixture(scope="module")
def lake(cluster_lakes: Mapping[str, Path]) -> Path:
    return cluster_lakes["kafka-4.1.2"]


@pytest.fixture(scope="module")
def at_200(lake: Path) -> Content:
    return gather(Lake.open(lake, 200), Settings())


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile")
    write_lake(path, with_hostile_names(read_log(metadata_dir("kafka-4.1.2"))), cluster_id=NAMES["orders"])
    return path


@pytest.mark.parametrize(("kafka", "part"), sampled(product(KAFKAS, [0.3, 0.6, 1.0]), 1))
def test_content_of_any_offset_agrees_with_itself(cluster_lakes: Mapping[str, Path], kafka: str, part: float) -> None:
    newest = Lake.open(cluster_lakes[kafka])
    content = gather(Lake.open(cluster_lakes[kafka], int(newest.offset * part)), Settings())
    status, series = content.status, content.over_time
    assert sum(cell.offline for cell in content.cells) == status.offline_replicas
    assert sum(cell.directory.replicas for cell in content.cells) == sum(status.replicas.values())
    assert sum(series.offline[reason][-1] for reason in REASONS) == status.offline_replicas
    assert series.leaderless[-1] == status.partitions_without_leader
    assert sum(cause.replicas for cause in content.causes) == status.offline_replicas


@pytest.mark.parametrize("kafka", sampled(KAFKAS, 1))
def test_over_time_at_every_step_is_what_was_offline_then(cluster_lakes: Mapping[str, Path], kafka: str) -> None:
    series = over_time(Lake.open(cluster_lakes[kafka]))
    assert series.offsets[0] == 0
    assert series.steps + 2 >= len(series.offsets) >= series.steps
    for at in range(0, len(series.offsets), amount(27, 9)):
        answer = offline(Lake.open(cluster_lakes[kafka], series.offsets[at]))
        counts = Counter(replica.reason for replica in answer.replicas)
        assert {reason: series.offline[reason][at] for reason in REASONS} == {r: counts[r] for r in REASONS}
        assert series.times[at] == answer.time


def test_over_time_of_too_many_steps_keeps_peaks_and_the_end(lake: Path) -> None:
    whole, few = over_time(Lake.open(lake)), over_time(Lake.open(lake), stretches=5)
    assert len(few.offsets) <= 3 * 5 + 2 < len(whole.offsets)
    assert few.steps == whole.steps

    def totals(series: object) -> list[int]:
        return [sum(counts) for counts in zip(*series.offline.values(), strict=True)]  # type: ignore[attr-defined]

    assert max(totals(few)) == max(totals(whole))
    assert max(few.leaderless) == max(whole.leaderless)
    assert totals(few)[-1] == totals(whole)[-1]
    assert set(zip(few.offsets, totals(few), strict=True)) <= set(zip(whole.offsets, totals(whole), strict=True))


def test_verdict_says_the_worst_first(at_200: Content) -> None:
    status = at_200.status
    well = replace(
        status,
        offline_replicas=0,
        partitions_without_leader=0,
        partitions_under_min_isr=0,
        partitions_under_replicated=0,
    )
    assert judge(status)[0] == "critical"
    assert judge(status)[1].startswith("2 of 39 partitions have no leader")
    assert judge(replace(well, offline_replicas=1))[1].startswith("1 of 89 replicas is offline. Every partition still")
    assert judge(replace(well, partitions_under_replicated=3))[0] == "degraded"
    assert judge(replace(well, brokers_fenced=1)) == (
        "degraded",
        "Every replica is online, but 1 of 4 brokers is fenced.",
    )
    assert judge(well)[0] == "well"
    assert judge(well, 2) == ("degraded", "Every replica is online, but the checks found 2 critical things.")
    assert judge(replace(well, replicas={}))[1] == "Nothing is wrong: there is no topic yet."


def test_tables_that_are_cut_say_so(at_200: Content) -> None:
    whole = tables(at_200)
    assert {table.rest for table in whole.values()} == {""}
    many = replace(at_200, cells=[*at_200.cells] * 60)
    directories = tables(many)["directories"]
    assert len(directories.rows) == MOST_ROWS
    assert directories.in_all == 600
    assert "jbod directories lists all" in directories.rest
    assert "online" not in directories.kinds[: 3 * 60]


@pytest.fixture(scope="module")
def lake_with_requests(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake that has read a request log, too."""
    path = tmp_path_factory.mktemp("asked") / "lake"
    joined = JoinedLake(path, "kafka-3.7.2")
    joined.replay()
    joined.add(request_lines("kafka-3.7.2"))
    return Lake.open(path)


@pytest.fixture(scope="module")
def with_requests(lake_with_requests: Lake) -> Content:
    return gather(lake_with_requests, Settings())


def test_moves_and_queue_of_the_page_are_those_of_the_answers(lake_with_requests: Lake, with_requests: Content) -> None:
    content = with_requests
    all_moves, steps = moves(lake_with_requests), queue(lake_with_requests, content.queue_step)
    assert content.queue_step == timedelta(seconds=1)
    shown = tables(content)
    assert [(row[0], row[5], row[7]) for row in shown["moves"].rows] == [
        (f"{move.topic}-{move.partition}", when(move.accepted_time), outcome(move)) for move in reversed(all_moves)
    ]
    assert all(row[4] and row[8] for row in shown["moves"].rows)
    assert [(row[0], row[1], row[3], row[7]) for row in reversed(shown["queue"].rows)] == [
        (when(step.start), str(step.broker_id), str(step.entries), str(step.waiting)) for step in steps
    ]
    drawn = pictures(content)["queue"]
    assert content.asking is not None
    assert (
        sum(drawn["entries"])
        == content.asking.entries
        == len(lake_with_requests.query("FROM " + str(requests_until(lake_with_requests))))
    )
    assert sum(drawn["refused"]) == content.asking.refused
    assert max(drawn["at"]) < drawn["steps"]
    text = page(content)
    assert queue_in_words(content.asking) in text
    assert "not in the log: jbod replay" not in text


def test_names_of_the_data_of_the_script_are_those_of_answers(with_requests: Content) -> None:
    """They were in camelCase."""

    def names(data: object) -> set[str]:
        if isinstance(data, dict):
            return {*data}.union(*map(names, data.values()))
        return set[str]().union(*map(names, data)) if isinstance(data, list) else set()

    keys = names(pictures(with_requests))
    assert {name for name in keys if re.search(r"[A-Z]", name)} == set()


def test_page_of_a_lake_without_requests_shows_the_moves_and_says_what_is_not_known(at_200: Content) -> None:
    text = page(at_200)
    assert moves_in_words(at_200.moved) in text
    assert (len(at_200.moves), at_200.asking, list(at_200.queue)) == (1, None, [])
    assert "not in the log: jbod replay LOG_DIR --requests FILE adds them" in text
    assert 'id="picture-queue"' not in text


def test_queue_of_any_range_is_in_few_steps() -> None:
    for days in (0, 0.001, 0.3, 1, 40, 4_000):
        span = timedelta(days=days)
        assert span / 200 <= step_for(span) <= max(span / 50, timedelta(seconds=1))


class Elements(HTMLParser):
    """Tags with their attributes, and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data
        else:
            self.text += data


def test_page_holds_hostile_names_as_text_only(hostile: Path, lake: Path) -> None:
    elements = Elements(page(gather(Lake.open(hostile), Settings())))
    fair = Elements(page(gather(Lake.open(lake), Settings())))
    assert Counter(tag for tag, _ in elements.tags) == Counter(tag for tag, _ in fair.tags)
    assert not [name for _, attributes in elements.tags for name in attributes if name.startswith("on")]
    assert [name for name in NAMES.values() if harmless(name) not in elements.text] == []
    assert "\u202e" not in elements.text
    assert json.loads(elements.scripts[0])["map"] == json.loads(fair.scripts[0])["map"]


def test_page_runs_only_its_own_scripts_and_names_no_other_place(at_200: Content) -> None:
    elements = Elements(page(at_200))
    policy = next(
        str(attributes["content"])
        for _, attributes in elements.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; ")
    _, packed, script = elements.scripts
    plotly = gzip.decompress(base64.b64decode(packed))
    digests = [base64.b64encode(hashlib.sha256(text).digest()).decode() for text in (plotly, script.encode())]
    assert re.findall(r"'sha256-([^']+)'", policy) == digests
    assert not [attributes for _, attributes in elements.tags if "src" in attributes]
    links = [str(attributes["href"]) for _, attributes in elements.tags if "href" in attributes]
    assert [link for link in links if not link.startswith(("#", "data:,"))] == []


def test_findings_of_a_check_have_the_advice_for_each_directory(at_200: Content) -> None:
    """Cause: the advice about the first directory stood under all: for the other disk nobody said not to replace it."""
    listed = Elements(page(at_200)).text.rpartition("Findings: ")[0].rpartition("Findings")[2]
    advices = {finding.advice for finding in at_200.findings}
    assert len([advice for advice in advices if "until then do not replace or format it" in advice]) == 2
    assert [advice for advice in advices if advice[1:] not in listed] == []


def test_page_of_the_same_lake_is_the_same_and_small(lake: Path, at_200: Content) -> None:
    text = page(at_200)
    assert text == page(gather(Lake.open(lake, 200), Settings()))
    assert len(text.encode()) < 1_500_000


def test_plotting_library_comes_with_its_licences() -> None:
    folder = ROOT / "pipelines" / "report" / "plotly"
    code = gzip.decompress((folder / "plotly.min.js.gz").read_bytes()).decode()
    version = re.match(r"/\*! plotly.js v(\S+) .*MIT license", code)
    assert version
    licences = (folder / "LICENSES.txt").read_text(encoding="utf-8")
    assert f"== plotly.js {version[1]}\n\nMIT License" in licences
    assert "== @plotly/d3 " in licences


def test_page_of_a_cluster_without_brokers_says_that_there_is_nothing(tmp_path: Path) -> None:
    write_lake(tmp_path, read_log(metadata_dir("kafka-4.1.2"))[:8])
    content = gather(Lake.open(tmp_path), Settings())
    assert content.verdict == "well"
    assert "there is no topic yet" in page(content)


def left(*words: object) -> int:
    with pytest.raises(SystemExit) as leaving:
        main.main([str(word) for word in words])
    assert isinstance(leaving.value.code, int)
    return leaving.value.code


@pytest.mark.exhaustive
def test_page_says_that_one_of_two_directories_has_the_copies_that_a_starting_broker_reported(tmp_path: Path) -> None:
    """kafka-4.0.1, offset 530."""
    entries = [entry for entry in read_log(truth.metadata_dir("kafka-4.0.1")) if entry.offset <= 530]
    write_lake(tmp_path, entries)
    shown = page(gather(Lake.open(tmp_path), Settings()))
    new, old = "xnWvO701RhWOVniwivJerQ of broker 4", "vrdTs6cClfegDF5jaNp1PA of broker 4"
    assert f"Directory {new} or directory {old}: no other copy is complete" in shown


def test_report_command_writes_the_page_and_prints_its_numbers(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    assert left("report", "--lake", lake, "--at-offset", 200, "--out", out, "--json") == 0
    numbers = json.loads(capsys.readouterr().out)
    assert numbers["status"]["offline_replicas"] == 13
    assert {finding["check_id"] for finding in numbers["findings"]} >= {"B-03", "B-17"}
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_report_command_refuses_what_it_cannot_do(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases: list[tuple[list[object], str]] = [
        (["--lake", lake], "give --out FILE.html for the page, or --json"),
        (["--lake", lake, "--out", tmp_path], "that is a directory"),
        (["--lake", lake, "--out", tmp_path / "pipe"], "that is no file"),
        (["--lake", lake, "--out", tmp_path / "file" / "r.html"], "cannot be written: File exists"),
        (["--lake", tmp_path, "--out", tmp_path / "r.html"], "no lake there"),
        (["--lake", lake, "--at-offset", 100_000, "--out", tmp_path / "r.html"], "after the newest published one"),
    ]
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    for words, problem in cases:
        assert left("report", "--quiet", *words) == 2
        message = capsys.readouterr().err
        assert problem in message
        assert message.count("\n") == 1
    assert not (tmp_path / "r.html").exists()
    assert (tmp_path / "pipe").is_fifo()  # as /dev/null, which was replaced by a page if root asked


def test_page_without_room_leaves_nothing_behind(tmp_path: Path) -> None:
    """Cause: on a full disk the part that was written stayed, and took the room that was left."""
    with files_of_at_most(1000), pytest.raises(UsageError, match=r"r\.html: cannot be written: File too large$"):
        write_page(str(tmp_path / "r.html"), "x" * 2000)
    assert [*tmp_path.iterdir()] == []


def test_page_says_which_failure_makes_writes_wait(tmp_path: Path, at_200: Content) -> None:
    """Cause: a failure that costs only the majority of controllers had zeros in every column."""
    story = Story(27).voters({1: "a", 2: "b", 3: "c"}).broker(1, "a").broker(2, "b").broker(3, "c", fenced=True)
    lake = story.broker(4, "d").topic("t", {4: "d", 1: "a"}).lake(tmp_path)
    content = gather(lake, Settings())
    (worst, *_) = content.risk.brokers
    assert (worst.broker_id, worst.stalled, worst.without_leader) == (1, 1, 0)
    shown = page(content)
    assert re.search(r"<th[^>]*>(<button[^>]*>)?Writes wait", shown)
    assert "Writes wait" not in page(at_200)


def test_page_names_replicas_that_may_be_in_a_failed_directory(tmp_path: Path) -> None:
    """Cause: ``offline`` named them, and the page said that all replicas are online."""
    story = Story().broker(1, "a").broker(2, "bc").topic("t", {2: "unassigned", 1: "a"}).topic("v", {2: "c", 1: "a"})
    content = gather(story.left(2, "c").lake(tmp_path), Settings())
    assert content.headline == "Every replica counts as online, but 1 replica may be in a failed directory."
    assert content.verdict == "degraded"
    shown = page(content)
    assert '<a href="#perhaps">Perhaps offline</a>' in shown
    assert '<h2 id="perhaps-title">Perhaps offline</h2>' in shown
    assert "1 replica on broker 2 may be in directory" in shown
    assert "lists what it can read" in shown


def test_page_leaves_a_command_at_the_beginning_of_a_step_as_it_is_typed(at_200: Content) -> None:
    """It was "Kafka-log-dirs.sh --bootstrap-server"."""
    text = page(at_200)
    assert ">kafka-log-dirs.sh --bootstrap-server HOST:PORT --describe --broker-list 2 lists what it can read" in text
    assert "Kafka-log-dirs" not in text


def test_page_names_partitions_without_a_leader_whose_replicas_are_online_and_disks_that_may_have_the_only_copy(
    tmp_path: Path,
) -> None:
    """``offline`` said why and what to do, and not to wipe the disk; the page counted the partition."""
    story = Story().broker(1, "a").broker(2, "bc").topic("t", {1: "a", 2: "c"}).topic("v", {2: "unassigned"})
    shown = page(gather(story.left(2, "c").change("t", 0, leader=-1).lake(tmp_path), Settings()))
    assert '<a href="#leaderless">Without a leader</a>' in shown
    assert "No replica leads, although broker 1 could: the controller has not elected it" in shown
    assert "Restart broker 1, which is in sync or eligible" in shown
    assert '<a href="#data">Lost data</a>' in shown
    assert f"Directory {disk('b')} of broker 2 may hold the only complete copy" in shown


@pytest.mark.exhaustive
def test_page_of_a_cluster_without_directories_says_that_no_record_shows_a_failed_disk(tmp_path: Path) -> None:
    content = gather(Story(16).broker(1, "").topic("t", {1: "migrating"}).lake(tmp_path), Settings())
    assert "a disk that failed is not in the log" in page(content)
