"""The declarations, what follows from them, and the server of ``jbod metrics --listen``."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from jbod_model.errors import UsageError
from pipelines.check.catalogue import CHECKS, run_checks
from pipelines.check.findings import record
from pipelines.cli import main
from pipelines.lake.reader import Lake
from pipelines.metrics import serve
from pipelines.metrics.declared import METRICS
from pipelines.metrics.measure import behind, measure, of_lake
from pipelines.metrics.serve import Measured, MetricsServer
from pipelines.quorum.state import WatchedQuorum, mirror_of
from tests.support.lakes import write_lake
from tests.support.local import replay
from tests.support.logs import read_log
from tests.support.monitoring import ALERTS, RECORDINGS, RUNBOOK, Alert, dashboard
from tests.support.paths import ROOT, metadata_dir
from tests.unit.check.story import Story

KAFKA = "kafka-4.1.2"
DECLARED = {metric.name: metric for metric in METRICS}
RUNBOOK_TEXT = (ROOT / RUNBOOK).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("monitoring") / "lake"
    write_lake(path, [entry for entry in read_log(metadata_dir(KAFKA)) if entry.offset <= 200])
    return path


# DECLARATIONS


def test_every_declared_metric_is_measured_with_its_labels_and_no_other(lake: Path) -> None:
    opened = Lake.open(lake)
    record(opened, CHECKS, run_checks(opened))
    log = behind(str(metadata_dir(KAFKA)), 201)
    mirror = mirror_of(str(lake))
    mirror.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    WatchedQuorum(210, 1, "localhost:9093", now, now).write(mirror)
    families = list(measure(opened, datetime.now(UTC), log=log))
    assert sorted(family.name for family in families) == sorted(DECLARED)
    for family in families:
        assert family.documentation == DECLARED[family.name].help
        for sample in family.samples:
            assert tuple(sample.labels) == DECLARED[family.name].labels


def test_page_lists_every_metric_with_its_labels() -> None:
    rows = re.findall(r"^\| `(jbod_\w+)` \| ([^|]*)\|", RUNBOOK_TEXT, re.MULTILINE)
    assert [(name, tuple(re.findall(r"\w+", labels))) for name, labels in rows] == [
        (metric.name, metric.labels) for metric in METRICS
    ]


def used(expr: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics of a query that jbod measures, each with the labels of its selector that jbod declares."""
    for name, _, selector in re.findall(r"(?<![:\w])(jbod_\w+)(\{([^}]*)\})?", expr):
        yield name, set(re.findall(r"(\w+)\s*=~?", selector)) - {"instance", "cluster"}


@pytest.mark.parametrize("expr", [*RECORDINGS.values(), *(alert.expr for alert in ALERTS)], ids=lambda expr: expr[:40])
def test_rule_asks_for_declared_metrics_and_labels_or_for_another_rule(expr: str) -> None:
    metrics = list(used(expr))
    assert metrics or any(name in expr for name in RECORDINGS)
    for name, labels in metrics:
        assert labels <= set(DECLARED[name].labels)
    assert set(re.findall(r"\w+:\w+:\w+", expr)) <= {*RECORDINGS}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_alert_has_all_that_a_person_on_call_needs(alert: Alert) -> None:
    assert re.search(rf"^### {alert.name}$", RUNBOOK_TEXT, re.MULTILINE), "the runbook has no section"
    assert alert.runbook == f"{RUNBOOK}#{alert.name.lower()}"
    assert alert.severity in ("critical", "warning")
    text = alert.summary + alert.description
    gone = {label for words in re.findall(r"without \(([^)]*)\)", alert.expr) for label in words.split(", ")}
    left = {label for name, _ in used(alert.expr) for label in DECLARED[name].labels} - gone
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= {*left, "cluster"}
    assert alert.description.endswith(".")
    if alert.name != "JbodMetricsAbsent":  # which has no labels
        assert alert.summary.startswith("{{ with $labels.cluster }}{{ . }}: {{ end }}"), "a fleet does not say which"


@pytest.mark.parametrize("name", ["WithoutLeader", "AllOffline"])
def test_alert_of_partitions_whose_only_copy_may_be_offline_lets_nobody_wipe_a_disk(name: str) -> None:
    """ "Start these brokers, or repair the disks" was all that it said of partitions without a leader."""
    (alert,) = [alert for alert in ALERTS if alert.name == f"JbodPartitions{name}"]
    assert re.search("wipe no", alert.description, re.IGNORECASE)
    assert "**wipe none of" in RUNBOOK_TEXT.partition(f"### {alert.name}\n")[2].partition("\n### ")[0]


def test_runbook_has_no_section_of_an_alert_that_is_gone() -> None:
    assert re.findall(r"^### (Jbod\w+)$", RUNBOOK_TEXT, re.MULTILINE) == [alert.name for alert in ALERTS]


def test_configuration_of_alertmanager_on_the_page_names_alerts_that_exist() -> None:
    (text,) = re.findall(r"```yaml\n# alertmanager\.yml\n(.*?)```", RUNBOOK_TEXT, re.DOTALL)
    config = yaml.safe_load(text)
    names = {alert.name for alert in ALERTS}
    for rule in config["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            assert re.fullmatch('alertname="(.*)"', matcher)[1] in names  # type: ignore[index]
    used_receivers = {config["route"]["receiver"], *(route["receiver"] for route in config["route"]["routes"])}
    assert used_receivers == {receiver["name"] for receiver in config["receivers"]}


# THE COMMAND


def run(*words: str) -> str:
    ran = CliRunner().invoke(main.application(["metrics"]), ["metrics", *words])
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def test_rules_are_a_file_for_prometheus_and_need_no_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    groups = yaml.safe_load(run("--rules"))["groups"]
    assert [rule["record"] for rule in groups[0]["rules"]] == [*RECORDINGS]
    assert [rule["alert"] for rule in groups[1]["rules"]] == [alert.name for alert in ALERTS]


def test_dashboard_is_one_that_grafana_imports_without_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = json.loads(run("--dashboard"))
    assert made == dashboard()
    assert "__inputs" not in made
    assert made["uid"]
    assert made["schemaVersion"] >= 39
    variables = {variable["name"]: variable for variable in made["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    panels = made["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        grid = panel["gridPos"]
        place = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert grid["x"] + grid["w"] <= 24
        assert not place & taken
        taken |= place
        if panel["type"] == "row":
            continue
        assert panel["description"]
        assert panel["datasource"]["uid"] == "${datasource}"
        targets = panel["targets"]
        assert len({target["refId"] for target in targets}) == len(targets) > 0
        for target in targets:
            assert target["datasource"]["uid"] == "${datasource}"
            metrics = list(used(target["expr"]))
            assert metrics
            assert target["expr"].count("cluster=~'$cluster'") == len(metrics), "clusters that are not chosen are shown"
            for name, labels in metrics:
                assert labels <= set(DECLARED[name].labels)
            legend_labels = set(re.findall(r"{{(\w+)}}", target["legendFormat"])) - {"instance", "cluster"}
            assert legend_labels <= {label for name, _ in metrics for label in DECLARED[name].labels}


def test_every_metric_worth_a_look_is_on_the_dashboard() -> None:
    shown = {
        name
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
        for name, _ in used(target["expr"])
    }
    counted_elsewhere = {
        "jbod_measured_timestamp_seconds",
        "jbod_lake_published_timestamp_seconds",
        "jbod_lake_last_record_age_seconds",
        "jbod_log_end_offset",
        "jbod_log_unread_bytes",
        "jbod_quorum_high_watermark",
        "jbod_quorum_answered_timestamp_seconds",
        "jbod_quorum_silent_since_timestamp_seconds",
        "jbod_partitions",
        "jbod_replicas",
        "jbod_findings_offset",
        "jbod_directory_info",
    }
    assert shown | counted_elsewhere == set(DECLARED)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--rules", "--dashboard"], "--rules and --dashboard: give one of them"),
        (["--listen", "127.0.0.1:0", "--out", "x"], "--out and --listen: give one of them"),
        (["--listen", "127.0.0.1:0", "--json"], "--json and --listen: give one of them"),
        (["--listen", "9465"], "--listen 9465: not an address like 127.0.0.1:9465"),
        (["--listen", "127.0.0.1:65536"], "--listen 127.0.0.1:65536: not an address like 127.0.0.1:9465"),
        (["--listen", "127.0.0.1:TAKEN"], "Address already in use"),
    ],
)
def test_bad_usage_is_one_line_and_leaves_with_2(
    capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(SystemExit) as left:
            main.main(["metrics", *(word.replace("TAKEN", port) for word in words)])
    printed = capsys.readouterr()
    assert (left.value.code, printed.out, printed.err.count("\n")) == (2, "", 1)
    assert line in printed.err


# THE SERVER


@contextmanager
def served(lake: Path, log_dir: Path | None = None) -> Iterator[tuple[str, list[str]]]:
    """The URL of a server in this process, and what it tells."""
    notices: list[str] = []
    listener = MetricsServer(
        "127.0.0.1:0", Measured(str(lake), notices.append, None if log_dir is None else str(log_dir))
    )
    thread = threading.Thread(target=listener.serve)
    thread.start()
    try:
        yield listener.url, notices
    finally:
        listener.stop()
        thread.join(10)
        assert not thread.is_alive()


def scraped(url: str) -> dict[str, float]:
    """The samples without labels."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        text = answer.read().decode()
    families = text_string_to_metric_families(text)
    return {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offset of each measurement of a lake."""
    offsets: list[int] = []

    def counted(lake: Lake, **options: Any) -> Iterator[Any]:
        offsets.append(lake.offset)
        return of_lake(lake, **options)

    monkeypatch.setattr(serve, "of_lake", counted)
    return offsets


def test_server_measures_again_when_the_lake_advances_or_checks_ran(tmp_path: Path, measured: list[int]) -> None:
    log = tmp_path / "log"
    shutil.copytree(metadata_dir(KAFKA), log)
    segments = sorted(log.glob("*/*.log"))
    later = {segment: segment.read_bytes() for segment in segments[1:]}
    for segment in later:
        segment.unlink()
    replay(log, tmp_path / "lake")
    with served(tmp_path / "lake", log) as (url, notices):
        first = scraped(url)
        assert scraped(url)["jbod_lake_end_offset"] == first["jbod_lake_end_offset"]
        assert len(measured) == 1
        for segment, content in later.items():
            segment.write_bytes(content)
        behind_now = scraped(url)
        assert behind_now["jbod_log_unread_records"] == 630 - first["jbod_lake_end_offset"] > 0
        assert len(measured) == 1
        replay(log, tmp_path / "lake")
        assert scraped(url)["jbod_lake_end_offset"] == 630
        assert scraped(url)["jbod_log_unread_records"] == 0
        assert "jbod_findings_offset" not in scraped(url)
        opened = Lake.open(tmp_path / "lake")
        record(opened, CHECKS, run_checks(opened))
        assert scraped(url)["jbod_findings_offset"] == 629
        assert len(measured) == 3
        assert notices == []


def test_scrapes_at_once_share_one_measurement(lake: Path, measured: list[int]) -> None:
    answers: list[dict[str, float]] = []
    with served(lake) as (url, _):
        threads = [threading.Thread(target=lambda: answers.append(scraped(url))) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [answer["jbod_lake_end_offset"] for answer in answers] == [201] * 12
    assert measured == [200]


def test_lake_that_vanishes_is_a_metric_and_one_line(lake: Path, tmp_path: Path) -> None:
    path = tmp_path / "lake"
    with served(path) as (url, notices):
        assert scraped(url) == {"jbod_lake_readable": 0}
        assert scraped(url) == {"jbod_lake_readable": 0}
        assert len(notices) == 1
        assert notices[0].startswith(f"the lake cannot be read: {path}: no lake there")
        shutil.copytree(lake, path)
        assert scraped(url)["jbod_lake_readable"] == 1
        assert notices[1:] == ["the lake can be read again"]
        for file in path.glob("ledger/_delta_log/*.json"):
            file.write_bytes(b"\0not a log")
        assert scraped(url) == {"jbod_lake_readable": 0}
        assert len(notices) == 3
        assert "\n" not in notices[2]


def test_log_that_cannot_be_read_is_a_metric_and_one_line(lake: Path, tmp_path: Path) -> None:
    with served(lake, tmp_path / "nowhere") as (url, notices):
        for _ in range(2):
            samples = scraped(url)
            assert (samples["jbod_lake_readable"], samples["jbod_log_readable"]) == (1, 0)
            assert "jbod_log_end_offset" not in samples
        assert len(notices) == 1
        assert notices[0].startswith(f"the log cannot be read: {tmp_path / 'nowhere'} is not a directory")


def test_clients_that_say_nothing_or_go_away_hinder_no_scrape(lake: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with served(lake) as (url, _):
        port = int(url.split(":")[2].split("/")[0])
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        rude = socket.create_connection(("127.0.0.1", port))
        rude.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        rude.close()
        assert scraped(url)["jbod_lake_readable"] == 1
        for connection in silent:
            connection.close()
    assert capfd.readouterr().err == ""


def test_address_may_be_of_ip_version_6(lake: Path) -> None:
    if not socket.has_dualstack_ipv6():
        return
    listener = MetricsServer("[::1]:0", Measured(str(lake), print))
    assert re.fullmatch(r"http://\[::1\]:\d+/metrics", listener.url)
    with pytest.raises(UsageError, match="not an address"):
        MetricsServer("::", Measured(str(lake), print))


# THE PROBE BESIDE THE METRICS


def probed(url: str, query: str) -> tuple[int, dict[str, Any]]:
    """Status and answer of the probe."""
    probe_url = f"{url.removesuffix('/metrics')}/safe-to-restart{query}"
    try:
        with urllib.request.urlopen(probe_url, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


def test_probe_answers_as_the_verdict_is(tmp_path: Path) -> None:
    story = Story()
    story.time = int(datetime.now(UTC).timestamp())
    story.broker(1, "a").broker(2, "b").broker(3, "c").topic("t", {1: "a", 2: "b"}, {1: "a"}).lake(tmp_path / "lake")
    with served(tmp_path / "lake") as (url, _):
        assert probed(url, "?broker=2&max_age=1d")[0] == 200
        assert probed(url, "?broker=2,3&kill=true&max_age=1d")[0] == 200
        status, answer = probed(url, "?broker=1&max_age=1d")
        assert (status, answer["verdict"], answer["blocking"][0]["reason"]) == (409, "not_safe", "one replica")
        assert probed(url, "?broker=9&max_age=1d")[0] == 503
        for wrong in ("", "?broker=x", "?broker=1&fast=1", "?broker=1&kill=maybe", "?broker=1&max_age=soon"):
            status, answer = probed(url, wrong)
            assert (status, [*answer]) == (400, ["error"])
        assert scraped(url)["jbod_lake_readable"] == 1
        shutil.rmtree(tmp_path / "lake")
        status, answer = probed(url, "?broker=2")
        assert (status, answer["verdict"]) == (503, "not_decidable")


def test_path_without_an_answer_is_not_found(lake: Path) -> None:
    """Cause: each had the metrics and the status 200, which a hook that asks at a wrong path took for "safe"."""
    with served(lake) as (url, _):
        root = url.removesuffix("/metrics")
        assert scraped(root)["jbod_lake_readable"] == 1
        for path in ("/safe-to-restart/?broker=1", "/safe_to_restart?broker=1", "/metrics/safe-to-restart?broker=1"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(root + path, timeout=60)


def test_probe_trusts_no_old_lake(lake: Path) -> None:
    with served(lake) as (url, _):
        status, answer = probed(url, "?broker=1")
        assert (status, answer["verdict"]) == (503, "not_decidable")
        assert "older than" in answer["undecided"][0]
