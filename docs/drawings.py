"""Draws docs/assets/*.svg: which rank computes which node in which snapshot, for each way of parallelising.

`python docs/drawings.py` writes them again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

NODES, SNAPSHOTS, CELL = 8, 8, 22
COLOURS = {"0": "#0072B2", "1": "#D55E00", "": "#e6e9ed"}
Panel = tuple[
    str, Callable[[int, int], str]
]  # a title, and a cell's rank by node and snapshot: "0", "1c" (a copy) or ""


def upper(node: int) -> str:
    """Return the rank that owns a node: half of the nodes each."""
    return "0" if node < NODES // 2 else "1"


def near(node: int) -> bool:
    """Whether a node has neighbours on the other rank: those at the border, here."""
    return node in (NODES // 2 - 1, NODES // 2)


def decayed(node: int, snapshot: int) -> str:
    """Return a window of six snapshots: two in full, then ever fewer nodes of each part."""
    age = SNAPSHOTS - 1 - snapshot
    kept = {0: 4, 1: 4, 2: 3, 3: 2, 4: 1, 5: 1}.get(age, 0)
    return upper(node) if node % 4 < kept else ""


def cached(node: int, snapshot: int) -> str:
    """Own nodes, and the hot ones of the other rank in the cache of rank 0 for a window of steps."""
    return "0" if node < 4 else "0c" if node == (4 if snapshot < 4 else 6) else "1"


DRAWINGS: dict[str, list[Panel]] = {
    "snapshot_groups": [("a rank computes groups of snapshots", lambda node, snapshot: str(snapshot // 2 % 2))],
    "snapshot_blocks": [
        ("GNN: a rank holds snapshots of each block", lambda node, snapshot: str(snapshot % 4 // 2)),
        ("RNN: after an all-to-all, it holds nodes", lambda node, snapshot: upper(node)),
    ],
    "node_partitions": [
        ("a rank owns nodes and receives neighbours", lambda node, snapshot: upper(node) + ("c" if near(node) else ""))
    ],
    "hybrid_batches": [
        (
            "a step: some nodes in some snapshots",
            lambda node, snapshot: upper(node) if snapshot in (3, 4, 5) and node in (1, 2, 5, 6) else "",
        )
    ],
    "decayed_windows": [("a step: recent snapshots in full, older ones decayed", decayed)],
    "feature_cache": [("rank 0 caches the features that its next steps read most often", cached)],
}


def svg(panels: list[Panel]) -> str:
    """Return the panels beside each other: nodes from top to bottom, snapshots from left to right."""
    width, parts = SNAPSHOTS * CELL, []
    for number, (title, rank) in enumerate(panels):
        left = 70 + number * (width + 150)
        parts.append(f'<text x="{left}" y="16">{title}</text>')
        parts.append(f'<text x="{left}" y="{NODES * CELL + 46}">snapshots, oldest first</text>')
        parts.append(f'<text x="{left - 50}" y="{28 + NODES * CELL / 2}">nodes</text>')
        for node in range(NODES):
            for snapshot in range(SNAPSHOTS):
                mark = rank(node, snapshot)
                place = f'x="{left + snapshot * CELL}" y="{26 + node * CELL}" width="{CELL - 2}" height="{CELL - 2}"'
                parts.append(f'<rect {place} rx="3" fill="{COLOURS[mark[:1]]}"/>')
                if mark.endswith("c"):
                    centre = f'cx="{left + (snapshot + 0.5) * CELL - 1}" cy="{26 + (node + 0.5) * CELL - 1}"'
                    parts.append(f'<circle {centre} r="5" fill="white"/>')
    legend = [("0", "rank 0"), ("1", "rank 1"), ("", "not in this step")]
    for number, (mark, label) in enumerate(legend):
        left, top = 70 + number * 110, NODES * CELL + 58
        parts.append(f'<rect x="{left}" y="{top}" width="14" height="14" rx="2" fill="{COLOURS[mark]}"/>')
        parts.append(f'<text x="{left + 20}" y="{top + 12}">{label}</text>')
    left = 70 + 3 * 110 + 30
    parts.append(f'<circle cx="{left}" cy="{NODES * CELL + 65}" r="7" fill="#0072B2"/>')
    parts.append(f'<circle cx="{left}" cy="{NODES * CELL + 65}" r="4" fill="white"/>')
    parts.append(f'<text x="{left + 14}" y="{NODES * CELL + 70}">row sent to another rank</text>')
    whole = max(70 + len(panels) * (width + 150), 620)
    style = "<style>text{font:12px Helvetica,Arial,sans-serif;fill:#57606a}</style>"
    size = f'viewBox="0 0 {whole} {NODES * CELL + 84}" width="{whole}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}{"".join(parts)}</svg>\n'


# An exchange that overlaps with computing, on two GPUs: a bar is (start, end, label, colour) in milliseconds.
COMPUTE, WAIT, MOVE = "#0072B2", "#E69F00", "#009E73"
QUEUES = [
    (
        "rank 0, computes",
        [
            (0, 50, "compute", COMPUTE),
            (50, 80, "wait", WAIT),
            (80, 110, "communicate", MOVE),
            (110, 150, "compute", COMPUTE),
        ],
    ),
    ("rank 0, exchanges", [(30, 80, "headers", "#56B4E9"), (80, 110, "rows", "#56B4E9")]),
    ("rank 1, exchanges", [(80, 80.8, "", "#56B4E9"), (80, 110, "rows", "#56B4E9")]),
    ("rank 1, computes", [(0, 88, "compute", COMPUTE), (88, 110, "communicate", MOVE), (110, 150, "compute", COMPUTE)]),
]
STAMPS = [(30, "began"), (50, "begins to wait"), (80, "last rank began"), (110, "ended")]
MS, ROW = 5.2, 34


def queues_svg() -> str:
    """Return the queues of two GPUs below each other, with the stamps that the clock reads."""
    left, top, parts = 140, 30, []
    for row, (name, bars) in enumerate(QUEUES):
        parts.append(f'<text x="{left - 10}" y="{top + row * ROW + 17}" text-anchor="end">{name}</text>')
        for start, end, label, colour in bars:
            place = (
                f'x="{left + start * MS}" y="{top + row * ROW}" width="{(end - start) * MS - 1.5}" height="{ROW - 9}"'
            )
            parts.append(f'<rect {place} rx="3" fill="{colour}"/>')
            middle = left + (start + end) / 2 * MS
            parts.append(
                f'<text class="in" x="{middle}" y="{top + row * ROW + 17}" text-anchor="middle">{label}</text>'
            )
    bottom = top + len(QUEUES) * ROW
    for ms, label in STAMPS:
        x = left + ms * MS
        parts.append(f'<line x1="{x}" x2="{x}" y1="{top - 6}" y2="{bottom}" stroke="#57606a" stroke-dasharray="3 3"/>')
        parts.append(f'<text x="{x}" y="{top - 12}" text-anchor="middle">{label}</text>')
    parts.append(f'<text x="{left}" y="{bottom + 16}">0 ms</text>')
    parts.append(f'<text x="{left + 150 * MS}" y="{bottom + 16}" text-anchor="end">150 ms</text>')
    style = "<style>text{font:12px Helvetica,Arial,sans-serif;fill:#57606a}.in{fill:white}</style>"
    size = f'viewBox="0 0 {left + 160 * MS:.0f} {bottom + 24}" width="{left + 160 * MS:.0f}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}{"".join(parts)}</svg>\n'


if __name__ == "__main__":
    folder = Path(__file__).parent / "assets"
    for name, panels in DRAWINGS.items():
        (folder / f"{name}.svg").write_text(svg(panels), encoding="utf-8")
    (folder / "phases.svg").write_text(queues_svg(), encoding="utf-8")
