"""Alerts: each finding once when it is new and once when it is cleared, whatever the receiver does."""

from __future__ import annotations

import json
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jbod_model.errors import JbodError, UsageError
from pipelines.ask import Lake
from pipelines.check.findings import FINDINGS
from pipelines.cli import main
from pipelines.metrics import alerts
from pipelines.metrics.alerts import Delivery, Patience, alert
from pipelines.metrics.destinations import Command, Webhook
from pipelines.metrics.findings import Recorded, recorded
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import metadata_dir

NOW = datetime(2026, 11, 21, tzinfo=UTC)
SECRET = "T0P53CR3T"
Answer = Callable[[BaseHTTPRequestHandler], None]


def status(code: int, **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        for name, value in headers.items():
            request.send_header(name, value)
        request.end_headers()

    return answer


def hang(request: BaseHTTPRequestHandler) -> None:
    request.server.over.wait(5)  # type: ignore[attr-defined]


def trickle(request: BaseHTTPRequestHandler) -> None:
    """An answer that never ends, though a byte of it comes before any wait for one is over."""
    while not request.server.over.wait(0.05):  # type: ignore[attr-defined]
        try:
            request.wfile.write(b"H")
        except OSError:
            return


def hang_up(request: BaseHTTPRequestHandler) -> None:
    request.connection.close()


class Receiver(ThreadingHTTPServer):
    """A webhook on this machine. It gives the ``answers`` in order, then 200; ``heard`` is what it took with 200."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[Answer] = []
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.heard: list[dict[str, Any]] = []
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hooks/{SECRET}?token={SECRET}"

    @property
    def events(self) -> list[tuple[str, str]]:
        return [(one["event"], one["id"]) for message in self.heard for one in message["findings"]]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, dict(self.headers), message))
        if self.server.answers:
            self.server.answers.pop(0)(self)
            return
        self.server.heard.append(message)
        status(200)(self)

    def log_message(self, *_: Any) -> None:
        pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (OSError, ValueError):
            self.close_connection = True


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    write_lake(tmp_path / "lake", read_log(metadata_dir("kafka-4.1.2"))[:20])
    return tmp_path / "lake"


def life(
    key: str, first: int = 5, last: int | None = None, cleared: int | None = None, severity: str = "critical"
) -> dict[str, Any]:
    """A row of the table of findings: a finding about a partition."""
    last = first if last is None else last
    return {
        "key": key,
        "check_id": "B-17",
        "name": "offline-partition",
        "severity": severity,
        "broker_id": None,
        "directory_id": None,
        "topic_id": "pI32v048Q-u9QSd-F7pIqg",
        "topic": 'odd "topic"',
        "partition": 3,
        "replica_index": None,
        "cause_offset": first,
        "cause_time": NOW,
        "message": "no replica leads it",
        "todo": "bring back a broker",
        "source": "KIP-858",
        "cluster_id": "test",
        "profile": "kafka",
        "first_seen_offset": first,
        "first_seen_time": NOW,
        "last_seen_offset": last,
        "last_seen_time": NOW,
        "cleared_offset": cleared,
        "cleared_time": None if cleared is None else NOW,
    }


def kept(lake: Path, *rows: dict[str, Any]) -> Recorded:
    """The table of findings, with these rows."""
    content = pa.Table.from_pylist(list(rows), schema=FINDINGS.schema)
    write_deltalake((lake / "findings").as_uri(), content, mode="overwrite")
    found = recorded(Lake.open(lake))
    assert found is not None
    return found


QUICK = Patience(seconds=0.4, tries=3, pause=0.01)


def tell(lake: Path, to: Webhook | Command, *rows: dict[str, Any], patience: Patience = QUICK) -> Delivery:
    return alert(kept(lake, *rows), to, patience=patience, sleep=lambda _: None)


# ONCE WHEN NEW, ONCE WHEN CLEARED


def test_alert_tells_a_finding_once_and_again_when_it_clears(lake: Path, receiver: Receiver) -> None:
    to = Webhook(receiver.url)
    assert tell(lake, to, life("a")) == Delivery(to.shown, 1, 0, 0, None)
    assert tell(lake, to, life("a", last=7)) == Delivery(to.shown, 0, 0, 0, None)
    assert tell(lake, to, life("a", last=7, cleared=8)) == Delivery(to.shown, 0, 1, 0, None)
    assert tell(lake, to, life("a", last=7, cleared=8)) == Delivery(to.shown, 0, 0, 0, None)
    assert tell(lake, to, life("a", last=7, cleared=8), life("b", 12)) == Delivery(to.shown, 1, 0, 0, None)
    assert receiver.events == [("new", "a@5"), ("cleared", "a@5"), ("new", "b@12")]
    assert len(receiver.requests) == 3


def test_alert_has_its_subject_and_the_advice(lake: Path, receiver: Receiver) -> None:
    tell(lake, Webhook(receiver.url), life("a"))
    path, headers, message = receiver.requests[0]
    assert path == f"/hooks/{SECRET}?token={SECRET}"
    assert headers["Content-Type"] == "application/json"
    assert (message["from"], message["clusterId"], message["offset"]) == ("jbod", "test", 19)
    (finding,) = message["findings"]
    assert finding["subject"] == 'odd "topic"-3'
    assert (finding["event"], finding["key"], finding["checkId"], finding["severity"]) == (
        "new",
        "a",
        "B-17",
        "critical",
    )
    assert (finding["message"], finding["todo"]) == ("no replica leads it", "bring back a broker")
    assert (finding["causeTime"], finding["clearedTime"]) == ("2026-11-21T00:00:00+00:00", None)


def test_alert_tells_a_finding_that_comes_back_again(lake: Path, receiver: Receiver) -> None:
    to = Webhook(receiver.url)
    first = life("a", cleared=6)
    tell(lake, to, life("a"))
    tell(lake, to, first)
    tell(lake, to, first, life("a", 9))
    tell(lake, to, first, life("a", 9, cleared=11))
    assert receiver.events == [("new", "a@5"), ("cleared", "a@5"), ("new", "a@9"), ("cleared", "a@9")]


def test_alert_first_run_tells_what_is_open_and_not_what_is_over(lake: Path, receiver: Receiver) -> None:
    tell(lake, Webhook(receiver.url), life("over", 2, cleared=3), life("open", 4, last=9))
    assert receiver.events == [("new", "open@4")]


@pytest.mark.parametrize(("least", "told"), [("critical", ["c"]), ("warning", ["w", "c"]), ("info", ["i", "w", "c"])])
def test_alert_severity_holds_back_what_is_less_severe(
    lake: Path, receiver: Receiver, least: Any, told: list[str]
) -> None:
    rows = [life("i", 1, severity="info"), life("w", 2, severity="warning"), life("c", 3, severity="critical")]
    alert(kept(lake, *rows), Webhook(receiver.url), least)
    assert receiver.events == [("new", f"{key}@{number}") for number, key in enumerate("iwc", 1) if key in told]


def test_alert_that_got_worse_is_sent_and_so_is_its_end_at_any_severity(lake: Path, receiver: Receiver) -> None:
    to = Webhook(receiver.url)
    tell(lake, to, life("a", severity="info"))
    assert receiver.events == []
    tell(lake, to, life("a", last=6, severity="critical"))
    tell(lake, to, life("a", last=7, cleared=8, severity="info"))
    assert receiver.events == [("new", "a@5"), ("cleared", "a@5")]


def test_alert_destinations_know_nothing_of_each_other(lake: Path, receiver: Receiver) -> None:
    tell(lake, Webhook(receiver.url), life("a"))
    tell(lake, Webhook(receiver.url + "&team=2"), life("a"))
    assert receiver.events == [("new", "a@5")] * 2


def test_alert_state_does_not_grow_with_what_is_over(lake: Path, receiver: Receiver) -> None:
    to = Webhook(receiver.url)
    rows: list[dict[str, Any]] = []
    for offset in range(10):
        rows = [*rows, life(f"f{offset}", offset)]
        tell(lake, to, *rows)
        rows[-1] = life(f"f{offset}", offset, cleared=offset)
        tell(lake, to, *rows)
    assert len(receiver.events) == 20
    state = json.loads((lake / "alerts" / f"{to.id}.json").read_text())
    assert list(state["told"]) == ["f9@9"]


# A RECEIVER THAT FAILS


def test_alert_webhook_that_fails_hangs_and_then_works_loses_nothing_and_repeats_nothing(
    lake: Path, receiver: Receiver
) -> None:
    to = Webhook(receiver.url)
    once = Patience(seconds=0.3, tries=1)
    rows = [life("a"), life("b", 6)]
    receiver.answers = [status(503)]
    assert tell(lake, to, *rows, patience=once) == Delivery(to.shown, 0, 0, 2, "it answered 503")
    receiver.answers = [hang]
    assert tell(lake, to, *rows, patience=once).problem == "no answer within 0.3 s"
    # Meanwhile one is over, and another comes and goes.
    rows = [life("a", cleared=8), life("b", 6, last=8), life("c", 7, cleared=9)]
    receiver.answers = [status(500), status(500)]
    assert tell(lake, to, *rows) == Delivery(to.shown, 3, 2, 0, None)
    assert receiver.events == [
        ("new", "a@5"),
        ("new", "b@6"),
        ("new", "c@7"),
        ("cleared", "a@5"),
        ("cleared", "c@7"),
    ]
    assert tell(lake, to, *rows).new == 0
    assert len(receiver.heard) == 1


def test_alert_that_fails_halfway_sends_the_rest_later(
    lake: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "PER_MESSAGE", 2)
    to = Webhook(receiver.url)
    rows = [life(f"f{number}", number) for number in range(5)]

    def take(request: BaseHTTPRequestHandler) -> None:
        receiver.heard.append(receiver.requests[-1][2])
        status(200)(request)

    receiver.answers = [take, status(400)]
    assert tell(lake, to, *rows) == Delivery(to.shown, 2, 0, 3, "it answered 400")
    rows[0] = life("f0", 0, cleared=6)
    assert tell(lake, to, *rows) == Delivery(to.shown, 3, 1, 0, None)
    assert receiver.events == [*(("new", f"f{number}@{number}") for number in range(5)), ("cleared", "f0@0")]


@pytest.mark.parametrize(
    ("answer", "problem", "tries"),
    [
        (status(500), "it answered 500", 3),
        (status(429), "it answered 429", 3),
        (status(404), "it answered 404", 1),
        (
            status(302, Location="http://127.0.0.1:1/"),
            "it answered 302: redirects are not followed, give the final URL",
            1,
        ),
        (hang, "no answer within 0.4 s", 3),
        (trickle, "no answer within 0.4 s", 3),
        (hang_up, "no proper answer (RemoteDisconnected)", 3),
    ],
)
def test_alert_tries_again_where_that_may_help_and_gives_up_in_time(
    lake: Path, receiver: Receiver, answer: Answer, problem: str, tries: int
) -> None:
    receiver.answers = [answer] * 10
    began = time.monotonic()
    assert tell(lake, Webhook(receiver.url), life("a")).problem == problem
    assert time.monotonic() - began < 5
    assert len(receiver.requests) == tries
    assert len({headers["Idempotency-Key"] for _, headers, _ in receiver.requests}) == 1


def test_alert_pauses_twice_as_long_before_each_try(lake: Path, receiver: Receiver) -> None:
    receiver.answers = [status(500)] * 4
    slept: list[float] = []
    alert(kept(lake, life("a")), Webhook(receiver.url), patience=Patience(5, 4, 1), sleep=slept.append)
    assert slept == [1, 2, 4]


def test_alert_webhook_without_a_listener_is_no_connection(lake: Path, receiver: Receiver) -> None:
    url = receiver.url
    receiver.server_close()
    assert tell(lake, Webhook(url), life("a")).problem == "no connection (Connection refused)"


def test_alert_user_and_password_of_the_url_become_a_header(lake: Path, receiver: Receiver) -> None:
    to = Webhook(receiver.url.replace("//", "//ops:p%40ss@"))
    tell(lake, to, life("a"))
    assert receiver.requests[0][1]["Authorization"] == "Basic b3BzOnBAc3M="
    assert to.shown == f"http://127.0.0.1:{receiver.server_port}"


# COMMANDS


def script(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines))
    return shlex.join([sys.executable, str(path)])


def test_alert_command_reads_the_message_and_is_started_without_a_shell(lake: Path, tmp_path: Path) -> None:
    out = tmp_path / "heard $(touch injected).json"
    line = script(tmp_path / "hear.py", "import pathlib, sys", "pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())")
    to = Command(f"{line} {shlex.quote(str(out))}")
    assert tell(lake, to, life("a")).new == 1
    assert [one["id"] for one in json.loads(out.read_text())["findings"]] == ["a@5"]
    assert to.shown == sys.executable


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["raise SystemExit(3)"], "it left with exit code 3"),
        (["import sys; sys.stdin.close(); raise SystemExit(4)"], "it left with exit code 4"),
        (["import time; time.sleep(60)"], "it was not done within 0.4 s"),
    ],
)
def test_alert_command_that_fails_keeps_the_findings(
    lake: Path, tmp_path: Path, lines: Sequence[str], problem: str
) -> None:
    to = Command(script(tmp_path / "fails.py", *lines))
    assert tell(lake, to, life("a"), patience=Patience(0.4, 1)) == Delivery(to.shown, 0, 0, 1, problem)
    (tmp_path / "fails.py").write_text("")
    assert tell(lake, to, life("a"), patience=Patience(20, 1)).new == 1


def test_alert_command_that_does_not_exist_is_said(lake: Path) -> None:
    found = tell(lake, Command("no-such-program --token x"), life("a"))
    assert found == Delivery("no-such-program", 0, 0, 1, "it cannot be started: No such file or directory")


# THE STATE AND BAD INPUT


def test_alert_refuses_a_state_without_content(lake: Path, receiver: Receiver) -> None:
    to = Webhook(receiver.url)
    tell(lake, to, life("a"))
    file = lake / "alerts" / f"{to.id}.json"
    for content in ("", "{", "[]", '{"format": 2, "settled": 1, "told": {}}'):
        file.write_text(content)
        with pytest.raises(UsageError, match="is not a record of delivered messages: remove it"):
            tell(lake, to, life("a"))
    assert len(receiver.requests) == 1


def test_alert_while_another_run_sends_leaves_it_alone(lake: Path, receiver: Receiver) -> None:
    to, found = Webhook(receiver.url), kept(lake, life("a"))
    began = threading.Event()

    def begin(request: BaseHTTPRequestHandler) -> None:
        began.set()
        hang(request)

    receiver.answers = [begin]
    first = threading.Thread(target=lambda: alert(found, to, patience=Patience(10, 1)))
    first.start()
    assert began.wait(5)
    with pytest.raises(JbodError, match="another run is sending to"):
        alert(kept(lake, life("a")), to)
    receiver.over.set()
    first.join()
    assert len(receiver.requests) == 1


def test_alert_that_cannot_record_deliveries_sends_nothing(lake: Path, receiver: Receiver) -> None:
    (lake / "alerts").write_text("a file is in the way")
    with pytest.raises(UsageError, match="the record of delivered messages cannot be written here"):
        tell(lake, Webhook(receiver.url), life("a"))
    assert receiver.requests == []


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as left:
        main.main(["alert", *map(str, arguments)])
    printed = capsys.readouterr()
    return left.value.code, printed.out, printed.err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "--webhook URL or --command CMD: give one of them"),
        (["--webhook", "http://h/", "--command", "cat"], "--webhook URL or --command CMD: give one of them"),
        (["--webhook", f"ftp://host/{SECRET}"], "--webhook: not a URL like https://host/path"),
        (["--webhook", f"file:///{SECRET}"], "--webhook: not a URL like https://host/path"),
        (["--webhook", f"https:///{SECRET}"], "--webhook: not a URL like https://host/path"),
        (["--webhook", f"http://host:99999/{SECRET}"], "--webhook: not a URL like https://host/path"),
        (["--webhook", f"http://[host/{SECRET}"], "--webhook: not a URL like https://host/path"),
        (["--webhook", f"http://host/ {SECRET}\n"], "--webhook: not a URL like https://host/path"),
        (["--command", 'cat "'], "--command: no closing quotation"),
        (["--command", " "], "--command: names no program"),
        (["--command", "cat"], "no findings are kept there yet: run jbod check --lake"),
    ],
)
def test_alert_bad_usage_is_one_line_without_secrets(
    lake: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    code, out, err = run(capsys, "--lake", lake, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert line in err
    assert SECRET not in err


def test_alert_without_a_destination_reports_it_and_succeeds(
    lake: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(lake, life("a"), life("b"))
    assert run(capsys, "--lake", lake, "--webhook", "") == (
        0,
        "no destination is set: nothing was sent, 2 findings open: give --webhook URL or --command CMD, or set "
        "alert.webhook or alert.command\n",
        "",
    )
    code, out, _ = run(capsys, "--lake", lake, "--webhook", "", "--json")
    assert (code, json.loads(out)["problem"], json.loads(out)["kept"]) == (0, "no destination is set", 2)
    assert not (lake / "alerts").exists()
    monkeypatch.setenv("JBOD_ALERT__WEBHOOK", receiver.url)
    assert run(capsys, "--lake", lake, "--webhook", "")[0] == 0
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("answer", [status(500), status(404), status(302, Location="/x"), hang_up, hang])
def test_alert_never_prints_the_secret_of_a_url(
    lake: Path, receiver: Receiver, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setenv("JBOD_ALERT__TIMEOUT_SECONDS", "0.3")
    monkeypatch.setenv("JBOD_ALERT__TRIES", "1")
    monkeypatch.setenv("JBOD_ALERT__WEBHOOK", receiver.url)
    kept(lake, life("a"))
    receiver.answers = [answer]
    code, out, err = run(capfd, "--lake", lake)
    assert code == 2
    assert err.count("\n") == 1
    assert f"jbod: http://127.0.0.1:{receiver.server_port}: " in err
    assert out == ""
    assert "0 of 1 sent, 1 kept, to be sent by the next run" in err
    assert SECRET not in out + err
    assert SECRET not in "".join(file.read_text() + file.name for file in (lake / "alerts").iterdir())


def test_alert_exit_code_is_1_while_findings_are_open(
    lake: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    kept(lake, life("w", severity="warning"))
    where = ("--lake", lake, "--webhook", receiver.url)
    assert run(capsys, *where)[0] == 0
    assert run(capsys, *where, "--fail-on", "critical")[0] == 0
    assert run(capsys, *where, "--fail-on", "warning")[0] == 1
    kept(lake, life("w", cleared=7, severity="warning"))
    code, out, err = run(capsys, *where, "--fail-on", "info", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "destination": f"http://127.0.0.1:{receiver.server_port}",
        "new": 0,
        "cleared": 1,
        "kept": 0,
        "problem": None,
    }


def test_alert_tells_what_check_found_on_a_real_log(
    tmp_path: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "lake"
    write_lake(lake, [entry for entry in read_log(metadata_dir("kafka-4.1.2")) if entry.offset <= 200])
    with pytest.raises(SystemExit) as left:
        main.main(["check", "--lake", str(lake), "--json"])
    assert left.value.code == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    severe = {one["key"] for one in found if one["severity"] != "info"}
    code, out, _ = run(capsys, "--lake", lake, "--webhook", receiver.url)
    assert (code, out) == (0, f"{len(severe)} new and 0 cleared sent to http://127.0.0.1:{receiver.server_port}\n")
    told = {one["key"]: one for message in receiver.heard for one in message["findings"]}
    assert set(told) == severe
    assert {key: told[key]["subject"] for key in severe} == {
        one["key"]: one["subject"] for one in found if one["key"] in severe
    }
