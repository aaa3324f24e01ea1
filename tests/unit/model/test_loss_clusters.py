"""What is told of the real clusters. Each line has its reason in docs/losses.md (R-LOSS-4, R-LOSS-6, R-COPY-12)."""

from __future__ import annotations

from pathlib import Path

from tests.paths import ROOT

CLUSTERS = ROOT / "tests" / "fixtures" / "clusters"

Told = tuple[str, str, int, int | None, tuple[tuple[int, str, str | None], ...]]
"""Partition, kind, offset, where it went on, and of each last copy broker, directory and why it was given up."""

EXPECTED: dict[str, list[Told]] = {
    "kafka-4.1.2": [
        ("solo-0", "lost", 278, 290, ((2, "tVpK", "recreated"),)),
        ("solo-1", "lost", 487, 491, ((4, "jYd7", "recreated"),)),
        ("solo-1", "may lack writes", 424, 424, ((4, "jYd7", None),)),
        ("solo-2", "lost", 544, None, ((3, "DKzw", "unregistered"),)),
        ("solo-3", "lost", 487, 489, ((4, "jYd7", "recreated"),)),
        ("solo-3", "may lack writes", 422, 422, ((4, "jYd7", None),)),
        ("solo-5", "may lack writes", 423, 423, ((4, "UiSl", None),)),
        ("solo-6", "lost", 224, 231, ((1, "r60J", "recreated"),)),
        ("solo-7", "lost", 544, None, ((3, "DKzw", "unregistered"),)),
    ],
    "kafka-3.7.2": [
        ("solo-2", "lost", 533, None, ((3, "Cgxp", "unregistered"),)),
        ("solo-3", "lost", 477, None, ((4, "BRB_", "recreated"),)),
        ("solo-4", "lost", 533, None, ((3, "Cgxp", "unregistered"),)),
        ("solo-7", "lost", 282, 364, ((2, "lUhq", "recreated"),)),
    ],
    "kafka-3.9.2-upgrade": [],
    "kafka-3.9.2-zk-migration": [],
}


def _metadata(cluster: str) -> Path:
    return next(
        path.parent
        for path in sorted((CLUSTERS / cluster).rglob("__cluster_metadata-0"))
        if "controller" in str(path) or True
    )


def _told(cluster: str) -> list[Told]:
    names: dict[object, str] = {}
    told: list[Told] = []
    return told
