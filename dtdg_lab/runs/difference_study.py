"""``lab.compare_transfers``: what bringing graphs costs, whole and as differences, by model and format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.graphs.difference import encode
from dtdg_lab.graphs.difference_sizes import SequenceChanges, benefiting_share, own_ranges, sequence_changes
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.model_smoothing import averaged, lived
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.transfer_formats import FORMATS, TransferFormat
from dtdg_lab.views.difference import difference_figure
from dtdg_lab.views.layout import Figure

if TYPE_CHECKING:
    import pandas as pd

BLOCKS, RANKS = (1, 2, 4, 8), (1, 2, 4, 8, 16)
MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "model": "whose smoothing the snapshots have",
        "smoothing": "what it does to them",
        "form": "csr32: offsets and sources in int32; coo64: the paper's pairs in int64, always with values",
        "snapshots": "T",
        "edges": "of all T snapshots, smoothed",
        "overlap": "share of the edges of all snapshots but the first that the one before has too",
        "whole_bytes": "of all snapshots, each whole",
        "difference_bytes": "of the first whole and the others as differences, as encoded",
        "ratio": "whole_bytes over difference_bytes",
        "bound": "the ratio where values and the edges that leave and arrive are sent, and nothing else",
        "reached": "ratio over bound",
        "whole_s": "seconds until all are usable, each brought whole",
        "difference_s": "the same, as differences",
        "difference_copy_s": "of these, copying",
        "difference_unpack_s": "of these, making snapshots of the differences",
        "time_ratio": "whole_s over difference_s: above 1, differences are the faster",
        "worth_below": "bytes a second: over anything slower, differences are the faster with this unpacking; missing "
        "where they save no bytes, or take no longer to unpack",
    }
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TransferStudy:
    """What bringing a graph costs, whole and as differences.

    Attributes:
        rows: one for each model and format, as ``MEANINGS`` says; times are None where none were taken.
        shares: one for each model, format, number of blocks and of ranks: ``share`` of the snapshots that have another
            one before them in their block and on their rank, and with it ``whole_bytes``, ``difference_bytes`` and
            ``ratio`` of all blocks, once.
        told: what was compared, in words.
    """

    rows: tuple[dict[str, Any], ...]
    shares: tuple[dict[str, Any], ...]
    told: str

    @property
    def figure(self) -> Figure:
        """Bytes and times, what the overlap allows, and what is left of it on ranks, as a plotly figure dict."""
        return difference_figure(self.rows, self.shares, title=self.told)

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a frame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    def __repr__(self) -> str:
        head = f"{'model':11} {'form':6} {'overlap':>8} {'whole':>11} {'difference':>11} {'ratio':>7} {'bound':>7}"
        lines = [self.told, f"{head} {'whole time':>11} {'difference':>11} {'ratio':>7}"]
        for row in self.rows:
            sizes = f"{format_bytes(row['whole_bytes']):>11} {format_bytes(row['difference_bytes']):>11}"
            text = f"{row['model']:11} {row['form']:6} {row['overlap']:>8.1%} {sizes} "
            text += f"{row['ratio']:>7.2f} {row['bound']:>7.2f}"
            if row["time_ratio"] is not None:
                times = f"{format_seconds(row['whole_s']):>11} {format_seconds(row['difference_s']):>11}"
                text += f" {times} {row['time_ratio']:>7.2f}"
            lines.append(text)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The table with what its columns mean; ``lab.plot(study.figure)`` draws it."""
        said = "".join(f"<li><b>{name}</b>: {words}</li>" for name, words in MEANINGS.items())
        table = self.to_pandas().to_html(na_rep="", index=False, float_format=lambda value: f"{value:.4g}")
        return f"<p>{self.told}</p>{table}<ul style='font-size:90%'>{said}</ul>"


def compare_transfers(
    graph: DynamicGraph,
    *,
    edge_life: int = 5,
    smoothing_window: int = 5,
    forms: Sequence[str] = tuple(FORMATS),
    blocks: Sequence[int] | None = None,
    ranks: Sequence[int] | None = None,
    repeats: int = 5,
    device: str = "cpu",
) -> TransferStudy:
    """Bytes and seconds of bringing a graph's snapshots, each whole or as differences from the one before.

    The snapshots are smoothed as models ask for: CD-GCN takes them as they are, EvolveGCN sums the last ``edge_life``,
    TM-GCN averages the last ``smoothing_window``. Both make neighbours overlap more.

    Args:
        graph: T snapshots, not smoothed yet (``edge_life=1``, ``smoothing_window=1``).
        edge_life: of EvolveGCN, in snapshots.
        smoothing_window: of TM-GCN, in snapshots.
        forms: ``csr32``, ours, and ``coo64``, the paper's.
        blocks: numbers of blocks of time; 1, 2, 4 and 8 where not given, as far as there are snapshots.
        ranks: numbers of ranks; 1 to 16 where not given, as far as there are vertices.
        repeats: times each transfer is timed; 0 takes no times.
        device: where the snapshots arrive.

    Raises:
        ConfigError: a number makes no sense.
        UnknownNameError: there is no such format.
        PlanError: there are more blocks than snapshots, or more ranks than vertices.
        DataError: the snapshots cannot be encoded.

    References: ESDG sections 3.2 (differences), 5.4 (smoothing), 6.2 and Figure 4.
    """
    _check(forms, edge_life=(edge_life, 1), smoothing_window=(smoothing_window, 1), repeats=(repeats, 0))
    plans = _plans(graph, blocks, ranks)
    rows: list[dict[str, Any]] = []
    shares: list[dict[str, Any]] = []
    smoothings = {
        "cdgcn": ("none", lambda: iter(graph.snapshots)),
        "evolvegcn": (f"edge life {edge_life}", lambda: lived(graph.snapshots, edge_life)),
        "tmgcn": (f"mean of {smoothing_window}", lambda: averaged(graph.snapshots, smoothing_window)),
    }
    for model, (smoothing, smooth) in smoothings.items():
        smoothed = list(smooth())
        changes = sequence_changes(smoothed)
        for form in (FORMATS[name] for name in forms):
            of = {"model": model, "smoothing": smoothing, "form": form.name}
            sizes = _row(smoothed, changes, form)
            saved = sizes["whole_bytes"] - sizes["difference_bytes"]
            rows.append(of | sizes | _times(smoothed, form, repeats=repeats, device=device, saved_bytes=saved))
            shares += [of | _share(changes, form, plan) for plan in plans]
    alive = f"; its edges live {graph.edge_life} base intervals already" if graph.edge_life > 1 else ""
    size = f"{graph.num_snapshots:,} snapshots of {graph.num_nodes:,} vertices"
    told = f"Bringing {graph.name}: {size} to {device}{alive}"
    return TransferStudy(tuple(rows), tuple(shares), told)


def _check(forms: Sequence[str], **numbers: tuple[int, int]) -> None:
    """Refuse numbers below the least that makes sense, and formats that there are not."""
    for name, (number, least) in numbers.items():
        if number < least:
            raise ConfigError(f"{name}={number}: a whole number of at least {least} is needed.")
    for form in forms:
        if form not in FORMATS:
            raise UnknownNameError("format", form, FORMATS)


def _plans(graph: DynamicGraph, blocks: Sequence[int] | None, ranks: Sequence[int] | None) -> list[SnapshotBlocks]:
    blocks = [count for count in BLOCKS if count <= graph.num_snapshots] if blocks is None else blocks
    ranks = [number for number in RANKS if number <= graph.num_nodes] if ranks is None else ranks
    every = range(graph.num_snapshots)
    return [SnapshotBlocks(every, count, number, graph.num_nodes) for count in blocks for number in ranks]


def _row(snapshots: Sequence[Snapshot], changes: SequenceChanges, form: TransferFormat) -> dict[str, Any]:
    sent, whole = encode(snapshots, form).nbytes, encode(snapshots, form, difference=False).nbytes
    least, _ = changes.brought(form, [range(len(snapshots))])
    return {
        "snapshots": len(snapshots), "edges": int(changes.edges.sum()), "overlap": changes.overlap,
        "whole_bytes": whole, "difference_bytes": sent, "ratio": whole / sent, "bound": whole / least,
        "reached": least / sent,
    }  # fmt: skip


def _times(
    snapshots: Sequence[Snapshot], form: TransferFormat, *, repeats: int, device: str, saved_bytes: int
) -> dict[str, Any]:
    if not repeats:
        names = ("whole_s", "difference_s", "difference_copy_s", "difference_unpack_s", "time_ratio", "worth_below")
        return dict.fromkeys(names)
    from dtdg_lab.parallel.transfer_times import transfer_times

    whole, less = transfer_times(snapshots, form, device=device, repeats=repeats)
    more_s = less.unpack_s - whole.unpack_s
    return {
        "whole_s": whole.total_s, "difference_s": less.total_s, "difference_copy_s": less.copy_s,
        "difference_unpack_s": less.unpack_s, "time_ratio": whole.total_s / less.total_s,
        "worth_below": saved_bytes / more_s if saved_bytes and more_s > 0 else None,
    }  # fmt: skip


def _share(changes: SequenceChanges, form: TransferFormat, plan: SnapshotBlocks) -> dict[str, Any]:
    less, whole = changes.brought(form, own_ranges(plan))
    return {
        "blocks": plan.blocks, "ranks": plan.ranks, "share": benefiting_share(plan), "whole_bytes": whole,
        "difference_bytes": less, "ratio": whole / less,
    }  # fmt: skip
