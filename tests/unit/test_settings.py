"""Settings: one line that names the place and the key for every bad value."""

from __future__ import annotations

import os
import re
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from jbod_model.errors import UsageError
from pipelines.settings import Settings, load, read_yaml, settings_in_force
from tests.support.paths import ROOT


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_settings_without_any_file_equal_the_shipped_default_file() -> None:
    shipped = yaml.safe_load((ROOT / "conf" / "jbod.yaml").read_text())
    assert asdict(load()) == shipped == asdict(Settings())


@pytest.mark.parametrize("file", sorted(ROOT.glob("conf/*.yaml")), ids=lambda file: file.name)
def test_settings_every_shipped_file_loads(file: Path) -> None:
    load([file])


def test_settings_later_sources_win(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "first.yaml").write_text("replay: {max_records: 2, tail: stop, follow_seconds: 9}\nlake: a\n")
    (tmp_path / "more.yaml").write_text("replay: {max_records: 3, follow_seconds: 8}\n")
    monkeypatch.setenv("JBOD_REPLAY__MAX_RECORDS", "4")
    settings = load(["first.yaml", "more.yaml"], lake=None, replay={"load_bytes": 7, "profile": None})
    assert (settings.lake, settings.replay.max_records, settings.replay.tail) == ("a", 4, "stop")
    assert (settings.replay.follow_seconds, settings.replay.load_bytes, settings.replay.profile) == (8, 7, "kafka")


def test_settings_files_later_ones_win(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = tmp_path / "machine.yaml"
    machine.write_text("lake: machine\nask: {min_insync_replicas: 2}\nreplay: {max_records: 1}\n")
    monkeypatch.setattr("pipelines.settings.MACHINE_FILE", machine)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "jbod").mkdir(parents=True)
    (tmp_path / "config" / "jbod" / "jbod.yaml").write_text("lake: user\nreplay: {max_records: 2}\n")
    (tmp_path / "named.yaml").write_text("lake: here\n")
    monkeypatch.setenv("JBOD_CONF", "named.yaml")
    monkeypatch.setenv("JBOD_CHECK__FLAPS", "7")
    changed = {
        setting.name: (setting.value, Path(setting.source).name)
        for setting in settings_in_force()
        if not setting.is_default
    }
    assert changed == {
        "lake": ("here", "named.yaml"),
        "replay.max_records": (2, "jbod.yaml"),
        "ask.min_insync_replicas": (2, "machine.yaml"),
        "check.flaps": (7, "JBOD_CHECK__FLAPS"),
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("replay: {max_records: many}", "bad.yaml: replay.max_records: 'many' is invalid: input should be a valid int"),
        ("replay: {max_records: 0}", "bad.yaml: replay.max_records: 0 is invalid: input should be greater than or"),
        ("replay: {profil: kafka}", "bad.yaml: replay.profil: no such setting; did you mean profile?"),
        (
            "replay: {profile: drafts}",
            "bad.yaml: replay.profile: 'drafts' is invalid: input should be 'kafka' or 'kip858'",
        ),
        ("spark: 7", "bad.yaml: spark: 7 is invalid"),
        ("labels: {sources: [a, 5]}", "bad.yaml: labels.sources.1: 5 is invalid"),
        (
            "spark: {fast_start: [home, 5]}",
            "bad.yaml: spark.fast_start: ['home', 5] is invalid: input should be true, false or a list of plain, "
            "process, home, archive, workers, jvm",
        ),
        (
            "spark: {fast_start: some}",
            "bad.yaml: spark.fast_start: 'some' is invalid: input should be true, false or a list of plain, "
            "process, home, archive, workers, jvm",
        ),
        ('lake: "a\\0b"', r"bad.yaml: lake: 'a\x00b' is invalid: string should match"),  # was a traceback
        ('lake: ""', "bad.yaml: lake: '' is invalid: string should match"),  # was the current directory
        ('labels: {sources: ["a\\0b"]}', r"bad.yaml: labels.sources.0: 'a\x00b' is invalid"),
        ("lake: [", "bad.yaml: line 1: not valid YAML"),
        pytest.param("[" * 20_000, "bad.yaml: settings are nested too deeply", id="deep"),  # was a traceback
        ("lake: 2026-02-30", "bad.yaml: not valid YAML: day is out of range for month"),
        (f"replay: {{load_bytes: {'9' * 5000}}}", "bad.yaml: not valid YAML: Exceeds the limit"),
        ('lake: !!timestamp "x"', "bad.yaml: not valid YAML: "),
        ("- lake", "bad.yaml: settings are a mapping of names to values, not a list"),
    ],
)
def test_settings_bad_file_names_file_and_key_in_one_line(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(UsageError) as problem:
        load(["bad.yaml"])
    assert str(problem.value).startswith(line)
    assert "\n" not in str(problem.value)


def test_settings_bad_variable_and_option_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"^options: replay\.max_records: -1 is invalid"):
        load(replay={"max_records": -1})
    monkeypatch.setenv("JBOD_CHECK__FLAPS", "x")
    with pytest.raises(UsageError, match=r"^JBOD_CHECK__FLAPS: check\.flaps: 'x' is invalid"):
        load()


def test_settings_missing_file_is_named() -> None:
    with pytest.raises(UsageError, match=r"^nowhere\.yaml: cannot read the settings: No such file"):
        load(["nowhere.yaml"])


def test_settings_files_of_the_environment_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("lake: one\n")
    (tmp_path / "two.yaml").write_text("ask: {min_insync_replicas: 2}\n")
    monkeypatch.setenv("JBOD_CONF", f"one.yaml{os.pathsep}two.yaml")
    assert (load().lake, load().ask.min_insync_replicas) == ("one", 2)
    assert load([]).lake == "lake"


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("JBOD_REPLAY__MAXRECORDS", "did you mean max_records?"),
        ("JBOD_LAK", "did you mean lake?"),
        ("JBOD_LAKE__PATH", "lake is a single value"),
    ],
)
def test_settings_variable_that_sets_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, hint: str
) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(UsageError, match=f"^{variable}: no such setting; {re.escape(hint)}$"):
        load()


@pytest.mark.parametrize(
    ("master", "good"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2, 3]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://host:7077", True),
        ("k8s://https://host:443", True),
        ("yarn", True),
        ("local[x", False),
        ("local[0]", False),
        ("host:7077", False),
        ("", False),
    ],
)
def test_master_that_spark_would_not_take_is_refused_before_it_starts(master: str, good: bool) -> None:
    if good:
        assert load(spark={"master": master}).spark.master == master
    else:
        with pytest.raises(UsageError, match=r"spark\.master"):
            load(spark={"master": master})


@pytest.mark.parametrize(
    ("variables", "expected_settings"),
    [
        ({"JBOD_LABELS__SOURCES": '["a", "b"]'}, {"labels.sources": ["a", "b"]}),
        ({"JBOD_SPARK__CONF": '{"a": "b"}', "JBOD_SPARK__MASTER": "local"}, {"spark.conf.a": "b"}),
        (
            {"JBOD_REPLAY": '{"tail": "stop", "max_records": 2}', "JBOD_REPLAY__MAX_RECORDS": "3"},
            {"replay.tail": "stop"},
        ),
        ({"JBOD_LAKE": "[1]"}, {"lake": "[1]"}),
        ({"JBOD_SPARK__CONF": '{"spark.sql.shuffle.partitions": 8}'}, {"spark.conf.spark.sql.shuffle.partitions": "8"}),
    ],
    ids=["a list", "a mapping", "a section, of which one setting has its own variable", "a text", "a number"],
)
def test_settings_variables_of_lists_and_sections_are_json(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected_settings: dict[str, object]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    inside = {setting.name: setting.value for setting in settings_in_force()}
    assert expected_settings.items() <= inside.items()
    assert "JBOD_REPLAY" not in variables or inside["replay.max_records"] == 3


def test_settings_variable_with_broken_json_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JBOD_LABELS__SOURCES", "[a")
    with pytest.raises(UsageError, match=r"^JBOD_LABELS__SOURCES: labels\.sources: '\[a' is invalid"):
        load()
    monkeypatch.setenv("JBOD_LABELS__SOURCES", "[" * 20_000)  # was a traceback
    with pytest.raises(UsageError, match=r"^JBOD_LABELS__SOURCES: labels\.sources: '\[\["):
        load()


def test_source_of_a_spark_setting_is_the_variable_or_the_file_that_has_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Names of Spark's settings have dots."""
    file = tmp_path / "jbod.yaml"
    file.write_text("spark: {conf: {spark.ui.enabled: 'true'}}")
    monkeypatch.setenv("JBOD_CONF", str(file))
    monkeypatch.setenv("JBOD_SPARK", '{"conf": {"spark.speculation": "true"}, "driver_memory": "2g"}')
    sources = {setting.name: setting.source for setting in settings_in_force() if not setting.is_default}
    assert sources["spark.conf.spark.ui.enabled"] == str(file)
    assert sources["spark.conf.spark.speculation"] == sources["spark.driver_memory"] == "JBOD_SPARK"


def test_key_that_is_there_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    """PyYAML keeps the last one: of two lists of clusters the first was never replayed."""
    file = tmp_path / "fleet.yaml"
    file.write_text("clusters:\n- {name: a}\nclusters:\n- {name: b}\n")
    with pytest.raises(UsageError, match=r"fleet\.yaml: line 3: not valid YAML: clusters is there twice"):
        read_yaml(file)
    file.write_text("clusters:\n- {name: a, log: x, log: y}\n")
    with pytest.raises(UsageError, match="log is there twice"):
        read_yaml(file)
