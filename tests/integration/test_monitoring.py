"""Rules and dashboard in Prometheus itself: what fires in the bundled incidents, and what a server scrapes."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
import yaml

from jbod_model.ids import KAFKA_IDS
from pipelines.ask.lake_status import status
from pipelines.check.catalogue import CHECKS, run_checks
from pipelines.check.findings import record
from pipelines.cli.upkeep import RULES
from pipelines.lake.reader import Lake
from pipelines.metrics.measure import behind
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.monitoring import ALERTS, RECORDINGS, dashboard
from tests.support.paths import CLUSTERS, EVERY_KAFKA, ROOT, metadata_dir
from tests.support.promtool import State, alerts_fire, program, promtool, series
from tests.support.volume import sampled

KAFKA = "kafka-4.1.2"
DISK_1, DISK_2 = "r60JqwAFn7gsit5hNSGjVw", "tVpKKovKXwQW6lj6leXrUQ"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("monitoring") / "lake"
    write_lake(path, read_log(metadata_dir(KAFKA)))
    return path


# THE INCIDENTS

WAITING = {"JbodReplicasUnassigned broker=2", "JbodPartitionsUnderReplicated"}
"""A replica of broker 2 has no directory yet, during the whole of the first incident."""
NO_WRITES = {"JbodPartitionsWithoutLeader", "JbodPartitionsUnderMinIsr", "JbodPartitionsUnderReplicated"}
UNAVAILABLE = NO_WRITES | {"JbodPartitionsAllOffline"}
DAMAGED = {"JbodDataLost", "JbodWritesMayBeLost"}
FAILED_1 = f"JbodDirectoryFailed broker=1 directory={DISK_1}"
FAILED_2 = f"JbodDirectoryFailed broker=2 directory={DISK_2}"


@pytest.mark.parametrize(
    ("incident", "states"),
    [
        (
            "1 and 2: a disk of broker 1 fails, then one of broker 2; the brokers restart without them",
            {
                110: set(),
                157: WAITING,
                165: {*WAITING, *UNAVAILABLE, FAILED_1},
                200: {*WAITING, *UNAVAILABLE, FAILED_1, FAILED_2},
                250: {*WAITING, *UNAVAILABLE, FAILED_2, "JbodDataLost"},
                340: {*NO_WRITES, "JbodDataLost"},
            },
        ),
        (
            "5 and 6: broker 4 is killed, and broker 3 restarted meanwhile",
            {
                340: {*NO_WRITES, "JbodDataLost"},
                362: {*UNAVAILABLE, "JbodDataLost", "JbodBrokerFenced"},
                470: {*NO_WRITES, *DAMAGED},
            },
        ),
        (
            "9 and 10: broker 3 is stopped and unregistered with replicas, then all are shut down",
            {
                536: {*NO_WRITES, *DAMAGED},
                543: {*UNAVAILABLE, *DAMAGED, "JbodBrokerFenced"},
                560: {*UNAVAILABLE, *DAMAGED, "JbodDataUnreachable", "JbodBrokerMissing"},
                629: {*UNAVAILABLE, *DAMAGED, "JbodDataUnreachable", "JbodBrokerFenced", "JbodBrokerMissing"},
            },
        ),
    ],
)
def test_incident_fires_its_alerts_and_no_other(
    lake: Path, tmp_path: Path, incident: str, states: dict[int, set[str]]
) -> None:
    cases = [(series(Lake.open(lake, offset)), wanted) for offset, wanted in states.items()]
    assert alerts_fire(cases, tmp_path) == "", incident


@pytest.mark.parametrize("kafka", sampled(EVERY_KAFKA, 2))
def test_alerts_of_every_cluster_are_those_that_kafkas_own_image_asks_for(tmp_path: Path, kafka: str) -> None:
    write_lake(tmp_path / "lake", read_log(metadata_dir(kafka)))
    with gzip.open(CLUSTERS / kafka / "images.jsonl.gz", "rt") as lines:
        images = [json.loads(line) for line in lines]
    changed = [
        after for after, before in zip(images, [None, *images], strict=False) if _asked_for(after) != _asked_for(before)
    ]
    assert len(changed) > 5
    states: list[State] = []
    for image in changed[:: len(changed) // 8 + 1]:
        at = Lake.open(tmp_path / "lake", image["offset"])
        states.append((series(at), _asked_for(image) | _data_alerts(at)))
    assert alerts_fire(states, tmp_path) == ""


def _asked_for(image: dict[str, Any] | None) -> set[str]:
    """The alerts about replicas, brokers and directories, by Kafka's image."""
    if image is None:
        return set()
    brokers = {broker["brokerId"]: broker for broker in image["brokers"]}
    wanted = set()
    if any(broker["fenced"] for broker in brokers.values()):
        wanted.add("JbodBrokerFenced")
    for partition in image["partitions"]:
        lost = set(partition["offlineReplicas"])
        wanted |= {"JbodPartitionsWithoutLeader"} if partition["leader"] == -1 else set()
        wanted |= {"JbodPartitionsLedFromOffline"} if partition["leader"] in lost else set()
        wanted |= {"JbodPartitionsAllOffline"} if lost >= set(partition["replicas"]) else set()
        wanted |= {"JbodPartitionsUnderReplicated"} if len(partition["isr"]) < len(partition["replicas"]) else set()
        for broker, directory in zip(partition["replicas"], partition["directories"], strict=True):
            if broker not in brokers:
                wanted.add("JbodBrokerMissing")
            elif directory == str(KAFKA_IDS.unassigned):
                wanted.add(f"JbodReplicasUnassigned broker={broker}")
            elif broker in lost and not brokers[broker]["fenced"]:
                wanted.add(f"JbodDirectoryFailed broker={broker} directory={directory}")
    return wanted


def _data_alerts(lake: Lake) -> set[str]:
    """The alerts about settings and history, which no image holds, by another answer."""
    counts = status(lake)
    alerts = {
        "JbodPartitionsUnderMinIsr": counts.partitions_under_min_isr,
        "JbodDataLost": counts.partitions_data_lost,
        "JbodDataUnreachable": counts.partitions_data_unreachable,
        "JbodWritesMayBeLost": counts.partitions_may_lack_writes,
    }
    return {name for name, count in alerts.items() if count}


# WHAT NO BUNDLED INCIDENT HAS


def test_every_other_alert_fires_alone_and_ends(lake: Path, tmp_path: Path) -> None:
    young = Lake.open(lake, 110)
    well = series(young, log=behind(str(metadata_dir(KAFKA)), young.published.end_offset))
    assert not _data_alerts(young)
    changes: dict[str, dict[str, float]] = {
        "JbodPartitionsLedFromOffline": {"jbod_partitions_led_from_offline{}": 1},
        "JbodReplicasInLostDirectory broker=3": {
            'jbod_offline_replicas{broker="3", directory="AAAAAAAAAAAAAAAAAAAAAg", reason="directory lost"}': 2
        },
        "JbodCriticalFindings check=B-17 name=offline-partition": {
            'jbod_findings{check="B-17", name="offline-partition", severity="critical"}': 3
        },
        "JbodLakeIncomplete": {"jbod_lake_incomplete{}": 1},
        "JbodLakeStale": {"jbod_lake_last_record_timestamp_seconds{}": -700},
        "JbodLakeStale ": {"jbod_lake_last_record_timestamp_seconds{}": 700},  # the clocks disagree
        "JbodQuorumSilent": {"jbod_quorum_silent_since_timestamp_seconds{}": -700},
        "JbodLakeBehind": {"jbod_log_unread_records{}": 10_001},
        "JbodLakeUnreadable": {"jbod_lake_readable{}": 0},
        "JbodLogUnreadable": {"jbod_log_readable{}": 0},
        "JbodMetricsStale": {"jbod_measured_timestamp_seconds{}": -1000},
    }
    states: list[State] = [(well, ())]
    for alert, change in changes.items():
        states += [(well | change, (alert,)), (well, ())]
    states.append(({}, ("JbodMetricsAbsent",)))
    assert alerts_fire(states, tmp_path) == ""
    fired = {alert.split()[0] for _, wanted in states for alert in wanted}
    in_incidents = {"JbodDirectoryFailed", "JbodBrokerFenced", "JbodBrokerMissing", "JbodReplicasUnassigned"}
    in_incidents |= UNAVAILABLE | {"JbodDataLost", "JbodDataUnreachable", "JbodWritesMayBeLost"}
    assert fired | in_incidents == {rule.name for rule in ALERTS}


def test_alerts_of_a_fleet_fire_by_cluster_and_say_which(lake: Path, tmp_path: Path) -> None:
    """As ``jbod fleet metrics``: the same series with the label ``cluster``."""
    at = {"orders": 200, "clicks": 110}
    fleet = {
        name.replace("{", f'{{cluster="{cluster}", ', 1).replace(", }", "}"): value
        for cluster, offset in at.items()
        for name, value in series(Lake.open(lake, offset)).items()
    }
    wanted = {f"{alert} cluster=orders" for alert in {*WAITING, *UNAVAILABLE, FAILED_1, FAILED_2}}
    assert alerts_fire([(fleet, wanted)], tmp_path) == ""
    test = yaml.safe_load((tmp_path / "test.yml").read_text())
    (case,) = test["tests"]
    del case["promql_expr_test"]
    labels = {"severity": "critical", "cluster": "orders"}
    (rule,) = (alert for alert in ALERTS if alert.name == "JbodPartitionsAllOffline")
    annotations = {"description": rule.description, "runbook": rule.runbook}
    count = fleet['jbod_partitions_all_offline{cluster="orders"}']
    annotations["summary"] = f"orders: all replicas of {count:.0f} partitions are offline"
    expected = {"exp_labels": labels, "exp_annotations": annotations}
    case["alert_rule_test"] = [{"eval_time": "18m", "alertname": rule.name, "exp_alerts": [expected]}]
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test, width=1 << 20))
    ran = promtool("test", "rules", tmp_path / "test.yml")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_findings_that_checks_kept_fire_by_check(tmp_path: Path) -> None:
    write_lake(tmp_path / "lake", [entry for entry in read_log(metadata_dir(KAFKA)) if entry.offset <= 200])
    lake = Lake.open(tmp_path / "lake")
    findings = run_checks(lake)
    record(lake, CHECKS, findings)
    wanted = {
        f"JbodCriticalFindings check={finding.check.id} name={finding.check.name}"
        for finding in findings
        if finding.severity == "critical"
    }
    assert wanted
    others = {*WAITING, *UNAVAILABLE, FAILED_1, FAILED_2}
    assert alerts_fire([(series(lake), wanted | others)], tmp_path) == ""


def test_alert_has_the_problem_and_the_advice(tmp_path: Path) -> None:
    copy(RULES, tmp_path / "rules.yml")
    failed = next(alert for alert in ALERTS if alert.name == "JbodDirectoryFailed")
    labels = {"broker": "1", "directory": DISK_1, "instance": "here"}
    expected = {
        "exp_labels": labels | {"severity": "warning"},
        "exp_annotations": {
            "summary": f"directory {DISK_1} of broker 1 is offline, with 7 replicas",
            "description": failed.description,
            "runbook": "docs/alerts.md#jboddirectoryfailed",
        },
    }
    selector = ", ".join(f"{key}={json.dumps(value)}" for key, value in labels.items())
    sample = {"series": f'jbod_offline_replicas{{{selector}, reason="directory offline"}}', "values": "7x10"}
    test = {
        "interval": "1m",
        "input_series": [sample],
        "alert_rule_test": [{"eval_time": "5m", "alertname": failed.name, "exp_alerts": [expected]}],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": [test]}))
    ran = promtool("test", "rules", tmp_path / "test.yml")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_promtool_finds_no_fault_with_rules_and_queries(tmp_path: Path) -> None:
    queries = [{"record": f"panel:query:{number}", "expr": expr} for number, expr in enumerate(panel_queries())]
    assert len(queries) > 30
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": queries}]}))
    copy(RULES, tmp_path / "rules.yml")
    ran = promtool("check", "rules", "--lint=all", "--lint-fatal", tmp_path / "rules.yml", tmp_path / "panels.yml")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def panel_queries() -> list[str]:
    """Every query of the dashboard, of all instances and clusters: a lake alone has no label ``cluster``."""
    return [
        target["expr"].replace("$instance", ".+").replace("$cluster", ".*")
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    ]


# A REAL PROMETHEUS


def test_prometheus_scrapes_what_jbod_serves(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    write_lake(lake, [entry for entry in read_log(metadata_dir(KAFKA)) if entry.offset <= 250])
    with served(lake, "--log", metadata_dir(KAFKA)) as (target, server), prometheus(tmp_path, target) as api:
        until(lambda: values(api, "up") == {1.0} and bool(values(api, "jbod_replicas")))
        counts = status(Lake.open(lake))
        assert values(api, "jbod_partitions") == {counts.partitions}
        assert values(api, "sum(jbod_offline_replicas)") == {counts.offline_replicas}
        assert values(api, "jbod_log_unread_records") == {629 - 250}
        until(lambda: values(api, "instance:jbod_offline_replicas:sum") == {counts.offline_replicas})
        until(lambda: values(api, "ALERTS{alertname='JbodDataLost', alertstate='firing'}") == {1.0})
        rules = [rule for group in ask(api, "rules")["groups"] for rule in group["rules"]]
        assert {rule["health"] for rule in rules} == {"ok"}
        assert len(rules) == len(ALERTS) + len(RECORDINGS)
        absent = {"jbod_lake_unknown_records_offset", "jbod_findings", "jbod_quorum_unread_records"}
        for expr in panel_queries():
            if not any(name in expr for name in absent):
                until(partial(values, api, expr))  # on a busy machine a scrape is late, and a series gone until then
        (lake / "ledger").rename(lake / "hidden")
        try:
            until(lambda: values(api, "jbod_lake_readable") == {0.0} and values(api, "up") == {1.0})
            assert not values(api, "jbod_partitions")
        finally:
            (lake / "hidden").rename(lake / "ledger")
        until(lambda: values(api, "jbod_partitions") == {counts.partitions})
        server.send_signal(signal.SIGTERM)
        _, output = server.communicate(timeout=60)
        assert server.returncode == 0
        lines = output.splitlines()
        assert len(set(lines)) == len(lines)
        # A scrape at the moment of the renaming may see another problem than the next one: each is reported.
        assert [words for words, _ in groupby(line.split(": ")[:2] for line in lines)] == [
            ["jbod", "the lake cannot be read"],
            ["jbod", "the lake can be read again"],
        ]


def test_ctrl_c_ends_the_server_cleanly(lake: Path) -> None:
    with served(lake) as (target, server):
        with urllib.request.urlopen(f"http://{target}/metrics", timeout=60) as answer:
            assert b"jbod_lake_readable 1.0" in answer.read()
        server.send_signal(signal.SIGINT)
        assert server.communicate(timeout=60)[1] == ""
        assert server.returncode == 0


@contextmanager
def served(lake: Path, *options: str | Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """``jbod metrics --listen`` on a free port: its address, and the process."""
    words = ["metrics", "--listen", "127.0.0.1:0", "--lake", str(lake), *map(str, options)]
    code = "from pipelines import cli; cli.run()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], cwd=ROOT, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as server:
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            match = re.search(r"at http://(\S+)/metrics$", line)
            assert match, line
            yield match[1], server
        finally:
            server.kill()


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """A Prometheus that scrapes ``target`` four times a second: the address of its API."""
    copy(RULES, folder / "rules.yml")
    config = {
        "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms", "evaluation_interval": "250ms"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [{"job_name": "jbod", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    words = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:0"]
    with subprocess.Popen(
        [program("prometheus"), *words, "--log.level=info"], cwd=folder, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            address = next(
                match[1] for line in server.stderr if (match := re.search(r'"Listening on" address=(\S+)', line))
            )
            yield f"http://{address}/api/v1"
        finally:
            server.kill()


def ask(api: str, path: str, **parameters: str) -> Any:
    """The data of an answer of Prometheus' API."""
    with urllib.request.urlopen(f"{api}/{path}?{urllib.parse.urlencode(parameters)}", timeout=60) as answer:
        document = json.load(answer)
    assert document["status"] == "success"
    return document["data"]


def values(api: str, expr: str) -> set[float]:
    """The values of a query."""
    try:
        return {float(sample["value"][1]) for sample in ask(api, "query", query=expr)["result"]}
    except urllib.error.HTTPError as problem:
        if problem.code == 503:  # still starting
            return set()
        raise


def until(holds: Any, seconds: float = 60) -> None:
    """Waits."""
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit, f"Prometheus did not get there: {holds}"
        time.sleep(0.1)
