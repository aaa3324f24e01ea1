"""Where the fixtures lie."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
CLUSTERS = FIXTURES / "clusters"
NEWER = FIXTURES / "newer"
TRACES = FIXTURES / "traces"
GOLDEN = FIXTURES / "golden"

KAFKAS = tuple(sorted(path.name for path in CLUSTERS.iterdir()))
"""The bundled clusters: ``kafka-4.1.2`` and so on."""


def metadata_dir(kafka: str, node: str = "controller-100") -> Path:
    """A node's ``metadata.log.dir``, for instance ``metadata_dir("kafka-4.1.2", "broker-3")``."""
    return CLUSTERS / kafka / "metadata" / node


def nodes(kafka: str) -> tuple[str, ...]:
    """The nodes of a cluster whose metadata directory was kept."""
    return tuple(sorted(path.name for path in (CLUSTERS / kafka / "metadata").iterdir()))
