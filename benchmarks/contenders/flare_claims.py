"""What the FlareDTDG paper claims, held against benchmarks/flaredtdg.py's rows: a verdict says where it does not hold.

A comparison of errors holds where it does with every seed; one of times or memory, at the median.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, median
from typing import Any

from contenders import flare_paper as paper
from contenders.flare_plan import RIVALS

Row = dict[str, Any]
OURS, SHRINK_SHARE = "flaredtdg", 0.05
MOST_TOLD = 5  # rows that a verdict names; the file of --json has all
SLACK = 1e-3  # an error that is no more above another, relative to it, counts as no higher


@dataclass(frozen=True, slots=True)
class Verdict:
    """One claim over the rows that it speaks of.

    Attributes:
        table: of the paper.
        claim: in words, with the paper's numbers.
        holds: rows where it does.
        where: the other rows, with what was found.
    """

    table: str
    claim: str
    holds: int
    where: tuple[str, ...]

    @property
    def text(self) -> str:
        of = self.holds + len(self.where)
        if not of:
            return f"{self.table}: {self.claim}. Nothing here speaks of it."
        said = "holds" if not self.where else "DOES NOT HOLD HERE" if not self.holds else "holds in part"
        more = f"; and {len(self.where) - MOST_TOLD} more" if len(self.where) > MOST_TOLD else ""
        but = f"; not: {'; '.join(self.where[:MOST_TOLD])}{more}" if self.where else ""
        return f"{self.table}: {self.claim}. {said}: {self.holds} of {of} rows{but}"


def _verdict(table: str, claim: str, judged: Iterable[tuple[bool, str]]) -> Verdict:
    described = list(judged)
    return Verdict(
        table, claim, sum(holds for holds, _ in described), tuple(found for holds, found in described if not holds)
    )


def _blocks(rows: Sequence[Row]) -> Iterable[tuple[str, dict[str, Row]]]:
    """Graph and model, and the systems that gave something, where ours is among them."""
    alive = [row for row in rows if "failed" not in row]
    for (graph, model), some in groupby(alive, key=lambda row: (row["graph"], row["model"])):
        by_name = {row["system"]: row for row in some}
        if OURS in by_name:
            yield f"{graph} {model}", by_name


def _lower(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    return all(own < other for own, other in zip(ours, theirs, strict=True))


def _means(ours: Sequence[float], theirs: Sequence[float]) -> str:
    return f"{fmean(ours):.4g} against {fmean(theirs):.4g}"


def training_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Tables 3, 4, 6 and 8, and what no paper tells: whether anything is learned at all."""
    best, faster, recent, full, seconds, baseline = [], [], [], [], [], []
    for name, systems in _blocks(rows):
        ours = systems[OURS]
        for rival in (systems[rival] for rival in RIVALS if rival in systems):
            errors = _means(ours["mse"], rival["mse"])
            best.append((_lower(ours["mse"], rival["mse"]), f"{name}, {rival['system']}: {errors}"))
            times = [fmean(each["converged_s"]) for each in (rival, ours)]
            described = f"{times[1]:.3g} s against {times[0]:.3g} s"
            faster.append((times[0] > times[1], f"{name}, {rival['system']}: {described}"))
        if "recent-only" in systems:
            short = systems["recent-only"]
            recent.append((_lower(ours["mse"], short["mse"]), f"{name}: {_means(ours['mse'], short['mse'])}"))
        if "full-history" in systems:
            whole = systems["full-history"]
            near = fmean(ours["mse"]) <= fmean(whole["mse"]) * (1 + SLACK)
            full.append((near, f"{name}: {_means(ours['mse'], whole['mse'])}"))
            times = [fmean(each["converged_s"]) for each in (whole, ours)]
            seconds.append((times[1] < times[0], f"{name}: {times[1]:.3g} s against {times[0]:.3g} s"))
        naive = min(ours["persistence"], ours["mean"])
        baseline.append((max(ours["mse"]) < naive, f"{name}: {fmean(ours['mse']):.4g} against {naive:.4g}"))
    (low, high), cut = paper.FASTER, paper.percent(paper.RECENT_LESS)
    return [
        _verdict("Table 3", f"less error than every baseline (paper: {paper.percent(paper.ERROR_LESS)} less)", best),
        _verdict("Table 4", f"converges sooner than every baseline (paper: {low} to {high} times)", faster),
        _verdict(
            "Table 6",
            f"less error than recent-only (paper: {cut} less, in 9 of 9)",
            recent,
        ),
        _verdict("Table 6", "no more error than full-history (paper: in 4 of 9)", full),
        _verdict("Table 8", f"converges sooner than full-history (paper: {paper.percent(paper.TIME_LESS)})", seconds),
        _verdict("ours", "less error than persistence and the mean predictor", baseline),
    ]


def memory_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Tables 5 and 7, and the share that was asked for."""
    least, less, within = [], [], []
    for name, systems in _blocks(rows):
        ours = systems[OURS]
        for rival in (systems[rival] for rival in RIVALS if rival in systems):
            ratio = ours["peak_bytes"] / rival["peak_bytes"]
            least.append((ratio < 1, f"{name}, {rival['system']}: {ratio:.2f} of it"))
        if ours["share"] is not None:
            described = (
                f"{name}: {1 - ours['share']:.1%} less in whole windows, {1 - ours['any_share']:.1%} over all steps"
            )
            less.append((1 - ours["share"] >= paper.MEMORY_LESS[0], described))
    for row in rows:
        if row.get("within") is not None:
            described = (
                f"{row['graph']} {row['model']}, {row['system']}: {row['share']:.1%} of bytes for {row['kept']:.1%}"
            )
            within.append((row["within"], described))
    return [
        _verdict("Table 5", "least memory of all systems", least),
        _verdict("Table 7", f"memory {paper.percent(paper.MEMORY_LESS)} less than full-history's", less),
        _verdict("ours", "bytes of whole windows at most the share of rows kept and five points", within),
    ]


def shrinking_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Tables 9 and 10, and the share of a step that was asked for."""
    alive = [row for row in rows if "failed" not in row]
    described = [(row, f"{row['graph']} {row['model']}, {row['rule']}") for row in alive]
    time = [(row["ratio"][1] < 1, f"{name}: {1 - row['ratio'][1]:.1%}") for row, name in described]
    memory = [(row["memory_less"] > 0, f"{name}: {row['memory_less']:.1%}") for row, name in described]
    share = [(row["share"] <= SHRINK_SHARE, f"{name}: {row['share']:.1%}") for row, name in described]
    return [
        _verdict("Table 9", f"epochs shorter than with the naive remap (paper: "
                 f"{paper.percent(paper.SHRINK_TIME_LESS)})", time),
        _verdict("Table 10", f"less memory than with the naive remap (paper: "
                 f"{paper.percent(paper.SHRINK_MEMORY_LESS)})", memory),
        _verdict("ours", f"shrinking takes at most {SHRINK_SHARE:.0%} of a step", share),
    ]  # fmt: skip


def overlap_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Table 11, and what was asked for of an exchange that is late."""
    some = [row for row in rows if row["exposed_less"] is not None]
    known = [(row, f"{row['graph']} {row['model']}, {row['network']}") for row in some]
    less = [(row["exposed_less"] > 0, f"{name}: {row['exposed_less']:.1%}") for row, name in known]
    same = [(row["losses_apart"] == 0, f"{name}: {row['losses_apart']:.1e}") for row, name in known]
    late = [(row["hidden_on"] >= 0.6, f"{name}: {row['hidden_on']:.0%}")
            for row, name in known if row["network"].endswith(" ms")]  # fmt: skip
    return [
        _verdict("Table 11", f"communication that is not hidden {paper.percent(paper.EXPOSED_LESS)} less", less),
        _verdict("ours", "losses are those of blocking order", same),
        _verdict("ours", "at least 60 % of exchanges that take some milliseconds more are hidden", late),
    ]


def breakdown_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Table 12."""
    alive = [(f"{row['graph']} {row['model']}", row["shares"]) for row in rows if "failed" not in row]
    bounds = (("chunking", 0.0102), ("shuffle", 0.005), ("remap", paper.SHARES["remap"][1]))
    less = [_verdict("Table 12", f"{name} at most {most:.1%} of training",
                     [(shares[name] <= most, f"{row}: {shares[name]:.1%}") for row, shares in alive])
            for name, most in bounds]  # fmt: skip
    work = [(shares["forward"] + shares["backward"] > 0.7, f"{row}: {shares['forward'] + shares['backward']:.1%}")
            for row, shares in alive]  # fmt: skip
    return [*less, _verdict("Table 12", "forward and backward above 70 % of training", work)]


def rank_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Figure 7."""
    ours = [row for row in rows if row["system"] == OURS and "failed" not in row]
    first = {row["model"]: row for row in reversed(ours)}  # the fewest ranks come first
    later = [row for row in ours if row["ranks"] > first[row["model"]]["ranks"]]
    faster = [(row["speedup"] > 1, f"{row['model']} on {row['ranks']}: {row['speedup']:.2f}") for row in later]
    smaller = []
    for row in later:
        share = row["peak_bytes"] / first[row["model"]]["peak_bytes"]
        even = first[row["model"]]["ranks"] / row["ranks"]
        smaller.append((share <= 1.25 * even, f"{row['model']} on {row['ranks']}: {share:.2f} of one rank's"))
    return [
        _verdict("Figure 7", f"faster on more ranks (paper: {paper.FOUR_RANKS} times on 4)", faster),
        _verdict("Figure 7", "a rank's memory falls nearly as ranks rise (within a quarter)", smaller),
    ]


def decay_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Figure 8."""
    corner, memory, smooth = [], [], []
    alive = [row for row in rows if "failed" not in row]
    for graph, some in groupby(alive, key=lambda row: row["graph"]):
        cells = {(row["full_snapshots"], row["alpha"]): row for row in some}
        best, least = min(cells, key=lambda at: fmean(cells[at]["mse"])), min(cells)
        lost = fmean(cells[least]["mse"]) / fmean(cells[best]["mse"]) - 1
        spread = max(cells[best]["mse"]) - min(cells[best]["mse"])
        apart = fmean(cells[least]["mse"]) - fmean(cells[best]["mse"]) > spread
        described = (
            f"{graph}: best at K={best[0]}, alpha={best[1]:g}; K={least[0]}, alpha={least[1]:g} loses {lost:.1%}"
        )
        corner.append((best != least and apart, described + ("" if apart else ", within what seeds spread")))
        sizes = [cells[at]["peak_bytes"] for at in sorted(cells) if at[1] == least[1]]
        memory.append((sizes == sorted(sizes), f"{graph}: {sizes}"))
        deeper = _worse_between(cells, best)
        smooth.append((not deeper, f"{graph}: a path to the best climbs at {', '.join(map(str, deeper))}"))
    return [
        _verdict("Figure 8", "the smallest K and alpha lose most", corner),
        _verdict("Figure 8", "memory rises with K", memory),
        _verdict("Figure 8", "errors fall along every axis towards the best cell", smooth),
    ]


def _worse_between(cells: dict[tuple[int, float], Row], best: tuple[int, float]) -> list[tuple[int, float]]:
    """Cells of the best one's row and column that are above the next one away from it."""
    found = []
    for axis in (0, 1):
        line = sorted(at for at in cells if at[1 - axis] == best[1 - axis])
        place = line.index(best)
        for away in (line[place:], line[place::-1]):
            errors = [median(cells[at]["mse"]) for at in away]
            found += [away[i] for i in range(1, len(away) - 1) if errors[i] > errors[i + 1]]
    return found


JUDGES: dict[str, Callable[[Sequence[Row]], list[Verdict]]] = {
    "training": training_verdicts, "memory": memory_verdicts, "shrinking": shrinking_verdicts,
    "overlap": overlap_verdicts, "breakdown": breakdown_verdicts, "ranks": rank_verdicts, "decay": decay_verdicts,
}  # fmt: skip
