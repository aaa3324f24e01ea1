"""The paths of the fixtures."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
CLUSTERS = FIXTURES / "clusters"
NEWER = FIXTURES / "newer"
TRACES = FIXTURES / "traces"
GOLDEN = FIXTURES / "golden"

QUORUMS = ("kafka-4.4.0",)
"""Bundled clusters with several controllers, each with a request log of its own; one of them leads to the end."""

KAFKAS = tuple(sorted({path.name for path in CLUSTERS.iterdir()} - set(QUORUMS)))
"""The bundled clusters with one controller: ``kafka-4.1.2`` and so on."""

EVERY_KAFKA = (*KAFKAS, *QUORUMS)


def metadata_dir(kafka: str, node: str | None = None) -> Path:
    """The ``metadata.log.dir`` of a node, for instance ``metadata_dir("kafka-4.1.2", "broker-3")``; the leader's unless
    one is named."""
    return CLUSTERS / kafka / "metadata" / (node or ("controller-101" if kafka in QUORUMS else "controller-100"))


def nodes(kafka: str) -> tuple[str, ...]:
    """The nodes of a cluster whose metadata directory was kept."""
    return tuple(sorted(path.name for path in (CLUSTERS / kafka / "metadata").iterdir()))
