"""Memory in use over one probed step: lines for any chart, and a chart of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.model_facts import PASSES
from dtdg_lab.records.events import MemoryFacts
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.axes import byte_unit
from dtdg_lab.visualization.changes.marks import HALF_WIDTH
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions, Figure, Key, card
from dtdg_lab.visualization.numbers import bytes_text
from dtdg_lab.visualization.palette import BASELINE_COLOUR, PASS_COLOURS, TEXT_COLOUR, translucent
from dtdg_lab.visualization.traces import Attributes, line

if TYPE_CHECKING:
    from collections.abc import Callable


TITLE = "Memory over a step"
PEAK = "A step peaks at {peak}."
NOT_PROBED = "Measured after the first step"
RECOMPUTE = "recompute"
PASS_NAMES = {"forward": "forward", "rerun": RECOMPUTE, "backward": "backward"}
_NO_PASS = "in use"  # before the first block, or where a step does not tell its passes
_MOST_SAMPLES = 1_400  # a line has at most 1,500 points, those at 0 between passes included
_LETTER = 6.8  # pixels


def memory_keys(facts: MemoryFacts) -> list[Key]:
    """Return the colours of the passes; none of a step that does not tell them."""
    passes = {name for _, _, name in facts.blocks}
    return [(PASS_NAMES[name], PASS_COLOURS[name], "box") for name in PASSES if name in passes]


def memory_lines(facts: MemoryFacts, **axes: Any) -> list[Attributes]:
    """Return a filled line for each pass in :func:`memory_unit`, over milliseconds; 0 while another pass runs."""
    milliseconds, live, passes = _samples(facts)
    unit, factor = memory_unit(facts)
    lines = []
    for name in (_NO_PASS, *PASSES):
        indices = np.flatnonzero(passes == name)
        if not len(indices):
            continue
        inner = indices[indices + 1 < len(passes)]
        ends = np.flatnonzero(passes[inner + 1] != name) + 1  # a fill would bridge the gap to the next span
        x = np.insert(milliseconds[indices], ends, milliseconds[indices[ends - 1] + 1]).round(4).tolist()
        y = np.insert(live[indices] / factor, ends, 0.0).round(4).tolist()
        colour = PASS_COLOURS.get(name, BASELINE_COLOUR if facts.blocks else PASS_COLOURS["forward"])
        stroke = {"color": colour, "width": 1, "shape": "hv"}
        style: Attributes = {"line": stroke, "mode": "lines", "fill": "tozeroy", "fillcolor": translucent(colour, 0.33)}
        hover = "%{x:.3~g} ms: %{y:.3~g} " + unit
        lines.append(line(PASS_NAMES.get(name, name), x, y, colour, hover, **style, **axes))
    return lines


def pass_names(facts: MemoryFacts, *, width: float, **axes: str) -> Attributes:
    """Return one trace of text: pass and block, where each has room for its name in a plot of ``width`` pixels."""
    begins = [second for second, _, _ in facts.blocks]
    end, top = float(facts.seconds[-1]), facts.peak_bytes / memory_unit(facts)[1]
    names = [f"{PASS_NAMES.get(name, name)} {number}" for _, number, name in facts.blocks]
    spans = [
        (name, begin, stop)
        for name, begin, stop in zip(names, begins, [*begins[1:], end], strict=bool(begins))
        if (stop - begin) * width > _LETTER * len(name) * end
    ]
    return {
        "type": "scatter",
        "mode": "text",
        "name": "names",
        "x": [1e3 * (begin + stop) / 2 for _, begin, stop in spans],
        "y": [0.07 * top] * len(spans),
        "text": [name for name, _, _ in spans],
        "textfont": {"size": 10.5, "color": TEXT_COLOUR},
        "hoverinfo": "skip",
        **axes,
    }


def memory_unit(facts: MemoryFacts) -> tuple[str, float]:
    """Return the binary unit that the peak is written in, and its bytes."""
    return byte_unit(facts.peak_bytes)


def step_memory_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Draw the memory in use over the step that was probed last."""
    facts = tables.event(MemoryFacts)
    if facts is None or not len(facts.seconds):
        return card([], TITLE, empty=NOT_PROBED)
    return memory_figure(facts)


def memory_figure(facts: MemoryFacts, title: str = TITLE) -> Figure:
    """Draw the memory in use over a probed step; each pass has a colour, and its name where it fits."""
    end = 1e3 * float(facts.seconds[-1]) or 1.0
    x_axis, y_axis = {"range": [0, end], "showgrid": False}, {"rangemode": "tozero", "nticks": 4}
    return card(
        [*memory_lines(facts), *([pass_names(facts, width=HALF_WIDTH)] if facts.blocks else [])],
        title,
        unit=memory_unit(facts)[0],
        keys=memory_keys(facts),
        x_title="milliseconds within the probed step",
        xaxis=x_axis,
        yaxis=y_axis,
    )


def step_memory_caption(tables: RunTables, options: ChartOptions) -> str:
    """Say the peak."""
    facts = tables.event(MemoryFacts)
    return NOTHING_YET if facts is None else PEAK.format(peak=bytes_text(facts.peak_bytes))


def step_memory_chart(applies: Callable[[RunTables], bool]) -> Chart:
    """Return the folded chart of runs that ``shown`` chooses."""
    return Chart(
        name="step_memory",
        title=TITLE,
        figure=step_memory_figure,
        caption=step_memory_caption,
        section="folded",
        applies=applies,
        help="Tensors in use on rank 0 while one step was probed; probing slows the step.",
    )


def _samples(facts: MemoryFacts) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.str_]]:
    """Return milliseconds, bytes and passes of the samples; of many, the largest of neighbours."""
    begins = [second for second, _, _ in facts.blocks]
    names: Sequence[str] = [_NO_PASS, *(name for _, _, name in facts.blocks)]
    passes = np.array(names)[np.searchsorted(begins, facts.seconds, side="right")]
    stride = -(-len(facts.seconds) // _MOST_SAMPLES)
    groups = np.pad(facts.bytes, (0, -len(facts.bytes) % stride), constant_values=-1).reshape(-1, stride)
    indices = groups.argmax(axis=1) + stride * np.arange(len(groups))
    return 1e3 * facts.seconds[indices], facts.bytes[indices], passes[indices]
