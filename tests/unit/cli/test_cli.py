"""The command line: answers on standard output, one line per error, exit codes."""

from __future__ import annotations

import io
import json
import pwd
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from jbod_model.errors import UsageError
from pipelines.ask.advice import look
from pipelines.ask.lake_status import Troubled
from pipelines.ask.last_copies import LastCopies
from pipelines.ask.lost_data import Losses
from pipelines.ask.offline_replicas import Cause, Offline, OfflineReplica
from pipelines.cli import main
from pipelines.lake import times
from pipelines.lake.reader import Lake
from pipelines.show import answers
from pipelines.show import text as show
from pipelines.show.answers import show_offline
from pipelines.show.columns import OFFLINE
from pipelines.show.rows import Wanted
from pipelines.show.text import Screen
from tests.support.kafka_images import kafka_images
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import CLUSTERS, KAFKAS, ROOT, metadata_dir
from tests.support.volume import rare, sampled

KAFKA = "kafka-4.1.2"
HEAVY = {"pyspark", "numba", "pandas", "pyarrow", "great_expectations"}


REQUESTS = CLUSTERS / KAFKA / "requests-100.log.gz"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("cli") / "lake"
    write_lake(path, read_log(metadata_dir(KAFKA)), cluster_id="JBODtestCluster0123456")
    return str(path)


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        main.main(words)
    return int(left.value.code or 0)


def test_user_without_a_home_and_without_an_entry_in_passwd_is_answered(
    lake: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cause: Path.home raised RuntimeError where settings are looked for: a traceback, and exit code 3."""
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda number: {}[number])
    assert run("status", "--lake", lake) == 0
    assert capsys.readouterr().err == ""


def test_image_prints_kafkas_image_as_one_object(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("image", "--lake", lake, "--at-offset", "288", "--json") == 0
    expected = next(image for image in kafka_images(KAFKA) if image["offset"] == 288)
    assert json.loads(capsys.readouterr().out) == expected


def test_offline_says_answer_then_why_then_what_to_do(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("offline", "--lake", lake, "--at-offset", "200") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "At offset 200, 2026-11-21 02:22:08.166Z: 13 of 89 replicas offline, in 13 of 39 partitions."
    assert lines.index("Why") < lines.index("What to do")
    table = next(line for line in lines if line.startswith("PARTITION"))
    assert table.split() == ["PARTITION", "BROKER", "DIRECTORY", "REASON", "SINCE", "FOR"]
    assert len(lines) - lines.index(table) - 1 == 10 + 1
    why = lines.index("Why")
    assert "broker 1 runs, but reported that directory r60JqwAFn7gsit5hNSGjVw failed" in lines[why + 1]
    assert "since offset 162, 2026-11-21 02:21:46.234Z" in lines[why + 2]


def test_offline_on_a_terminal_lists_what_clients_notice_first_and_each_advice_once(lake: str) -> None:
    day = datetime(2026, 11, 21, tzinfo=UTC)
    causes = [
        Cause("broker fenced", broker, None, 7, day, False, 30, f"broker {broker} is fenced", look("look at it"))
        for broker in range(1, 13)
    ]
    replicas = [
        OfflineReplica(f"t{number:02}", "id", 0, 0, 1 + number % 2, "dir", "broker fenced", 7, day, False)
        for number in range(60)
    ]
    hurt = Troubled("t55", 0, (2,), (2,), 2, (2,), 1)
    out = Screen(file=io.StringIO(), force_terminal=True, width=100, color_system=None, soft_wrap=False)
    answer = Offline(9, day, 60, 60, replicas, causes, [hurt], Losses((), (), LastCopies(Lake.open(lake))))
    show_offline(out, answer, Wanted().choose(OFFLINE, replicas))
    lines = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[lines.index("What to do") - 2 :][:4] == [
        "  and 4 causes more: --all, or --json",
        "",
        "What to do",
        "  1. brokers 1, 2, 3, 4, 5, 6, 7, 8 and 4 more: look at it",
    ]
    listed = [line.split()[0] for line in lines if line.startswith("t")]
    assert listed == ["t55-0", *(f"t{number:02}-0" for number in range(9))]
    assert lines[-1] == "and 50 more: --all, or --json"


def test_offline_in_json_has_the_same(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("offline", "--lake", lake, "--at-offset", "200", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["offset"], answer["offline_replicas"], answer["replicas_in_all"]) == (200, 13, 89)
    assert {cause["reason"] for cause in answer["causes"]} == {"directory offline"}
    assert sum(cause["replicas"] for cause in answer["causes"]) == len(answer["replicas"]) == 13
    assert set(answer["replicas"][0]) >= {"topic", "partition", "broker_id", "directory_id", "from_offset", "from_time"}


@pytest.mark.parametrize("words", [["status"], ["directories"], ["history", "clicks-3"], ["offline"]])
def test_question_in_json_is_one_object(lake: str, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert run(*words, "--lake", lake, "--json") == 0
    assert json.loads(capsys.readouterr().out)


def test_status_counts_a_broker_that_has_replicas_and_is_not_registered_as_the_metrics_do(
    lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was "3, 0 fenced", with 24 replicas offline."""
    for offset, brokers in ((543, "4, 1 fenced"), (545, "3, 0 fenced; 1 with replicas not registered")):
        assert run("status", "--lake", lake, "--at-offset", str(offset)) == 0
        assert f"brokers      {brokers}\n" in capsys.readouterr().out


def test_status_names_cluster_offset_and_trouble(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("status", "--lake", lake, "--at-offset", "200") == 0
    output = capsys.readouterr().out
    assert "JBODtestCluster0123456" in output
    assert "200 (newest is 629); known from 0 on" in output
    assert "13 offline replicas" in output


def test_status_names_lost_data_before_what_comes_back(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It came last, after the replicas that are offline while their broker restarts."""
    assert run("status", "--lake", lake) == 0
    (trouble,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("trouble"))
    assert trouble.startswith(
        "trouble      4 partitions with lost data, 2 partitions with unreachable data, 44 partition"
    )
    assert trouble.endswith("99 offline replicas, 44 partitions under-replicated")


def test_assignments_say_that_all_is_known(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It was "does not know the directory of 0 replicas"."""
    for offset, known in (
        ("629", "knows the directory of every replica."),
        ("200", "does not know the directory of 1"),
    ):
        assert run("assignments", "--lake", lake, "--at-offset", offset) == 0
        assert f"the controller {known}" in capsys.readouterr().out


def test_directories_show_failed_ones_that_still_hold_replicas(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("directories", "--lake", lake, "--at-offset", "200") == 0
    output = capsys.readouterr().out
    assert "7 directories online, 13 replicas in 2 directories that are gone" in output
    assert sum(" failed " in line for line in output.splitlines()) == 2


def test_history_starts_with_the_creation(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("history", "clicks-3", "--lake", lake) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("clicks-3 at offset 629: no leader")
    assert "created as topic" in lines[2]


def test_lake_and_files_of_settings_come_from_options(
    lake: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text(json.dumps({"lake": lake}))
    assert run("--conf", str(tmp_path / "mine.yaml"), "status") == 0
    assert "JBODtestCluster" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["offline"], ["rebuild"], ["replay", str(metadata_dir(KAFKA))]])
def test_lake_below_a_tilde_that_no_shell_has_replaced_is_refused_and_makes_nothing(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in --lake=~/lake. delta-rs reads the home folder there: a question asked for a backup of the ledger of a lake
    that was whole, and a replay for storage that is shared, after it had made the folder ~."""
    write_lake(tmp_path / "lake", read_log(metadata_dir(KAFKA)))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert run(*words, "--lake=~/lake") == 2
    error = capsys.readouterr().err
    assert re.fullmatch(rf"jbod: ~/lake\S*: no shell has replaced the ~: write the whole path, {tmp_path}/...\n", error)
    assert not [*Path.cwd().iterdir()]


@pytest.mark.parametrize("words", [["offline"], ["rebuild"], ["replay", str(metadata_dir(KAFKA))]])
@pytest.mark.parametrize("slashes", ["/", "//"])
def test_lake_at_half_a_uri_is_refused_and_makes_nothing(
    words: list[str], slashes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cause: file:/lake, as Hadoop prints it, became the folder file: in this one; file://lake was a lake without a
    name."""
    monkeypatch.chdir(tmp_path)
    assert run(*words, f"--lake=file:{slashes}lake") == 2
    error = capsys.readouterr().err
    assert re.fullmatch(rf"jbod: file:{slashes}lake\S*: write file:// and the whole path, file:///..., .*\n", error)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("words", [["offline"], ["rebuild"], ["replay", str(metadata_dir(KAFKA))]])
def test_lake_with_a_control_character_in_its_path_is_refused_and_makes_nothing(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cause: delta-rs refuses it: a question ended with a traceback, a replay said that a table "cannot be created"."""
    monkeypatch.chdir(tmp_path)
    assert run(*words, "--lake", "a\tb") == 2
    error = capsys.readouterr().err
    assert error == "jbod: 'a\\tb': delta-rs takes no control character in a path: move or name the lake without it\n"
    assert not [*tmp_path.iterdir()]


def test_lake_below_a_file_is_refused_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was "Not a directory", and no more."""
    (tmp_path / "file").touch()
    lake = tmp_path / "file" / "lake"
    assert run("replay", str(metadata_dir(KAFKA)), "--lake", str(lake)) == 2
    assert capsys.readouterr().err == f"jbod: {lake}: {lake.parent} is a file: name a folder with --lake\n"


@pytest.mark.parametrize("place", ["lake", "__cluster_metadata-0/lake"])
def test_new_lake_in_a_directory_of_kafka_is_refused_and_makes_nothing(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cause: only Kafka's names were looked for in the lake's own folder: ``jbod replay .`` in a metadata.log.dir put
    the folder lake there, and Kafka refuses to start with one that is no partition."""
    log = copytree(metadata_dir(KAFKA), tmp_path / "log")
    before = sorted(log.rglob("*"))
    monkeypatch.chdir(log)
    assert run("replay", ".", "--lake", place) == 2
    what = f"lies in {log}, a directory of Kafka, and a broker does not start with a folder there that is no partition"
    assert capsys.readouterr().err == f"jbod: {place}: {what}: use another --lake\n"
    assert sorted(log.rglob("*")) == before


def test_log_at_a_uri_of_this_host_is_read_as_a_lake_at_one_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cause: Arrow refuses file://localhost/, which delta-rs takes; metrics took no URI at all for a log."""
    write_lake(tmp_path / "lake", [entry for entry in read_log(metadata_dir(KAFKA)) if entry.offset <= 200])
    for host in ("", "localhost"):
        log, lake = f"file://{host}{metadata_dir(KAFKA).absolute()}", f"file://{host}{tmp_path}/lake"
        assert run("offline", "--log", log, "--at-offset", "200", "--json") == 0
        of_log = capsys.readouterr().out
        assert run("offline", "--lake", lake, "--json") == 0
        assert capsys.readouterr().out == of_log
        assert run("metrics", "--lake", lake, "--log", log) == 0
        assert "jbod_log_unread_records 429.0" in capsys.readouterr().out


def test_status_of_a_newest_record_in_the_future_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was "0 s ago"."""
    write_lake(tmp_path / "lake", [entry for entry in read_log(metadata_dir(KAFKA)) if entry.offset <= 200])
    newest = Lake.open(tmp_path / "lake").time

    class Clock(datetime):
        """A clock that is three hours behind."""

        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return (newest - timedelta(hours=3)).astimezone(tz)

    monkeypatch.setattr(answers, "datetime", Clock)
    assert run("status", "--lake", str(tmp_path / "lake")) == 0
    assert "Z, 3 h in the future: the clocks disagree\n" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["gone", "lake"])
def test_lake_at_a_link_to_nothing_is_refused_with_what_to_do(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cause: "File exists" for a link whose folder is gone, "[Errno 40]" for a link to itself."""
    lake = tmp_path / "lake"
    lake.symlink_to(target)
    assert run("replay", str(metadata_dir(KAFKA)), "--lake", str(lake)) == 2
    what = "is a link to nothing: make the folder that it names, or remove the link"
    assert capsys.readouterr().err == f"jbod: {lake}: {what}\n"


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["replay", "LOG", "--lake", ""], "--lake: the value is empty"),
        (["replay", "LOG", "--lake="], "--lake: the value is empty"),
        (["replay", "LOG", "--lake", "--json"], "--lake: its value is missing: --json is an option"),
        (["offline", "--lake", "--at-offset", "3"], "--lake: its value is missing: --at-offset is an option"),
        (["whatif", "--fail", "--lake", "lake"], "--fail: its value is missing: --lake is an option"),
        (["offline", ""], "offline: the value is empty"),
    ],
)
def test_option_without_its_value_is_refused_and_makes_nothing(
    words: list[str], wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where a variable of the shell is not set. A replay made the lake ``--json``, or removed the folder in which it
    was started."""
    monkeypatch.chdir(tmp_path)
    assert run(*(word.replace("LOG", str(metadata_dir(KAFKA))) for word in words)) == 2
    assert capsys.readouterr().err == f"jbod: {wrong}\n"
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("folder", ["", "/__cluster_metadata-0"])
@pytest.mark.parametrize("command", ["offline", "rebuild"])
def test_log_in_place_of_a_lake_is_said_to_be_one(
    command: str, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody is sent to make a lake among the files of Kafka."""
    log = f"{metadata_dir(KAFKA)}{folder}"
    assert run(command, "--lake", log) == 2
    assert capsys.readouterr().err == (
        f"jbod: {log}: no lake there: it is a metadata log: ask it with --log, or make a lake of it: "
        f"jbod replay {log} --lake LAKE\n"
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["offline", "--lake", "nowhere"], "nowhere: no lake there: make one with jbod replay"),
        (["offline"], "lake: no lake there: make one with jbod replay LOG_DIR --lake lake, or ask a log: --log DIR"),
        (["offline", "--lake", __file__], f"{__file__}: no lake there: it is a file: name a folder with --lake"),
        (["offline", "--at-offset", "3", "--at-time", "2026-01-01"], "--at-offset and --at-time: give one of them"),
        (["status", "--at-time", "yesterday"], "--at-time yesterday: not a time: write 2026-11-21T02:21:05Z"),
        (["--conf", "nowhere.yaml", "status"], "nowhere.yaml: cannot read the settings"),
        (["status", "--lake", "lak\udcff"], "lak\\udcff/records: is no text in UTF-8: name a link"),  # was a traceback
        (["status", "--log", "/no\udcff"], "/no\\udcff: is no text in UTF-8"),
        (["dump", "nowhere.log"], "nowhere.log: No such file or directory"),
        (["dump", "."], ".: a directory: name the files in it, *.log or *.checkpoint"),
    ],
)
def test_error_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"jbod: {problem}")
    assert output.err.count("\n") == 1


def test_unknown_command_and_option_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("nosuch") == 2
    assert run("offline", "--nosuch") == 2
    assert capsys.readouterr().out == ""


def test_dump_prints_every_record_of_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    segment = metadata_dir(KAFKA) / "__cluster_metadata-0" / "00000000000000000000.log"
    assert run("dump", str(segment)) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["offset"] for line in lines] == list(range(len(lines)))
    assert set(lines[0]["control"]) == {"LeaderChange"}
    assert any(line.get("payload", {}).get("type") == "REGISTER_BROKER_RECORD" for line in lines)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-21T02:21:05Z", datetime(2026, 11, 21, 2, 21, 5, tzinfo=UTC)),
        ("2026-11-21 02:21:05.123", datetime(2026, 11, 21, 2, 21, 5, 123000, tzinfo=UTC)),
        ("2026-11-21T03:21:05+01:00", datetime(2026, 11, 21, 2, 21, 5, tzinfo=UTC)),
        ("1795227665000", datetime(2026, 11, 21, 2, 21, 5, tzinfo=UTC)),
    ],
)
def test_time_is_utc_unless_it_says_otherwise(text: str, time: datetime) -> None:
    assert times.parse_time(text) == time


@pytest.mark.parametrize("text", ["", "now", "9" * 30, "2026-13-01"])
def test_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--at-time"):
        times.parse_time(text)


def test_time_in_seconds_is_refused_with_what_it_would_be_and_how_to_write_it(
    lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("offline", "--lake", lake, "--at-time", "1795227726") == 2
    assert capsys.readouterr().err == (
        "jbod: --at-time 1795227726: as milliseconds since 1970 that is 1970-01-21T18:40:27Z, before Kafka "
        "existed; if seconds are meant, write 1795227726000 or 2026-11-21T02:22:06Z\n"
    )
    assert run("offline", "--lake", lake, "--at-time", "1795227726000") == 0
    with pytest.raises(UsageError, match="before Kafka existed: write 2026-11-21T02:21:05Z"):
        times.parse_time("20261121")


def test_dump_of_a_text_names_no_offset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.log").write_text("what is this file that is long enough for a batch, and is none\n")
    assert run("dump", str(tmp_path / "notes.log")) == 2
    problem = capsys.readouterr().err
    assert "offset" not in problem
    assert problem.startswith(f"jbod: {tmp_path}/notes.log: byte 0 starts no record batch: magic is ")


def test_command_that_is_suggested_quotes_its_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "my lake"
    for words in (("offline",), ("audit", str(metadata_dir(KAFKA)), "--requests", str(REQUESTS))):
        assert run(*words, "--lake", str(place)) == 2
        assert capsys.readouterr().err.endswith(f"jbod replay LOG_DIR --lake '{place}'\n")


@pytest.mark.parametrize(("kafka", "part"), sampled(product(KAFKAS, [0.3, 0.5, 1]), 1))
def test_first_line_of_each_answer_counts_its_rows(
    cluster_lakes: Mapping[str, Path], capsys: pytest.CaptureFixture[str], kafka: str, part: float
) -> None:
    def ask(*words: str) -> tuple[Any, str, list[list[str]]]:
        place = ("--lake", str(cluster_lakes[kafka]), "--at-offset", str(offset))
        run(*words, *place, "--json")
        answer = json.loads(capsys.readouterr().out)
        run(*words, *place, "--all")
        lines = capsys.readouterr().out.splitlines()
        return answer, lines[0].partition("Z: ")[2], [line.split() for line in lines]

    offset = round(part * Lake.open(cluster_lakes[kafka]).offset)
    status, *_ = ask("status")
    rows, summary, lines = ask("directories")
    online = [row for row in rows["directories"] if row["state"] == "online"]
    fenced = sum(row["broker"] != "online" for row in online)
    assert (
        summary.split()[0]
        == str(len(online))
        == str(status["directories"])
        == str(sum("online" in cells for cells in lines[1:]))
    )
    assert (f"({fenced} of them on brokers that are fenced)" in summary) == bool(fenced)
    offline, summary, lines = ask("offline")
    assert len(offline["replicas"]) == offline["offline_replicas"] == status["offline_replicas"]
    assert sum(cause["replicas"] for cause in offline["causes"]) == len(offline["replicas"])
    if offline["replicas"]:
        assert summary.startswith(f"{len(offline['replicas'])} of {sum(status['replicas'].values())} replicas offline")
        table = lines[next(at for at, cells in enumerate(lines) if cells[:2] == ["PARTITION", "BROKER"]) + 1 :]
        assert len(table) == len(offline["replicas"])
        assert f"in {len({cells[0] for cells in table})} of {status['partitions']} partitions" in summary
    moves, summary, lines = ask("moves")
    numbers = [int(number) for number in re.findall(r"\d+", summary.replace(",", ""))]
    recreated = numbers[-1] if "recreated empty" in summary else 0
    assert numbers[0] + recreated == len(moves["moves"])
    assert len(lines) - 1 - bool(moves["moves"]) == len(moves["moves"])


@pytest.mark.parametrize(
    ("words", "option", "heavy"),
    [
        (("offline",), "--lake", HEAVY),
        (("offline",), "--log", HEAVY - {"pyarrow"}),
        rare(("safe-to-restart", "1"), "--log", HEAVY - {"pyarrow"}),
    ],
)
def test_question_never_loads_spark_numba_or_pandas(
    lake: str, words: tuple[str, ...], option: str, heavy: set[str]
) -> None:
    """Cause: Arrow's constructor of arrays imports pandas, and so does ``to_numpy``."""
    place = lake if option == "--lake" else str(metadata_dir("kafka-4.1.2"))
    code = (
        "import sys; from pipelines.cli.main import main\n"
        f"try: main([*{words!r}, {option!r}, {place!r}])\n"
        "except SystemExit: pass\n"
        f"print(*sorted({heavy!r} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.split() == []
    assert "offset 629" in done.stdout


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3, "0 s"), (0.4, "0 s"), (59, "59 s"), (60, "1 min"), (7199, "1 h"), (200_000, "2 d")]
)
def test_age_is_in_whole_units(seconds: float, text: str) -> None:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    assert show.age(now - timedelta(seconds=seconds), now) == text


def test_terminal_wraps_with_a_hanging_indent_and_prints_no_markup() -> None:
    out = Screen(file=io.StringIO(), force_terminal=True, width=24, color_system=None)
    show.say(out, "  1. mount [bold]that disk again on broker 3", hang=5)
    assert out.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "  1. mount [bold]that",
        "     disk again on",
        "     broker 3",
    ]


@pytest.mark.parametrize("name", main.MODULES)
def test_command_of_a_module_brings_exactly_those_the_module_is_listed_for(name: str) -> None:
    app = main.application(main.MODULES[name][:1])
    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    commands |= {group.name or "" for group in app.registered_groups}
    assert commands == set(main.MODULES[name])


@pytest.mark.parametrize(
    "words", [("replay", "s3://KEY:SECRET@bucket/log"), ("offline", "--lake", "gs://KEY:SECRET@bucket/lake")]
)
def test_password_in_a_location_is_refused_and_not_repeated(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """Object storage is read with what the environment, a profile or the machine's role gives."""
    with pytest.raises(SystemExit) as left:
        main.main(list(words))
    output = capsys.readouterr()
    assert left.value.code == 2
    assert "://***@bucket/" in output.err
    assert "a list of processes shows a password in a URI" in output.err
    assert "SECRET" not in output.err + output.out


def test_password_of_a_location_from_the_settings_is_not_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JBOD_LAKE", "nothing://KEY:SECRET@bucket/lake")
    with pytest.raises(SystemExit) as left:
        main.main(["offline"])
    output = capsys.readouterr()
    assert left.value.code == 2
    assert "SECRET" not in output.err + output.out


def test_replay_whose_session_does_not_come_about_leaves_no_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing() -> None:
        raise UsageError("spark.master: nobody there")

    monkeypatch.setattr("pipelines.spark.session.spark_session_soon", lambda *_: nothing)
    monkeypatch.chdir(tmp_path)
    assert run("replay", str(metadata_dir("kafka-4.1.2")), "--lake", str(tmp_path / "lake")) == 2
    assert "nobody there" in capsys.readouterr().err
    assert not (tmp_path / "lake").exists()
