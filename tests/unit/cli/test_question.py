"""What all questions share: filters, order, limit, formats, --watch, and the shape on a terminal."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from datetime import UTC, datetime
from fcntl import ioctl
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import AnyStr

import pyarrow.parquet as pq
import pytest

from jbod_model.errors import UsageError
from pipelines.ask.assignment_requests import LastRequest, Request
from pipelines.check.findings import FINDINGS
from pipelines.cli import main
from pipelines.lake.names import Name, Names
from pipelines.lake.reader import Lake
from pipelines.lake.tables import ASSIGNMENT_REQUESTS, BY_NAME
from pipelines.show.columns import CHECK, DIRECTORIES, REQUESTS
from pipelines.show.rows import RowTable, Wanted
from tests.docs.columns import TABLES
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import ROOT, metadata_dir
from tests.support.volume import rare, sampled

AT = ("--at-offset", "200")
QUESTIONS = {
    "offline": ["offline"],
    "status": ["status"],
    "directories": ["directories"],
    "history": ["history", "solo-6"],
    "risk": ["risk"],
    "whatif": ["whatif", "--fail", "3"],
    "whatif --config": ["whatif", "--config", "min.insync.replicas=3"],
    "sizes": ["sizes", str(metadata_dir("kafka-4.1.2").parents[1] / "logdirs.json")],
    "plan check": ["plan", "check", str(Path(__file__).parent / "plan.json")],
    "plan watch": ["plan", "watch", str(Path(__file__).parent / "plan.json")],
    "plan drain": ["plan", "drain", "2:hPGP"],
    "plan undo": ["plan", "undo", str(Path(__file__).parent / "plan.json")],
    "safe-to-remove": ["safe-to-remove", "3:"],
    "safe-to-restart": ["safe-to-restart", "3"],
    "restart-plan": ["restart-plan"],
    "incidents": ["incidents"],
    "incidents NO": ["incidents", "1"],
    "check": ["check", "--no-keep", "--fail-on", "critical"],
    "moves": ["moves"],
    "assignments": ["assignments"],
    "assignments TOPIC-PARTITION": ["assignments", "solo-6"],
    "assignments --queue": ["assignments", "--queue", "60"],
    "quorum": ["quorum"],
    "upgrade-check": ["upgrade-check"],
}
"""Table -> a question with its rows."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("question") / "lake"
    write_lake(path, read_log(metadata_dir("kafka-4.1.2")), cluster_id="JBODtestCluster0123456")
    return str(path)


def leave(capsys: pytest.CaptureFixture[AnyStr], *words: str) -> tuple[int, AnyStr, AnyStr]:
    """Exit code, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as left:
        main.main(words)
    output = capsys.readouterr()
    return int(left.value.code or 0), output.out, output.err


@pytest.mark.parametrize(
    ("table", "others"),
    [(table, False) for table in TABLES] + sampled([(table, True) for table in TABLES if table is not REQUESTS], 3),
    ids=lambda value: value.name if isinstance(value, RowTable) else "ndjson, parquet" if value else "csv",
)
def test_every_question_has_its_documented_columns_in_every_format(
    lake: str, capsysbinary: pytest.CaptureFixture[bytes], table: RowTable, others: bool
) -> None:
    """Those of JSON: test_names.py."""
    place = (*QUESTIONS[table.name], "--lake", lake, *AT)
    code, out, problem = leave(capsysbinary, *place, "--format", "csv")
    if table is REQUESTS:  # this lake has none; the columns are read below
        assert (code, b"no requests in this lake" in problem) == (2, True)
        request = Request(1, LastRequest("dir", datetime(2026, 11, 21, tzinfo=UTC), "recorded", "", 1, 9, 20))
        assert table.values([request], Names())["realised_offset"] == [9]
        return
    text = out.decode()
    names = [column.name for column in table.all_columns]
    rows = [*csv.DictReader(io.StringIO(text))]
    assert text.splitlines()[0].split(",") == names
    if others:
        lines = [json.loads(line) for line in leave(capsysbinary, *place, "--format", "ndjson")[1].splitlines()]
        assert len(lines) == len(rows)
        assert all([*line] == names for line in lines)
        stored = pq.read_table(io.BytesIO(leave(capsysbinary, *place, "--format", "parquet")[1]))
        assert stored.column_names == names
        assert stored.num_rows == len(rows)
    if table.name in (
        "offline",
        "directories",
        "history",
        "risk",
        "whatif",
        "sizes",
        "plan check",
        "plan watch",
        "incidents",
        "check",
        "quorum",
    ):
        assert rows


def test_filters_come_before_the_totals_that_are_said(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, output, _ = leave(capsys, "offline", "--lake", lake, *AT, "--broker", "1", "--topic", "o*")
    lines = output.splitlines()
    assert lines[0].endswith("Z: 13 of 89 replicas offline.")
    assert lines[1] == "3 of 13 shown: broker 1, topic o*."
    assert lines[2] == "All of these partitions still have a leader and enough in-sync replicas."
    assert [line.split()[0] for line in lines if line.startswith("orders")] == ["orders-3", "orders-4", "orders-11"]
    answer = json.loads(leave(capsys, "offline", "--lake", lake, *AT, "--broker", "1", "--topic", "o*", "--json")[1])
    assert (len(answer["replicas"]), answer["offline_replicas"]) == (3, 3)
    assert [cause["replicas"] for cause in answer["causes"]] == [3]
    assert answer["selection"] == {
        "filters": {"broker": [1], "topic": ["o*"]},
        "of": 13,
        "matching": 3,
        "shown": 3,
    }


def test_order_and_limit_choose_the_rows(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("directories", "--lake", lake, *AT, "--sort", "-replicas,directory_id", "--limit", "2", "--format", "csv")
    code, output, problem = leave(capsys, *words)
    assert (code, [row["replicas"] for row in csv.DictReader(io.StringIO(output))]) == (0, ["21", "11"])
    assert problem == "jbod: 2 of 10 shown\n"


def test_filter_that_matches_nothing_says_so(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, output, _ = leave(capsys, "offline", "--lake", lake, *AT, "--broker", "4")
    assert code == 0
    assert output.splitlines()[1] == "0 of 13 shown: broker 4."
    assert "Why" not in output


def test_filter_keeps_lost_data_that_may_concern_it(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A reason of offline replicas says nothing about lost data; a topic does."""
    lost = "the data is lost"
    assert lost in leave(capsys, "offline", "--lake", lake, "--reason", "missing")[1]
    assert lost in leave(capsys, "offline", "--lake", lake, "--topic", "solo")[1]
    assert lost not in leave(capsys, "offline", "--lake", lake, "--topic", "orders")[1]


@pytest.mark.parametrize(
    ("words", "problem"),
    sampled(
        [
            (["--topic", "oders"], "--topic oders: no such topic up to offset 200 (offline): did you mean orders?"),
            (["--broker", "9"], "--broker 9: no such broker up to offset 200 (offline): known: 1, 2, 3, 4"),
            (["--dir", "r61J"], "--dir r61J: no such directory up to offset 200"),
            (
                ["--reason", "bogus"],
                "--reason bogus: no reason that jbod offline has: give one of broker missing, broker f",
            ),
            (["--broker", "one"], "--broker one: not the id of a broker"),
            (
                ["--sort", "brokr_id"],
                "--sort brokr_id: no such column in the rows of jbod offline: did you mean broker_id",
            ),
            (["--json", "--format", "csv"], "--json and --format csv: give one of them"),
            (["--watch", "5s"], "--watch shows the newest offset: leave out --at-offset"),
        ],
        5,
    ),
)
def test_filter_that_names_nothing_known_is_refused_with_similar_names(
    lake: str, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    code, output, message = leave(capsys, "offline", "--lake", lake, *AT, *words)
    assert (code, output) == (2, "")
    assert message.startswith(f"jbod: {problem}")
    assert message.count("\n") == 1


def test_plan_that_is_written_to_a_folder_is_not_watched(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    """From the second round on it only said that the folder has a plan already."""
    words = ["plan", "repair", "--lake", lake, "--into", "nowhere", "--watch", "5s"]
    message = "jbod: --into writes the files of one answer: leave out --watch\n"
    assert leave(capsys, *words) == (2, "", message)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["balance"], "balance needs sizes: give --sizes FILE"),
        (["balance", "1", "--by", "leaders"], "--by leaders evens brokers: leave out BROKER"),
        (["balance", "77", "--by", "replicas"], "77: broker 77 is not registered at offset 200"),
        (["drain", "77"], "77: broker 77 is not registered at offset 200"),
        (["drain", "77:abc"], "77:abc: broker 77 never had a directory, up to offset 200"),
        (["fill", "77:abc"], "77:abc: broker 77 never had a directory, up to offset 200"),
        (["replicas", "orders=2", "none=3"], "none: there is no such topic"),
        (["replicas", "orders=99"], "orders=99: more replicas than brokers that run, 4"),
    ],
)
def test_plan_that_needs_another_option_or_broker_is_refused_before_the_cluster_is_read(
    lake: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    problem: str,
) -> None:
    """Cause: on a large cluster it read for 4 to 15 s before it looked at its options."""
    monkeypatch.setattr("pipelines.plan.answer.problem", lambda *_: pytest.fail("it reads the cluster"))
    code, output, message = leave(capsys, "plan", *words, "--lake", lake, *AT)
    assert (code, output) == (2, "")
    assert message.startswith(f"jbod: {problem}")


@pytest.mark.parametrize("question", sampled([" ".join(QUESTIONS[table.name]) for table in TABLES if table.reasons], 4))
def test_reason_that_a_question_never_gives_is_refused_with_the_list(
    lake: str, capsys: pytest.CaptureFixture[str], question: str
) -> None:
    """Cause: ``0 of 9 shown: reason bogus`` with exit code 0."""
    code, output, message = leave(capsys, *question.split(), "--lake", lake, *AT, "--reason", "bogus")
    assert (code, output) == (2, "")
    if "no requests in this lake" in message:
        return
    assert re.fullmatch(r"jbod: --reason bogus: no reason that jbod .+ has: give one of \w.*[^,]\n", message)


@pytest.mark.parametrize("table", [table for table in TABLES if table.reasons], ids=lambda table: table.name)
def test_reason_that_some_row_has_is_taken_where_no_row_has_it(lake: str, table: RowTable) -> None:
    """``moves --reason undecided`` was refused."""
    opened = Lake.open(lake, 200)
    columns = {column.name: column for column in table.columns}
    words = [word for name in table.reasons for word in re.split(r", | or |; |: ", columns[name].about)]
    known = {"promoted", "undecided", "not requested", "refused", "pending", "directory lost", "fenced", "ghost"}
    for word in known & {*words}:
        assert Wanted(reasons=(word,)).choose(table, [], opened).rows == []


def test_one_thing_has_one_name_in_answers_and_tables(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A finding had ``offset`` and ``message`` in an answer, and ``cause_offset`` in the table; an incident had
    ``replicas_taken`` in a list, and ``replicas`` alone."""
    of_answer = {column.name for column in CHECK.columns} - {"subject"}
    assert of_answer <= {*FINDINGS.schema.names, "from_snapshot"}
    assert "from_snapshot" in BY_NAME["offline_replicas"].schema.names
    assert {"first_requested_time", "requested_time", "attempt"} <= {*ASSIGNMENT_REQUESTS.schema.names}
    assert all("asked" not in answer_column.name for table in TABLES for answer_column in table.columns)

    listed = json.loads(leave(capsys, "incidents", "--lake", lake, *AT, "--json")[1])["incidents"][0]
    alone = json.loads(leave(capsys, "incidents", "1", "--lake", lake, *AT, "--json")[1])["incident"]
    assert {*alone} == {*listed} - {"directory_path", "directory_label"}


def test_question_has_only_the_filters_of_its_columns(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert leave(capsys, "directories", "--lake", lake, "--topic", "orders")[0] == 2
    assert leave(capsys, "incidents", "1", "--lake", lake, "--reason", "failed")[0] == 2
    assert leave(capsys, "directories", "--lake", lake, "--reason", "online", "--broker", "1")[0] == 0


def test_history_of_a_topic_has_all_its_partitions(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = leave(capsys, "history", "clicks", "--lake", lake)[1].splitlines()
    assert [line.split()[0] for line in lines[:9]] == [f"clicks-{number}" for number in range(9)]
    whole = json.loads(leave(capsys, "history", "clicks", "--lake", lake, "--json")[1])
    of_partition = json.loads(leave(capsys, "history", "clicks-3", "--lake", lake, "--json")[1])
    assert whole["histories"][3] == of_partition["history"]


def test_history_lists_the_newest_events_unless_all_or_some_are_asked_for(
    lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cause: it listed every event of a topic, while its siblings list the newest and say how to see the others."""

    @cache
    def listed(*words: str) -> list[str]:
        return leave(capsys, "history", "orders", "--lake", lake, *words)[1].splitlines()

    events = json.loads("\n".join(listed("--json")))["events"]
    *_, earlier, _, _ = lines = listed()[:-40]
    assert lines[-2:] == ["", listed("--all")[13]]
    assert earlier == f"{len(events) - 40} earlier events: --all, or --json"
    assert [line.split()[0] for line in listed()[-40:]] == [str(event["offset"]) for event in events[-40:]]
    assert len(listed("--all")) == 12 + 2 + len(events)
    assert len(listed("--sort", "offset")) == 12 + 2 + len(events)
    assert [line.split()[0] for line in listed("--limit", "3")[-3:]] == [str(event["offset"]) for event in events[:3]]


def test_time_that_is_not_exact_is_told_as_it_was_understood(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    problem = leave(capsys, "status", "--lake", lake, "--at-time", "2026-11-21 02:22")[2]
    assert problem == "jbod: --at-time 2026-11-21 02:22 is 2026-11-21T02:22:00Z: the answer is of offset 175\n"
    assert leave(capsys, "status", "--lake", lake, "--at-time", "2026-11-21T02:22:00Z")[2] == ""


def on_terminal(*words: str, columns: int = 80, lines: int = 24, seconds: float = 60) -> tuple[int, str]:
    """Exit code and output of a command on a terminal, which gets Ctrl-C after so many seconds."""
    child, terminal = pty.fork()
    if child == 0:
        for stream in (0, 1, 2):
            ioctl(stream, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        os.chdir(ROOT)
        # readline sets COLUMNS behind Python's back, so the environment is given whole.
        env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        command = [sys.executable, "-m", "pipelines.cli.main", *words]
        os.execve(sys.executable, command, env | {"TERM": "xterm", "NO_COLOR": "1"})
    output, until, stopped = b"", time.monotonic() + seconds, False
    while True:
        ready, *_ = select.select([terminal], [], [], 0.2)
        if ready:
            try:
                part = os.read(terminal, 65_536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not part:
                break
            output += part
        if not stopped and (time.monotonic() > until or output.count(b"Ctrl-C ends") >= 2):
            stopped = True
            os.kill(child, signal.SIGINT)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), output.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (60, ("offline", *AT)),
        rare(60, ("incidents",)),
        rare(80, ("directories", *AT)),
        (80, ("moves",)),
        rare(80, ("quorum",)),
        rare(160, ("risk", *AT)),
    ],
)
def test_answer_fits_the_terminal(lake: str, columns: int, words: tuple[str, ...]) -> None:
    code, output = on_terminal(*words, "--lake", lake, columns=columns)
    assert code == 0
    assert max(len(re.sub("\x1b\\[[0-9;]*m", "", line)) for line in output.splitlines()) <= columns


@pytest.mark.parametrize("words", [("plan", "drain", "2:UHW"), ("upgrade-check", "--to", "4.4")])
def test_command_to_copy_is_one_line_on_a_narrow_terminal(
    lake: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """Cause: the first line of a pasted command ended after ``--execute``, and the shell ran it."""
    piped = leave(capsys, *words, "--at-offset", "150", "--lake", lake)[1]
    commands = [line for line in piped.splitlines() if "kafka-" in line and "--bootstrap-server" in line]
    assert commands and max(map(len, commands)) > 80
    assert {*commands} <= {*on_terminal(*words, "--at-offset", "150", "--lake", lake, columns=80)[1].splitlines()}


@pytest.mark.exhaustive
def test_heading_keeps_its_words_on_a_narrow_terminal(lake: str) -> None:
    """Cause: a column became as narrow as its cells: ``REPLI`` over ``CAS``, and an error if all cells were empty."""
    words = ("--fail", "1:klc", "--fail", "4", "--at-offset", "250")
    output = on_terminal("-q", "whatif", *words, "--lake", lake, lines=200, columns=80)[1]
    headings = next(line for line in output.splitlines() if "PARTITION" in line)
    assert headings.endswith("PARTITION   REPLICAS  LEADER  THEN  IN SYNC  THEN  MIN ISR  LOSES\x1b[0m")


def lines_of(output: str, heading: str) -> list[str]:
    """From a heading on, without colours."""
    lines = re.sub("\x1b\\[[0-9;]*m", "", output).splitlines()
    return lines[next(number for number, line in enumerate(lines) if line.startswith(heading)) :]


def test_heading_of_numbers_is_wrapped_on_a_narrow_terminal_so_that_a_row_stays_a_line(lake: str) -> None:
    """Cause: at 80 columns every directory of ``jbod risk`` was folded into a sentence of names and numbers."""
    output = on_terminal("risk", "--lake", lake, "--at-offset", "250", lines=200, columns=80)[1]
    assert lines_of(output, "BROKER  DIRECTORY")[:6] == [
        "BROKER  DIRECTORY                NO     LAST  UNDER  LEADERS  REPLICAS  UNPLACED",
        "                             LEADER  REPLICA    MIN     MOVE",
        "                                                ISR",
        "     3  DKzw4sS5 (stops its       4        4      4       10        21         0",
        "        broker)",
        "     4  jYd7KH6l                  2        2      2        4        11         0",
    ]


@pytest.mark.parametrize("words", [rare(("directories", *AT)), rare(("incidents",)), ("quorum",)])
def test_table_without_rows_on_a_narrow_terminal_is_its_headings(lake: str, words: tuple[str, ...]) -> None:
    """Cause: ``TypeError: 'int' object is not iterable`` where the headings alone were wider than the terminal."""
    code, output = on_terminal(*words, "--limit", "0", "--lake", lake, columns=40)
    assert code == 0
    assert "0 of " in output
    assert "Traceback" not in output


@pytest.mark.exhaustive
def test_row_that_is_folded_keeps_its_columns_on_each_of_its_lines(lake: str) -> None:
    """Cause: ``began 2026-11-21 02:21:46.234Z, lasted 30.8 s, what broker 1: directory failed``, line after line."""
    output = on_terminal("incidents", "--lake", lake, lines=200, columns=80)[1]
    assert lines_of(output, "NO  BEGAN")[:6] == [
        "NO  BEGAN                          LASTED  WHAT",
        "    REPLICAS  LONGEST  LEADERS LOST  NO LEADER  LONGEST",
        " 1  2026-11-21 02:21:46.234Z       30.8 s  broker 1: directory failed r60JqwAF",
        "           7   30.8 s             2          1   30.8 s",
        " 2  2026-11-21 02:21:56.334Z       33.5 s  broker 2: directory failed tVpKKovK",
        "           6   33.5 s             3          1   33.5 s",
    ]


@pytest.mark.exhaustive
def test_answer_that_is_longer_than_the_screen_ends_with_its_first_line(lake: str) -> None:
    _, output = on_terminal("offline", "--lake", lake, lines=24, columns=120)
    lines = [re.sub("\x1b\\[[0-9;]*m", "", line) for line in output.splitlines()]
    assert lines[0] == lines[-1]
    assert lines[-3:-1] == ["and 89 more: --all, or --json", ""]


def test_watch_redraws_on_a_terminal_until_ctrl_c(lake: str) -> None:
    code, output = on_terminal("status", "--lake", lake, "--watch", "0.2s", lines=10)
    assert code == 0
    first, second = output.split("\x1b[H")[1:3]
    assert first.count("\n") <= 10
    assert first.startswith("cluster") and second.startswith("cluster")
    assert "lines more do not fit" in first


def test_watch_appends_elsewhere_and_repeats_no_heading(lake: str) -> None:
    command = [sys.executable, "-m", "pipelines.cli.main", "directories", "--lake", lake]
    command += ["--watch", "0.2", "--format", "csv", "--limit", "1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as watching:
        assert watching.stdout is not None
        lines = [watching.stdout.readline() for _ in range(4)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 0
    assert [line.split(",")[0] for line in lines] == ["broker_id", "1", "1", "1"]


def test_answer_has_the_causes_first_and_the_first_rows_in_a_pipe_as_on_a_terminal(
    lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cause: in a pipe the list was complete, and buried the causes."""
    output = leave(capsys, "offline", "--lake", lake, *AT)[1]
    shown = re.sub("\x1b\\[[0-9;]*m", "", on_terminal("offline", "--lake", lake, *AT, lines=200, columns=400)[1])
    assert [*map(str.strip, shown.splitlines())] == [*map(str.strip, output.splitlines())]
    assert output.index("\nWhy\n") < output.index("\nWhat to do\n") < output.index("\nPARTITION ")
    assert output.endswith("and 3 more: --all, or --json\n")
    whole = leave(capsys, "offline", "--lake", lake, *AT, "--all")[1]
    assert len(whole.splitlines()) == len(output.splitlines()) + 2


@pytest.mark.parametrize(
    ("most", "words"),
    [
        ("risk.SCREENFUL", ("risk", *AT)),
        ("text.SCREENFUL", ("whatif", "--fail", "2", *AT)),
        rare("incidents.SCREENFUL", ("incidents",)),
        rare("text.SCREENFUL", ("incidents", "1")),
        ("answers.MOST_GROUPS", ("offline",)),
    ],
)
def test_list_in_a_pipe_is_short_unless_all_or_a_number_is_asked_for(
    lake: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, most: str, words: tuple[str, ...]
) -> None:
    """Cause: only a terminal had short lists."""
    monkeypatch.setattr(f"pipelines.show.{most}", 1)
    more = re.compile(r"^ *(and [\d,]+ (\w+ )?more|[\d,]+ earlier ones): --all, or --json$", re.M)
    assert more.search(leave(capsys, *words, "--lake", lake)[1])
    whole = leave(capsys, *words, "--lake", lake, "--all")[1]
    assert not more.search(whole)
    if words not in (("offline",), ("incidents", "1")):  # which have other lists than that of their rows
        assert not more.search(leave(capsys, *words, "--lake", lake, "--limit", "1000")[1])


@pytest.mark.parametrize("text", ["disk7c", "disk7*", "/data/disk7c", "1:disk7c"])
def test_directory_is_named_by_the_last_part_of_its_path(text: str) -> None:
    chosen = Wanted(directories=(text,), names=Names({"a" * 22: Name("/data/disk7c", None)}))
    rows = [SimpleNamespace(broker_id=1, directory_id="a" * 22), SimpleNamespace(broker_id=1, directory_id="b" * 22)]
    assert [row.directory_id for row in chosen.choose(DIRECTORIES, rows).rows] == ["a" * 22]


def test_lake_opens_at_a_time_that_is_a_text(lake: str) -> None:
    """Cause: a text had no tzinfo: AttributeError."""
    assert Lake.open(lake, at_time="2026-11-21T02:22:09Z").offset == Lake.open(lake, at_offset=200).offset
    with pytest.raises(UsageError, match="not a time"):
        Lake.open(lake, at_time="soon")
