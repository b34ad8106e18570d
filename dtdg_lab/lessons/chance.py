"""Pictures of what chance does to comparisons, selections and early ends, and of what an all-reduce sends."""

from __future__ import annotations

from typing import Any

from dtdg_lab.core.rng import generator
from dtdg_lab.lessons.checks import SEVEN, may_say, ring, stopped
from dtdg_lab.lessons.figures import bar_chart
from dtdg_lab.visualization.chart import CaptionedFigure, card, trace_keys
from dtdg_lab.visualization.palette import BASELINE_COLOUR, series_colour
from dtdg_lab.visualization.traces import line

RACES, RESEARCHERS, NOISE = 2000, 500, 0.1
FEW_RUNS = 3  # before which no run is ended


def called_better(seeds: int) -> float:
    """Return in what percent of races the first of two equal systems is called better, by the strict rule."""
    draws = generator(9, "lesson/equal", seeds).normal(size=(RACES, 2, seeds))
    return 100 * sum(may_say(first, second) for first, second in draws.tolist()) / RACES


def equal_systems_picture(*, seeds: int = 3) -> CaptionedFigure:
    """Return six races of two equal systems, a dot a seed, and how often the rule calls one of them better."""
    draws = generator(9, "lesson/shown", seeds).normal(1.0, NOISE, size=(6, 2, seeds))
    data = []
    for system, name in enumerate(("first system", "second system")):
        x = [race + 1 + 0.12 * (2 * system - 1) for race in range(6) for _ in range(seeds)]
        y = draws[:, system].ravel().round(3).tolist()
        style: dict[str, Any] = {"mode": "markers", "marker": {"size": 8, "color": series_colour(system)}}
        data.append(line(name, x, y, series_colour(system), "%{y:.3f}", **style))
    figure = card(data, "Losses of two equal systems in six races", unit="loss", keys=trace_keys(data), x_title="race")
    wrong = 2 * called_better(seeds)
    count = "one seed" if seeds == 1 else f"{seeds} seeds"
    return figure, f"With {count}, one of two equal systems is called better in {wrong:.0f} % of races."


def selection_picture(*, tried: int = 20) -> CaptionedFigure:
    """Return the mean loss that researchers report who try several equal systems, by what they choose by.

    Args:
        tried: number of systems, all with a true loss of 1.
    """
    draws = generator(9, "lesson/lucky", tried).normal(1.0, NOISE, (3, RESEARCHERS, tried))
    validation, test, fresh = draws
    rows = range(RESEARCHERS)
    picked, honest = test.argmin(axis=1), validation.argmin(axis=1)
    means = {
        "lowest test loss": float(test.min(axis=1).mean()),
        "the same on fresh data": float(fresh[rows, picked].mean()),
        "chosen by validation": float(test[rows, honest].mean()),
    }
    off = 100 * (1 - means["lowest test loss"])
    figure = bar_chart("Mean loss that 500 researchers report; in truth it is 1", "loss", means, digits=".3f")
    return figure, f"Who takes the lowest test loss of {tried} reports one that is {off:.0f} % too low."


def pruning_picture(*, after: int = 2) -> CaptionedFigure:
    """Return the losses of seven runs, and which of them a median rule ends after an epoch.

    Args:
        after: the epoch at which the rule is applied.
    """
    ended = stopped(SEVEN, after, FEW_RUNS)
    data = []
    for number, (name, losses) in enumerate(SEVEN.items()):
        epochs = list(range(1, len(losses) + 1))
        trained = epochs[:after] if name in ended else epochs
        label = f"{name}, ended" if name in ended else name
        colour = BASELINE_COLOUR if name in ended else series_colour(number)
        data.append(line(label, trained, [losses[epoch - 1] for epoch in trained], colour, f"{name}: %{{y:.3f}}"))
    best = min(SEVEN, key=lambda name: min(SEVEN[name]))
    figure = card(data, "Losses of seven runs", unit="loss", keys=trace_keys(data), x_title="epoch")
    lost = f", among them {best}, the best of all" if best in ended else ""
    return figure, f"After epoch {after} the rule ends {', '.join(sorted(ended)) or 'none'}{lost}."


def ring_picture(*, kilobytes: int = 52) -> CaptionedFigure:
    """Return the bytes that one rank sends in a ring all-reduce, by the number of ranks.

    Args:
        kilobytes: size of the gradient.
    """
    bars = {f"{ranks:,} ranks": ring(1000 * kilobytes, ranks) for ranks in (2, 4, 16, 64, 1024)}
    growth = bars["1,024 ranks"] / bars["2 ranks"]
    figure = bar_chart("Sent by one rank in a ring all-reduce", "bytes", bars)
    return figure, f"On 1,024 ranks one rank sends {growth:.2f} times what it sends on 2."
