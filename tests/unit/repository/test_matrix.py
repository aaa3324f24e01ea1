"""Every rule has code and a test, and a search for a word of the KIP finds its rules."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.docs.matrix import matrix
from tests.support import rules
from tests.support.paths import ROOT

# The names that KIP-858 introduces, changes or builds upon, draft pages included: whoever looks for one finds a rule.
KIP_WORDS = {
    "records": ("RegisterBrokerRecord", "BrokerRegistrationChangeRecord", "PartitionRecord", "PartitionChangeRecord"),
    "fields": (
        "LogDirs",
        "OfflineLogDirs",
        "Directories",
        "partitionRecord.Directories",
        "brokerRegistration.LogDirs",
        "BrokerId",
        "BrokerEpoch",
        "TopicId",
        "PartitionIndex",
        "ErrorCode",
        "ThrottleTimeMs",
    ),
    "fields of the drafts": ("OnlineLogDirs", "partitionRecord.Assignment.Directory", "TopicName"),
    "requests": (
        "BrokerRegistrationRequest",
        "BrokerHeartbeatRequest",
        "AssignReplicasToDirs",
        "AssignReplicasToDirsRequest",
        "AssignReplicasToDirsResponse",
        "AlterReplicaLogDirs",
        "CLUSTER_ACTION",
    ),
    "errors": ("INVALID_REQUEST", "LOG_DIR_NOT_FOUND"),
    "metrics": (
        "QueuedReplicaToDirAssignments",
        "kafka.server:type=KafkaServer,name=QueuedReplicaToDirAssignments",
        "NumMismatchingReplicaToLogDirAssignments",
    ),
    "configurations": (
        "log.dir.failure.timeout.ms",
        "log.dirs",
        "log.dir",
        "metadata.log.dir",
        "metadata.version",
        "node.id",
        "cluster.id",
    ),
    "files and tools": ("meta.properties", "directory.id", "kafka-storage.sh", "kafka-features.sh"),
    "reserved ids": ("UNASSIGNED_DIR", "LOST_DIR", "MIGRATING_DIR", "Uuid.ZERO", "UnknownDir", "OfflineDir"),
    "states and threads": ("FENCED", "UNFENCED", "ReplicaAlterLogDirsThread", "LogManager", "KIP-866", "KIP-113"),
}


def test_every_rule_has_code_and_a_test() -> None:
    code = rules.first_lines([*rules.model_files(), *rules.engine_files()])
    tests = rules.first_lines(rules.files_of_tests())
    stated = rules.stated_rules()
    assert [rule for rule in stated if rule not in code] == [], "no code cites them"
    assert [rule for rule in stated if rule not in tests] == [], "no test cites them"


def test_every_rule_has_a_test_that_runs_without_exhaustive() -> None:
    """A test that is marked runs at night only; of marked cases of a test, others run."""
    cited: set[str] = set()
    for path in rules.files_of_tests():
        text = path.read_text(encoding="utf-8")
        marked = {
            line
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
            and "pytest.mark.exhaustive" in map(ast.unparse, node.decorator_list)
            for line in range(node.lineno, (node.end_lineno or 0) + 1)
        }
        for number, line in enumerate(text.splitlines(), 1):
            if number not in marked:
                cited |= {*rules.RULE.findall(line)}
    assert rules.stated_rules().keys() - cited == set()


def test_cited_rules_are_stated() -> None:
    files = [*rules.model_files(), *rules.engine_files(), *rules.files_of_tests(), *rules.pages()]
    files += [path for path in (ROOT / "notebooks").rglob("*") if path.suffix in (".py", ".ipynb", ".md")]
    cited = rules.first_lines(files)
    assert {rule: cited[rule] for rule in cited.keys() - rules.stated_rules().keys() - rules.stated_invariants()} == {}


@pytest.mark.parametrize("tree", ["jbod_model", "pipelines", "lab", "tests", "docs"])
def test_ids_are_written_in_full(tree: str) -> None:
    files: list[Path] = [
        path for suffix in ("*.py", "*.md", "*.sql") for path in (ROOT / tree).rglob(suffix) if path != Path(__file__)
    ]
    short = {
        str(path.relative_to(ROOT)): ids
        for path in files
        if (ids := rules.ABBREVIATED.findall(path.read_text(encoding="utf-8")))
    }
    assert short == {}, "name each rule, so that a search for its id finds it"


@pytest.mark.parametrize("text", ["R-OFF-4 to 7", "R-MERGE-*", "R-OFF-4 and 5", "R-OFF-4, 5 and 6"])
def test_abbreviated_ids_are_recognised(text: str) -> None:
    assert rules.ABBREVIATED.search(text)
    assert not rules.ABBREVIATED.search("R-OFF-4 and R-OFF-5, R-OFF-6")


@pytest.mark.parametrize("word", [word for words in KIP_WORDS.values() for word in words])
def test_word_of_the_kip_is_in_the_row_of_a_rule(word: str) -> None:
    quoted = f"`{word}`"
    assert [rule.id for rule in rules.stated_rules().values() if quoted in rule.source], "no rule's source has it"
    assert quoted in matrix()
