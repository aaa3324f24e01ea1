"""Questions to a log in place of a lake, on the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from jbod_model.formats import records as r
from jbod_model.formats.batch import write_batch
from jbod_model.formats.log import LogWriter
from jbod_model.formats.records import VersionedRecord
from jbod_model.ids import Uuid
from pipelines.cli.main import main
from pipelines.fleet.answers import QUESTIONS
from pipelines.source.log_dir import LOG_NAME as LOG
from tests.support import local
from tests.support.paths import metadata_dir
from tests.support.volume import amount, rare
from tests.support.written import TIME

SOURCE = str(metadata_dir("kafka-4.1.2"))
NOT_KNOWN = "failures and losses before offset 405 are not known: the history begins with a snapshot"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def leave(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as left:
        main(words)
    output = capsys.readouterr()
    return int(left.value.code or 0), output.out, output.err


def copy_from_snapshot(log: Path) -> None:
    """The log of kafka-4.1.2 without its records before the snapshot at 405."""
    shutil.copytree(SOURCE, log)
    for path in (log / LOG).glob("*.log"):
        if int(path.stem) < 398:
            path.unlink()


def test_question_to_a_log_answers_as_its_lake_does(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    local.replay(Path(SOURCE), tmp_path / "lake")
    of_lake = leave(capsys, "offline", "--lake", "lake", "--at-offset", "200", "--json")
    assert of_lake[0] == 0
    for words in (["offline", SOURCE], ["offline", "--log", SOURCE]):
        assert leave(capsys, *words, "--at-offset", "200", "--json") == of_lake


def test_question_about_a_partition_takes_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    code, output, _ = leave(capsys, "history", "solo-6", "--log", SOURCE, "--at-offset", "231", "--json")
    assert (code, json.loads(output)["offset"]) == (0, 231)


def test_check_of_a_log_leaves_with_1_for_findings_and_keeps_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, output, _ = leave(capsys, "check", "--log", SOURCE, "--json")
    assert code == 1
    assert json.loads(output)["findings"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["offline", SOURCE, "--lake", "lake"], "jbod: --lake and --log: give one of them\n"),
        (["check", SOURCE, "--validate"], "jbod: --validate reads the tables of a lake: jbod replay"),
        (["offline", "nowhere"], "jbod: nowhere"),
    ],
)
def test_question_that_a_log_cannot_answer_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    code, output, problem = leave(capsys, *words)
    assert (code, output) == (2, "")
    assert problem.startswith(line)
    assert problem.count("\n") == 1


@pytest.mark.parametrize("command", ["offline", rare("incidents"), rare("check")])
def test_answer_about_losses_of_a_log_that_begins_with_a_snapshot_says_since_when_they_are_known(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    """Cause: solo-6 lost its data at 224, which a snapshot does not say; the answer named the later losses only."""
    copy_from_snapshot(tmp_path / "log")
    line = f"{NOT_KNOWN.capitalize()}."
    _, whole, _ = leave(capsys, command, "--log", SOURCE)
    _, rest, _ = leave(capsys, command, "--log", "log")
    assert (line in whole, rest.splitlines()[-1]) == (False, line)
    first = [
        json.loads(leave(capsys, command, "--log", log, "--json")[1]).get("first_offset") for log in (SOURCE, "log")
    ]
    assert first == [None, 405]
    errors = [leave(capsys, command, "--log", log, "--format", "csv")[2] for log in (SOURCE, "log")]
    assert [NOT_KNOWN in text for text in errors] == [False, True]


def test_offset_within_an_append_is_said_and_nothing_is_restarted_for_what_the_rest_of_it_explains(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """160 to 162 were written at once: at 160 a partition has no leader, and only 162 says that its disk failed. It was
    "restart broker 1, which is in sync or eligible"."""
    local.replay(Path(SOURCE), tmp_path / "lake")
    for where in (["--lake", "lake"], ["--log", SOURCE]):
        for offset, within in ((160, True), (162, False)):
            _, text, errors = leave(capsys, "offline", *where, "--at-offset", str(offset), "--json")
            assert ("--at-offset 162 has all of it" in errors) == within
            steps = [step["action"] for group in json.loads(text)["leaderless"] for step in group["steps"]]
            assert steps == (["look"] if within else [])


def test_offset_within_a_transaction_of_several_batches_is_said_unless_it_was_aborted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Only an offset within an append got a line. Of an aborted transaction no answer has a part."""
    log = LogWriter()
    topics = [r.TopicRecord(name=name, topic_id=Uuid(1, ord(name))) for name in "abcd"]
    committed = [r.BeginTransactionRecord(name="kept"), *topics[:2], r.EndTransactionRecord()]
    aborted = [r.BeginTransactionRecord(name="dropped"), topics[2], r.AbortTransactionRecord()]
    for record in [r.NoOpRecord(), *committed, *aborted, topics[3]]:
        log.append([VersionedRecord(record, 0)], epoch=1, timestamp=TIME)
    log.write(tmp_path)
    local.replay(tmp_path, tmp_path / "lake")
    for where in (["--lake", "lake"], ["--log", str(tmp_path)]):
        errors = [leave(capsys, "status", *where, "--at-offset", str(offset))[2] for offset in range(9)]
        within = "lies within a metadata transaction, which counts as a whole: no broker acts on a part of it; "
        lines = [f"jbod: offset {offset} {within}--at-offset 4 has all of it\n" for offset in (1, 2, 3)]
        assert errors == ["", *lines, "", "", "", "", ""]


def test_broker_and_directory_that_are_so_in_the_first_snapshot_have_been_so_at_or_before_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Broker 4 was fenced at 341. whatif and directories said: since 405, the offset of the snapshot."""
    copy_from_snapshot(tmp_path / "log")

    def answer_of(log: str, *words: str) -> str:
        return leave(capsys, *words, "--log", log, "--at-offset", "410")[1]

    for log, since in (("log", "at or before offset 405"), (SOURCE, "since offset 341")):
        assert f"  broker 4: fenced {since}, " in answer_of(log, "whatif", "--fail", "4")
        (failed,) = json.loads(answer_of(log, "whatif", "--fail", "4", "--json"))["already"]
        rows = json.loads(answer_of(log, "directories", "--json"))["directories"]
        listed = [row["from_snapshot"] for row in rows if row["state"] == "online"]
        assert {failed["from_snapshot"], *listed} == {log == "log"}
        assert ("≤ 405" in answer_of(log, "directories")) == ("≤ 405" in answer_of(log, "offline")) == (log == "log")
        findings = answer_of(log, "check", "--only", "offline-partition")
        assert ("every replica is offline (at or before offset 405, 0 s)" in findings) == (log == "log")
        assert "since offset 405" not in findings
        listed = json.loads(answer_of(log, "check", "--only", "offline-partition", "--json"))["findings"]
        assert {row["from_snapshot"] for row in listed if row["from_offset"] <= 405} == {log == "log"}
        waiting = answer_of(log, "assignments")
        assert ("≤ 405" in waiting) == (log == "log")
        assert "No requests are known: jbod replay LOG_DIR --requests FILE adds them to a lake." in waiting


@pytest.mark.parametrize("name", ["rest", rare("whole")])
def test_report_metrics_and_fleet_of_a_log_that_begins_with_a_snapshot_say_since_when_losses_are_known(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    copy_from_snapshot(tmp_path / "log")
    log = tmp_path / "log" if name == "rest" else Path(SOURCE)
    local.replay(log, tmp_path / name)
    leave(capsys, "report", "--lake", name, "--out", f"{name}.html")
    assert (f"{NOT_KNOWN.capitalize()}." in Path(f"{name}.html").read_text()) == (name == "rest")
    first = 405 if name == "rest" else 0
    assert f"jbod_lake_first_offset {first:.1f}\n" in leave(capsys, "metrics", "--lake", name)[1]
    Path("fleet.yaml").write_text(f"clusters: [{{name: {name}, log: '{log}', lake: {name}}}]\n")
    lines = {question for question in QUESTIONS if NOT_KNOWN in leave(capsys, "fleet", question, "fleet.yaml")[1]}
    assert lines == ({"status", "check"} if name == "rest" else set())


def test_damaged_log_answers_and_then_leaves_with_2_and_the_reason(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shutil.copytree(SOURCE, tmp_path / "log")
    segment = sorted((tmp_path / "log" / LOG).glob("*.log"))[-1]
    data = bytearray(segment.read_bytes())
    data[-10] ^= 1
    segment.write_bytes(data)
    code, output, problem = leave(capsys, "offline", "log", "--json")
    assert code == 2
    assert json.loads(output)["offset"] < 629
    assert "answered from the records up to offset" in problem
    assert segment.name in problem


@pytest.mark.parametrize(("tail", "code"), [("wait", 0), ("stop", 2)])
def test_question_to_a_log_that_is_cut_off_does_as_the_settings_say(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tail: str, code: int
) -> None:
    """replay.tail: an incomplete batch at the end is left for later, or it is an error after the answer."""
    shutil.copytree(SOURCE, tmp_path / "log")
    newest = max((tmp_path / "log" / LOG).glob("*.log"))
    newest.write_bytes(newest.read_bytes()[:-5])
    monkeypatch.setenv("JBOD_REPLAY__TAIL", tail)
    exit_code, out, _ = leave(capsys, "offline", "--log", "log", "--json")
    assert exit_code == code
    assert json.loads(out)["offset"] > 0


# WHAT A LOG IS NOT


def test_every_answer_says_that_the_log_ends_within_a_batch(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Cause: only replay reported the incomplete batch; questions to the log answered without a word."""
    shutil.copytree(SOURCE, tmp_path / "log")
    segment = sorted((tmp_path / "log" / LOG).glob("*.log"))[-1]
    segment.write_bytes(segment.read_bytes()[:-5])
    page = ["report", "--out", "report.html"]
    others = amount(0, 2)  # questions, as the first
    for words in (
        *(["directories", "--format", "csv"], ["check", "--json"])[:others],
        *(["offline"], ["image"], ["metrics"], page),
    ):
        _, _, problem = leave(capsys, *words, "--log", "log")
        assert problem.count("jbod: log: the log ends within a batch at offset ") == 1, words
    code, _, problem = leave(capsys, "dump", str(segment))
    assert (code, problem.count(" is cut off\n")) == (2, 1)


def test_two_logs_are_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Cause: two logs with nothing in common were answered at the offset of one."""
    other = str(metadata_dir("kafka-4.4.0"))
    for words in (["offline", SOURCE, other], ["status", "--log", SOURCE, "--log", other]):
        assert leave(capsys, *words) == (2, "", f"jbod: {SOURCE}, {other}: a question is about one log: give one\n")


def test_time_in_the_future_is_refused_with_the_newest_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Cause: --at-time beyond the newest record was answered, --at-offset refused."""
    code, output, problem = leave(capsys, "offline", SOURCE, "--at-time", "2999-01-01")
    assert (code, output, problem.count("\n")) == (2, "", 1)
    assert "2999-01-01 00:00:00 UTC is in the future: the newest record is of 2026-11-21 02:23:28 UTC" in problem


def test_lake_given_as_a_log_is_refused_with_the_option_for_lakes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    local.replay(Path(SOURCE), tmp_path / "lake")
    code, _, problem = leave(capsys, "offline", "lake")
    assert (code, problem.count("\n")) == (2, 1)
    assert problem.endswith("it is a lake of jbod: give it with --lake\n")


@pytest.mark.parametrize("command", [["offline"], ["replay", "--lake", "new"]], ids=["offline", "replay"])
@pytest.mark.parametrize("value", [b"hello", b"", b"\x01\xffx"], ids=["text", "empty", "binary"])
def test_folder_of_a_users_topic_is_refused_before_spark_starts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str], value: bytes
) -> None:
    """Cause: without partition.metadata, the first record was found broken only when it was decoded."""
    segment = tmp_path / "orders-3" / f"{0:020d}.log"
    segment.parent.mkdir()
    segment.write_bytes(write_batch([value], base_offset=0, epoch=0, timestamp=0))
    code, output, problem = leave(capsys, command[0], "orders-3", *command[1:])
    assert (code, output) == (2, "")
    assert problem == "jbod: orders-3: is the log of another topic: its first batch has no metadata records\n"


def test_log_in_a_folder_of_another_name_is_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shutil.copytree(Path(SOURCE) / LOG, tmp_path / "copy-3")
    (tmp_path / "copy-3" / "partition.metadata").unlink(missing_ok=True)
    assert leave(capsys, "status", "copy-3")[0] == 0
