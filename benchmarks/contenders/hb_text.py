"""Rows of benchmarks/dynahb.py as lines of text."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from contenders import hb_paper as paper
from contenders.hb_rows import middle
from dtdg_lab.core.units import format_bytes, format_seconds

Row = Mapping[str, Any]

TRAINING_HEAD = (
    f"{'graph':14} {'model':11} {'R':>2} {'system':12} {'a step':>9} {'to common loss min, median, max':32} "
    f"{'of dbos':>22} {'to near loss':32} {'of dbos':>22} {'lowest':>8} {'test':>8} {'persist.':>8} "
    f"{'converged':>10}  ended"
)
STEP_HEAD = (
    f"{'graph':14} {'model':11} {'L':>2} {'R':>2} {'system':12} {'a step min, median, max':30} {'by':4} "
    f"{'dbos over it':18} {'speed-up':>8} {'filled in':>9} {'full':>5} {'sent a step':>11}  batches"
)
BREAKDOWN_HEAD = f"{'graph':14} {'model':11} {'R':>2} {'system':12} {'steps':>6} {'converged':>10} " + " ".join(
    f"{name:>9}" for name in paper.PARTS
)
ABLATION_HEAD = f"{'over base':>9}  {TRAINING_HEAD}"
FRACTION_HEAD = f"{'data':>5} {TRAINING_HEAD}"
MEMORY_HEAD = (
    f"{'graph':14} {'model':11} {'R':>2} {'system':12} {'a step':>10} {'stand-in':>10} {'copies':>10} "
    f"{'reservoir':>10} {'resident':>10}  {'paper: host, GPU':>18}"
)
PARTITION_HEAD = (
    f"{'graph':14} {'P':>2} {'partitioner':12} {'made in min, median, max':30} {'with measures':>13} {'load':>6} "
    f"{'cut':>6} {'copied':>7} {'cached':>10}"
)
ADJUSTER_HEAD = f"{'regret':>9} {'decisions until then':>26}  {TRAINING_HEAD}"
LANDSCAPE_HEAD = f"{'landscape':26} {'chosen by':18} {'over the best min, median, max':32} decisions"
WAITING_HEAD = (
    f"{'graph':14} {'model':11} {'R':>2} {'system, generators':20} {'filling':>8} {'full':>8} {'full in':>9} "
    f"{'of it':>6} {'batches':>8} {'processor':>10} {'bytes':>10}  taken"
)
BESIDE_HEAD = (
    f"{'graph':14} {'model':11} {'cores':>5} {'generators':10} {'a step min, median, max':30} {'times as long':18} "
    f"{'batches a second':>16}"
)
SLOWED_HEAD = (
    f"{'graph':14} {'model':11} {'exchange':10} {'steps as they are':24} {'one slowed':24} others' times as long"
)
BUILDING_HEAD = (
    f"{'graph':14} {'model':11} {'L':>2} {'batch':>12} {'rows':>9} {'edges':>9} {'here':>9} {'DGL':>9} {'DGL/here':>8} "
    f"{'trained':>9} {'full batch':>10}"
)
TRUNCATION_HEAD = f"{'graph':14} {'model':11} {'L':>2} {'':8} {'loss apart min, median, max':30} gradients"


def failed(row: Row, *names: str) -> str:
    """A row of which there is nothing but why."""
    return " ".join(f"{row[name]!s:{width}}" for name, width in names_and_widths(names)) + f" {row['failed']}"


def names_and_widths(names: Sequence[str]) -> list[tuple[str, int]]:
    widths = {"graph": 14, "model": 11, "ranks": 2, "layers": 2, "parts": 2, "cores": 5}
    return [(name, widths.get(name, 12)) for name in names]


def _number(value: float | None, form: str, width: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:{width}{form}}"


def _three(values: Sequence[float] | None, digits: int = 2) -> str:
    return "-" if values is None else " ".join(f"{value:.{digits}f}" for value in values)


def _times(values: Sequence[float]) -> str:
    return ", ".join(format_seconds(value) for value in values)


def _by_seed(values: Sequence[float | None]) -> str:
    """Least, median and most, where never is longest; how many got there where some did not."""
    there = sorted(value for value in values if value is not None)
    if not there:
        return "not reached"
    if len(there) == 1 and len(values) == 1:
        return format_seconds(there[0])
    own = middle(values)
    most = there[-1] if len(there) == len(values) else None
    described = ", ".join("never" if each is None else format_seconds(each) for each in (there[0], own, most))
    return described if len(there) == len(values) else f"{described} ({len(there)} of {len(values)})"


def _ratios(row: Row, loss: str) -> str:
    """The median's ratio and, by seed, the least and the most: 0 never reached it, inf: the rival never did."""
    known = [each for each in row.get(f"{loss}_over_rivals", ()) if each is not None]
    described = _number(row[f"{loss}_over_rival"], ".2f", 0)
    return f"{described} ({min(known):.2f} to {max(known):.2f})" if len(known) > 1 else described


def training_text(row: Row) -> str:
    if "failed" in row:
        return failed(row, "graph", "model", "ranks", "system")
    stays, count = sum(row["stays"]), len(row["stays"])
    ended = "converged" if stays == count else f"{stays} of {count} converged"
    scores = [f"{middle(row[name]):8.5f}" for name in ("validation", "test")]
    accuracy = [each["accuracy"] for each in row["metrics"] if each.get("accuracy") is not None]
    return (
        f"{row['graph']:14} {row['model']:11} {row['ranks']:2} {row['system']:12} "
        f"{format_seconds(middle(row['step_s'])):>9} {_by_seed(row['common_s']):32} "
        f"{_ratios(row, 'common'):>22} {_by_seed(row['near_s']):32} "
        f"{_ratios(row, 'near'):>22} {' '.join(scores)} {_number(row['persistence'], '.5f', 8)} "
        f"{format_seconds(middle(row['converged_s'])):>10}  {ended}"
        + (f", accuracy {middle(accuracy):.2%}" if accuracy else "")
    )


def ablation_text(row: Row) -> str:
    return f"{_number(row.get('over_base'), '.2f', 9)}  {training_text(row)}"


def fraction_text(row: Row) -> str:
    return f"{row['fraction']:5.0%} {training_text(row)}"


def batch_policy_text(row: Row) -> str:
    regret = row.get("regret_s")
    described = "-" if regret is None else f"{'-' if regret < 0 else ''}{format_seconds(abs(regret))}"
    best = "  best fixed in hindsight" if row.get("best_fixed") == row["system"] else ""
    return f"{described:>9} {_decisions(row):>26}  {training_text(row)}{best}"


def _decisions(row: Row) -> str:
    """Decisions before the near loss: least, median and most of the seeds."""
    if "decisions" not in row:
        return "-"
    made = sorted(row["decisions"])
    return f"{made[0]} {statistics.median(made):g} {made[-1]}{', too few' * row['few']}"


def landscape_text(row: Row) -> str:
    there = [value for value in row["over_best"] if value is not None]
    own, count = middle(row["over_best"]), len(row["over_best"])
    described = "never" if not there else f"{min(there):.2f} {_number(own, '.2f', 0)} {max(there):.2f}"
    described += f" ({len(there)} of {count})" if len(there) < count else ""
    decisions = f"{statistics.median(row['decisions']):g}" if "decisions" in row else "-"
    return f"{row['landscape']:26} {row['controller']:18} {described:32} {decisions}"


def step_text(row: Row) -> str:
    if "failed" in row:
        return failed(row, "graph", "model", "layers", "ranks", "system")
    taken = ", ".join(f"{count} {source}" for source, count in sorted(row["sources"].items())) or "-"
    return (
        f"{row['graph']:14} {row['model']:11} {row['layers']:2} {row['ranks']:2} {row['system']:12} "
        f"{_times(row['step_s']):30} {row['clock']:4} {_three(row['over_rival']):18} "
        f"{_number(row.get('speedup'), '.2f', 8)} {format_seconds(row['fill_s']):>9} {row['filled']:5.0%} "
        f"{format_bytes(row['bytes_a_step']):>11}  {taken}"
    )


def breakdown_text(row: Row) -> str:
    """Table 3: seconds until the lowest validation loss, of the first seed."""
    if "failed" in row:
        return failed(row, "graph", "model", "ranks", "system")
    phases = row["phases"][0]
    described = " ".join(f"{phases[name]:9.3f}" if phases.get(name) else f"{'-':>9}" for name in paper.PARTS)
    return (
        f"{row['graph']:14} {row['model']:11} {row['ranks']:2} {row['system']:12} {row['converged_steps'][0]:6} "
        f"{format_seconds(row['converged_s'][0]):>10} {described}"
    )


def breakdown_paper_texts() -> list[str]:
    """The paper's Table 3."""
    return [
        f"{'flickr (paper)':14} {'tgcn':11} {'5':>2} {name:12} {'':>6} {'':>10} "
        + " ".join(_number(value, ".3f", 9) for value in seconds)
        for name, seconds in paper.BREAKDOWN.items()
    ]


def memory_text(row: Row) -> str:
    if "failed" in row:
        return failed(row, "graph", "model", "ranks", "system")
    described = ["-" if row[name] is None else format_bytes(row[name])
            for name in ("peak_bytes", "stand_in_bytes", "cache_bytes", "kept_bytes", "rss_bytes")]  # fmt: skip
    host, device = paper.MEMORY[row["system"]]
    return (
        f"{row['graph']:14} {row['model']:11} {row['ranks']:2} {row['system']:12} "
        + " ".join(f"{each:>10}" for each in described)
        + f"  {f'{host}, {device} GB':>18}"
    )


def partition_text(row: Row) -> str:
    if "failed" in row:
        return failed(row, "graph", "parts", "partitioner")
    load = row["imbalance"].get("load", max(row["imbalance"].values()))
    return (
        f"{row['graph']:14} {row['parts']:2} {row['partitioner']:12} {_times(row['made_s']):30} "
        f"{format_seconds(row['whole_s']):>13} {load:6.2f} {row['cut_share']:6.1%} {row['replicated_share']:7.1%} "
        f"{format_bytes(row['cached_bytes']):>10}"
    )


def waiting_text(row: Row) -> str:
    if "failed" in row:
        return f"{row['graph']:14} {row['model']:11} {row['ranks']:2} {row['system']:20} {row['failed']}"
    taken = ", ".join(f"{count} {source}" for source, count in sorted(row["sources"].items()))
    return (
        f"{row['graph']:14} {row['model']:11} {row['ranks']:2} {row['system']:20} {row['cold']:8.2%} "
        f"{row['warm']:8.2%} {format_seconds(row['fill_s']):>9} {row['filled']:6.0%} {row['made']:8} "
        f"{format_seconds(row['busy_s']):>10} {format_bytes(row['bytes']):>10}  {taken}"
    )


def beside_text(row: Row) -> str:
    if "failed" in row:
        return failed(row, "graph", "model", "cores", "generators")
    return (
        f"{row['graph']:14} {row['model']:11} {row['cores']:5} {row['generators']:10} {_times(row['step_s']):30} "
        f"{_three(row['slower']):18} {row['made_per_s']:16.1f}"
    )


def slowed_text(row: Row) -> str:
    if "failed" in row:
        return failed(row, "graph", "model", "exchange")
    return (
        f"{row['graph']:14} {row['model']:11} {row['exchange']:10} {_times(row['even_s']):24} "
        f"{_times(row['slowed_s']):24} {row['others']:.2f}"
    )


def building_text(row: Row) -> str:
    if "failed" in row:
        return failed(row, "graph", "model", "layers")
    dgl = "not there" if row["dgl_s"] is None else format_seconds(row["dgl_s"])
    size = f"{row['snapshots']} x {row['targets']}"
    return (
        f"{row['graph']:14} {row['model']:11} {row['layers']:2} {size:>12} {row['rows']:9,.0f} {row['edges']:9,.0f} "
        f"{format_seconds(row['lab_s']):>9} {dgl:>9} {_number(row['dgl_over_lab'], '.2f', 8)} "
        f"{format_seconds(row['step_s']):>9} {format_seconds(row['full_s']):>10}"
    )


def truncation_texts(row: Row) -> list[str]:
    if "failed" in row:
        return [failed(row, "graph", "model", "layers")]
    return [
        f"{row['graph']:14} {row['model']:11} {row['layers']:2} {when:8} {_small(row[when]['loss']):30} "
        f"{_small(row[when]['gradients'])}"
        for when in ("at first", "trained")
    ]


def _small(values: Sequence[float]) -> str:
    return " ".join(f"{value:.1e}" for value in values)
