"""The settings of the next run and the live settings of this one: controls made from glossary and catalogue."""

from __future__ import annotations

import html
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import panel as pn
from bokeh.models import CustomJSTickFormatter

from dtdg_lab.core import catalogue
from dtdg_lab.core.catalogue import PROTOCOLS
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import DataError
from dtdg_lab.core.options import CHOSEN_BY, OPTIONS, Option, default, option
from dtdg_lab.dashboard.actions import ACTIVE
from dtdg_lab.dashboard.live import labelled
from dtdg_lab.datasets.names import datasets
from dtdg_lab.graphs.storage import graph_folder, read_meta
from dtdg_lab.visualization.style import coloured

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run


# Settings as text: a cell that repeats them, and JSON.


_FIELDS = (
    "system",
    "dataset",
    "model",
    "ranks",
    "epochs",
    "seed",
    "parts",
    "hidden",
    "layers",
    "learning_rate",
    "protocol",
    "device",
    "threads",
)
_ALWAYS = ("system", "dataset", "model", "ranks", "epochs", "seed", "learning_rate")


def as_arguments(config: RunConfig) -> dict[str, object]:
    """The flat settings that differ from the defaults of ``RunConfig``, with the main ones always."""
    names = {name: getattr(config, name) for name in ("system", "dataset", "model", "ranks", "protocol")}
    plain = RunConfig(**names)
    shown = _ALWAYS if config.protocol == RunConfig.model_fields["protocol"].default else (*_ALWAYS, "protocol")
    chosen = {name: value for name, value in config.flat.items() if name in shown or value != plain[name]}
    return {name: chosen[name] for name in (*_FIELDS, *sorted(set(chosen) - set(_FIELDS))) if name in chosen}


def as_cell(config: RunConfig) -> str:
    """A Python cell that trains with these settings and shows the run."""
    arguments = "".join(f"    {name}={value!r},\n" for name, value in as_arguments(config).items())
    return (
        "import dtdg_lab as lab\n\n"
        f"config = lab.RunConfig(\n{arguments})\n"
        f"session = lab.Session(ranks={config.ranks})\n"
        "run = session.train(config)\n"
        "lab.Dashboard(session)\n"
    )


def as_json(config: RunConfig) -> str:
    """The settings as the JSON that ``python -m dtdg_lab run CONFIG.json`` and ``RunConfig.from_json`` read."""
    return config.to_json()


# Names and descriptions of the choices, from the catalogue and the protocols.


HERE, DOWNLOAD, GENERATED, OWN = "On this machine", "Downloaded on first use", "Synthetic", "Your own graphs"
_GENERATORS = "dtdg_lab.datasets.generators."
_NOTE = f"font-size:11.5px;line-height:1.3;color:{coloured('soft')}"


def is_generated(dataset: str) -> bool:
    """Whether a data set of the catalogue comes from a seeded generator."""
    return not is_stored(dataset) and catalogue.entry("datasets", dataset).target.startswith(_GENERATORS)


def is_stored(dataset: str) -> bool:
    """Whether it names a user's own graph, stored under its hash."""
    return dataset.startswith(catalogue.STORED)


def dataset_choices() -> dict[str, dict[str, str]]:
    """Label -> name of every data set, in groups: local files, generators, files to download."""
    groups: dict[str, dict[str, str]] = {HERE: {}, GENERATED: {}, DOWNLOAD: {}}
    for info in datasets():
        group = GENERATED if is_generated(info.name) else HERE if info.on_this_machine else DOWNLOAD
        groups[group][info.name] = info.name
    return {group: choices for group, choices in groups.items() if choices}


def dataset_label(dataset: str) -> str:
    """The label of a data set: its name; for a user's own graph, the given name and the hash."""
    if not is_stored(dataset):
        return dataset
    return f"{_stored_meta(dataset).get('name', 'not on this machine')} ({dataset.removeprefix(catalogue.STORED)[:8]})"


def dataset_tasks(dataset: str) -> tuple[str, ...]:
    """The tasks that a data set supports."""
    if not is_stored(dataset):
        return catalogue.entry("datasets", dataset).tasks
    classified = "classes" in _stored_meta(dataset).get("arrays", ())
    return ("regression", "link", "classification") if classified else ("regression", "link")


def about(name: str, value: str) -> str:
    """The text under a choice, as HTML: a description of the data set, model or protocol."""
    if name == "protocol":
        text = PROTOCOLS[value].meaning
        said = f"{text[0].upper()}{text[1:]}."
    elif name == "dataset" and is_stored(value):
        said = str(_stored_meta(value).get("source", "Not stored on this machine."))
    else:
        said = catalogue.entry("datasets" if name == "dataset" else "models", value).summary
    return f'<div style="{_NOTE}">{html.escape(said, quote=False)}</div>'


def _stored_meta(dataset: str) -> Mapping[str, Any]:
    """The meta.json of a stored graph; empty where this machine does not hold it."""
    try:
        return read_meta(graph_folder(dataset.removeprefix(catalogue.STORED)))
    except DataError:  # the page shows the name all the same; a run reports the problem
        return {}


# One control: a widget made from a glossary option that can be read, set and observed.


# How options are presented; their ranges are in the glossary.
LABELS: Mapping[str, str] = MappingProxyType(
    {
        "slow_rank": "Slowed rank",
        "slow_ms": "Delay (ms)",
        "gc_layers": "Graph convolutions",
        "dealing": "load_aware assignment",
        "imbalance": "Allowed imbalance",
        "cache_gib": "Cached partitions (GiB)",
        "halo_reuse": "Reuse halo features",
        "groups_per_rank": "Groups per rank",
        "group_times": "Group times",
        "pipelined": "Process a step's groups concurrently",
        "schedule_gap": "Optimality gap (dygnex_ilp)",
        "schedule_limit_s": "Search time limit (s)",
        "schedule_targets": "DyGNeX-G targets (0 = by size)",
        "blocks": "Time blocks (0 = fit memory)",
        "memory_gib": "Memory limit (GiB)",
        "row_ranks": "Ranks per snapshot",
        "overlap": "Overlap communication",
        "difference": "Transfer graphs as deltas",
        "graphs": "Graphs of other blocks",
        "full_snapshots": "Full snapshots (K)",
        "decay": "Temporal decay (alpha)",
        "chunks": "Chunks per partition (0 = fit)",
        "chunker": "Chunking method",
        "tune": "Tune K and alpha on the validation split",
        "tune_every": "Tuning interval (epochs)",
        "tune_memory_gib": "Tuning memory limit (GiB)",
        "fanout": "Sampled neighbours",
        "batch_snapshots": "Snapshots per batch (N_S)",
        "batch_vertices": "Nodes per batch (N_V)",
        "load_groups": "Load groups",
        "epoch_batches": "Batches per epoch",
        "reservoir": "Batch reservoir",
        "reservoir_gib": "Reservoir (GiB)",
        "reservoir_uses": "Uses per batch (0 = unlimited)",
        "stand_in_gib": "Memory limit for full-batch fallback (GiB)",
        "adjuster": "Batch-size controller",
        "snapshot_sizes": "Snapshot sizes",
        "vertex_sizes": "Node sizes",
        "decide_every": "Steps per decision",
        "reward_loss": "Reward loss",
        "reward": "Reward",
        "agent_rate": "DQN learning rate",
        "cache_policy": "Remote feature cache",
        "cache_window": "Cache window (W, steps)",
        "cache_bias": "Prioritised partition (-1 = none)",
        "cache_rows": "Cache rows",
        "queue_depth": "Prefetch depth (Q, batches)",
        "fetch_timeout_s": "Fetch timeout (s)",
        "policy_file": "Policy file",
        "batch_size": "Seed nodes per batch",
        "batch_length": "Snapshots per batch",
        "fanouts": "Neighbours per layer",
        "sampler": "Sampler",
        "links": "Manual links",
        "congestion_ms": "Delay of slow links (ms)",
        "congestion_mbit": "Rate of slow links (Mbit/s, 0 = unlimited)",
        "congestion_from": "Congested from epoch",
        "congestion_cycle": "Congestion cycle (epochs)",
        "congestion_table": "Congestion table",
        "congestion_file": "Congestion trace (file)",
        "congestion_by": "Congestion backend",
        "power_idle_w": "Idle power (W)",
        "power_max_w": "Busy power (W)",
        "power_gpu_idle_w": "GPU idle (W)",
        "power_gpu_max_w": "GPU busy (W)",
        "exchange": "Rank synchronisation",
        "average_every_s": "Averaging interval (T_mu, s)",
    }
)
# where a label is clear only beside its neighbour's
SPOKEN: Mapping[str, str] = MappingProxyType({"slow_ms": "Slow down rank by (ms)"})
LOG_RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "learning_rate": (1e-5, 1.0),
        "alpha": (1e-3, 1.0),
        "batch_snapshots": (0.01, 1.0),
        "batch_vertices": (0.001, 1.0),
        "average_every_s": (0.01, 60.0),
    }
)
SLIDER_RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"slow_ms": (0.0, 200.0), "congestion_ms": (0.0, 100.0)}
)

_STYLE = (
    f"input:disabled, select:disabled {{ background: {coloured('off')}; color: {coloured('off-text')}; opacity: 1; }} "
    "select.bk-input { padding-left: 8px; padding-right: 20px; }"  # half a row holds the longest names
)
_POWER = "return String(Number((10 ** tick).toPrecision(3)))"  # as LogControl reads it, while the slider moves

Choices = Sequence[Any] | Mapping[str, Any]  # values; label -> value; group -> label -> value


class SettingControl:
    """A widget for one option. ``on_change`` calls back for a user's changes, never for those of ``show``."""

    def __init__(self, option: Option, choices: Choices | None = None) -> None:
        self.option = option
        self._quiet: int | None = None  # the thread in which ``show`` sets a value; a user's change comes on another
        self._listener: Callable[[str, Any], None] | None = None
        self.widget: Any = self._make(choices if choices is not None else option.choices)
        throttled = "value_throttled" in self.widget.param
        self.widget.param.watch(self._changed, "value_throttled" if throttled else "value")

    def _make(self, choices: Choices) -> pn.widgets.Widget:
        option = self.option
        common = {"label": self.label, "sizing_mode": "stretch_width", "margin": (3, 8), "stylesheets": [_STYLE]}
        if option.name in SPOKEN:
            common["stylesheets"] = [_STYLE, labelled(SPOKEN[option.name])]
        if choices:
            return pn.widgets.Select(**_offered(choices), value=_values(choices)[0], **common)
        if option.kind is bool:
            return pn.widgets.Checkbox(value=option.default, **common)
        if option.kind is str:
            return pn.widgets.TextInput(value=option.default, **common)
        if option.name in SLIDER_RANGES:
            low, high = SLIDER_RANGES[option.name]
            return pn.widgets.FloatSlider(start=low, end=high, step=1.0, value=option.default, **common)
        number = pn.widgets.IntInput if option.kind is int else pn.widgets.FloatInput
        step = 1 if option.kind is int else 0.1
        end = None if option.high is None or option.high > 2**31 else option.high  # larger ones lose precision
        return number(value=option.default, start=option.low, end=end, step=step, **common)

    @property
    def name(self) -> str:
        """The option's flat name."""
        return self.option.name

    @property
    def label(self) -> str:
        """The label of the widget."""
        unit = self.option.unit
        bare = self.name.removesuffix(f"_{unit.lower()}") if len(unit) <= 2 else self.name
        words = LABELS.get(self.name, bare.replace("_", " ").capitalize())
        return f"{words} ({unit})" if unit and "(" not in words and unit not in words.lower().split() else words

    @property
    def value(self) -> Any:
        """The current value of the widget."""
        return self._typed(self.widget.value)

    def _typed(self, value: Any) -> Any:
        return float(value) if self.option.kind is float and value is not None else value

    def show(self, value: Any, label: str = "", group: str = "Others") -> None:
        """Set the widget to a value, without a callback; a choice it does not offer yet is added as ``label``."""
        if value == self.value:
            return
        self._quiet = threading.get_ident()
        try:
            if isinstance(self.widget, pn.widgets.Select) and value not in self.widget.values:
                self._add_choice(value, label or str(value), group)
            self._put(value)
        finally:
            self._quiet = None

    def _add_choice(self, value: Any, label: str, group: str) -> None:
        options, groups = self.widget.options, self.widget.groups
        if groups:
            self.widget.groups = {**groups, group: {**groups.get(group, {}), label: value}}
        else:
            self.widget.options = {**options, label: value} if isinstance(options, dict) else [*options, value]

    def _put(self, value: Any) -> None:
        if isinstance(self.widget, pn.widgets.FloatSlider):
            self.widget.end = max(self.widget.end, value)
        self.widget.value = value

    def waits(self, waiting: bool) -> None:
        """Show beside the label whether the chosen value is still to be applied."""
        self.widget.label = f"{self.label} · pending" if waiting else self.label

    def offer(self, choices: Choices) -> None:
        """Change the choices; the value becomes the nearest one left: itself, or the last."""
        options, values = dict(choices) if isinstance(choices, Mapping) else list(choices), _values(choices)
        if options == self.widget.options:
            return
        self._quiet = threading.get_ident()
        try:
            kept = self.widget.value if self.widget.value in values else values[-1]
            self.widget.param.update(options=options, value=kept)
        finally:
            self._quiet = None

    def on_change(self, listener: Callable[[str, Any], None]) -> None:
        """Call ``listener(name, value)`` when the user has chosen a value: on release, for a slider."""
        self._listener = listener

    def _changed(self, event: Any) -> None:
        if self._quiet != threading.get_ident() and self._listener is not None and event.new is not None:
            self._listener(self.name, self._typed(event.new))


def _values(choices: Choices) -> list[Any]:
    """The values of the choices."""
    if not isinstance(choices, Mapping):
        return list(choices)
    return [each for value in choices.values() for each in (value.values() if isinstance(value, Mapping) else [value])]


def _offered(choices: Choices) -> dict[str, Any]:
    """The parameter of a Select that takes these choices."""
    if not isinstance(choices, Mapping):
        return {"options": list(choices)}
    grouped = any(isinstance(value, Mapping) for value in choices.values())
    return {"groups" if grouped else "options": dict(choices)}


class LogControl(SettingControl):
    """A logarithmic slider for a positive number."""

    def _make(self, choices: Choices) -> pn.widgets.Widget:
        low, high = LOG_RANGES[self.name]
        return pn.widgets.FloatSlider(
            label=self.label,
            start=math.log10(low),
            end=math.log10(high),
            step=0.05,
            value=math.log10(self.option.default),
            format=CustomJSTickFormatter(code=_POWER),
            sizing_mode="stretch_width",
            margin=(3, 8),
        )

    def _typed(self, value: Any) -> Any:
        return None if value is None else float(f"{10**value:.3g}")

    def _put(self, value: Any) -> None:
        exponent = math.log10(value) if value > 0 else self.widget.start
        self.widget.param.update(
            start=min(self.widget.start, exponent), end=max(self.widget.end, exponent), value=exponent
        )


def make_control(option: Option, choices: Choices | None = None) -> SettingControl:
    """The control that fits an option."""
    return LogControl(option) if option.name in LOG_RANGES else SettingControl(option, choices)


# A collapsible group of controls.


def folded(title: str, *content: Any, most_px: int = 0) -> pn.Card:
    """The content under a title that expands it; content higher than ``most_px``, where given, scrolls."""
    scrolling = {"max-height": f"{most_px}px", "overflow-y": "auto"} if most_px else {}
    return pn.Card(
        pn.Column(*content, sizing_mode="stretch_width", margin=0, styles=scrolling),
        title=title,
        collapsed=True,
        sizing_mode="stretch_width",
        margin=(6, 8),
        styles={"border": f"1px solid {coloured('line')}", "box-shadow": "none"},
        header_background="#f6f8fa",
    )


# A row of a run's live settings beside the charts that they affect.


PATIENCE_S = 3.0  # before a control shows the run's value again


class LiveWidgets:
    """A row of live settings of the run on display; hidden where it has none, disabled unless the run is active.

    Each is the same setting as the one in the side panel: the last change counts.

    Args:
        names: of the settings.
        apply: requests changes of the run.
    """

    def __init__(self, names: Sequence[str], apply: Callable[[dict[str, Any]], None]) -> None:
        self._apply = apply
        self._turned: dict[str, tuple[Any, float]] = {}  # what was requested here, and until when it is pending
        self.controls = {name: make_control(option(name)) for name in names}
        for control in self.controls.values():
            control.on_change(self._changed)
        widgets = [control.widget for control in self.controls.values()]
        self.panel = pn.Row(*widgets, sizing_mode="stretch_width", margin=0, visible=False)

    def _changed(self, name: str, value: Any) -> None:
        self._turned[name] = (value, time.monotonic() + PATIENCE_S)
        self._apply({name: value})

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        self._turned.clear()
        self.update(run)

    def update(self, run: Run | None) -> None:
        """Set the controls to the run's values, except for pending requests made here."""
        read = () if run is None else [name for name in self.controls if name in run.config.flat]
        self.panel.visible = bool(read)
        if run is None:
            return
        for name, control in self.controls.items():
            control.widget.visible = name in read
            control.widget.disabled = run.status not in ACTIVE
            if name not in read:
                continue
            asked, until = self._turned.get(name, (None, 0.0))
            if run.config[name] == asked or time.monotonic() >= until:
                self._turned.pop(name, None)
                control.show(run.config[name])


CHOSEN = ("dataset", "model", "protocol", "system")  # these decide which options exist and their defaults
EXPLAINED = ("dataset", "model", "protocol")
LINK_ONLY = catalogue.entry("tasks", "link").options
MAIN = (
    *CHOSEN,
    "task",
    "scheduler",
    "partitioner",
    "ranks",
    "parts",
    "groups_per_rank",
    "group_times",
    "pipelined",
    "blocks",
    "memory_gib",
    "row_ranks",
    "window",
    "full_snapshots",
    "alpha",
    "decay",
    "chunks",
    "chunker",
    "tune",
    "overlap",
    "difference",
    "cache_policy",
    "cache_window",
    "congestion",
    "epochs",
    "learning_rate",
    "slow_rank",
    "slow_ms",
)
RUN_FIELDS = ("ranks", "epochs", "learning_rate", "seed", "hidden", "layers", "parts", "device", "threads")
# one row of the panel each; "name?" is the text under a choice
_ROWS = (
    ("dataset",),
    ("dataset?",),
    ("model",),
    ("model?",),
    ("task", "protocol"),
    ("protocol?",),
    ("system", "scheduler", "partitioner"),
    ("ranks", "parts"),
    ("groups_per_rank", "group_times"),
    ("pipelined",),
    ("blocks", "memory_gib"),
    ("row_ranks",),
    ("window", "full_snapshots"),
    ("alpha", "decay"),
    ("chunks", "chunker"),
    ("tune",),
    ("overlap",),
    ("difference",),
    ("cache_policy", "cache_window"),
    ("congestion",),
    ("epochs", "learning_rate"),
    ("slow_rank", "slow_ms"),
)
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # offered where the ranks divide them; code can set others


class Settings:
    """Controls for every setting of a run; ``on_knob(name, value)`` is called for live ones while a run is active.

    ``defer(call)`` schedules a call where widgets may be changed.
    """

    def __init__(
        self,
        ranks: int,
        config: RunConfig,
        on_knob: Callable[[str, Any], None],
        *,
        defer: Callable[[Callable[[], None]], None] = lambda call: call(),
    ) -> None:
        self._on_knob = on_knob
        self._running = False
        self._watchers: list[Callable[[], None]] = []
        self._asked: dict[str, tuple[Any, float]] = {}
        self._ranks = [count for count in range(1, ranks + 1) if ranks % count == 0]
        self.controls = {name: make_control(made, self._choices(name)) for name, made in _options().items()}
        for control in self.controls.values():
            control.on_change(lambda name, value: defer(partial(self._changed, name, value)))
        # StaticText and not panes: see dashboard.app
        self.notes = {name: pn.widgets.StaticText(value="", margin=(-3, 8, 2, 9), width=285) for name in EXPLAINED}
        self._chosen: dict[str, str] = {}
        self.load(config)
        rest = [control.widget for name, control in self.controls.items() if name not in MAIN]
        self.more = folded("More settings", *rest, most_px=270)
        rows = [pn.Row(*map(self._widget, row), margin=0) for row in _ROWS]
        self.panel = pn.Column(*rows, margin=0, sizing_mode="stretch_width")

    def _widget(self, name: str) -> Any:
        """A control's widget, or the text under one."""
        return self.notes[name.removesuffix("?")] if name.endswith("?") else self.controls[name].widget

    def put_under(self, name: str, widget: Any) -> None:
        """Insert another widget under the text of a control."""
        at = next(index for index, row in enumerate(_ROWS) if row == (f"{name}?",))
        self.panel.insert(at + 1, widget)

    def _choices(self, name: str) -> Any:
        if name == "dataset":
            return dataset_choices()
        if name in ("ranks", "row_ranks"):
            return self._ranks
        if name == "parts":
            return self._parts(1)
        if name == "slow_rank":
            return {"none": -1, **{f"rank {rank}": rank for rank in range(self._ranks[-1])}}
        return {
            "system": catalogue.names("systems"),
            "model": catalogue.names("models"),
            "protocol": tuple(PROTOCOLS),
        }.get(name)

    @staticmethod
    def _parts(ranks: int) -> dict[str, int]:
        """Label -> number of partitions that this many ranks can share; 0 follows the number of ranks."""
        return {"as ranks": 0} | {str(parts): parts for parts in PARTS if parts % ranks == 0 and parts != ranks}

    def _value(self, name: str) -> Any:
        return self.controls[name].value

    @property
    def _system(self) -> str:
        """The system that decides which settings exist: the run's, until it has become the requested one."""
        return str(self._chosen["system"] if self._running else self._value("system"))

    def _active(self) -> set[str]:
        """Names of the settings that a run of the chosen system, data set and model reads."""
        owners = catalogue.option_owners(self._system, self._value("dataset"), self._value("model"))
        return {*CHOSEN, *RUN_FIELDS, *(name for names in owners.values() for name in names)}

    def config(self) -> RunConfig:
        """The values of the controls as a config.

        Raises:
            ConfigError: the values are incompatible.
        """
        return RunConfig(**{name: self._value(name) for name in self.controls if name in self._active()})

    def load(self, config: RunConfig) -> None:
        """Set every control to a config's values; those it does not read get the defaults of its choices."""
        self._asked.clear()
        self._show_dataset(config.dataset)
        chosen = {name: config[name] for name in ("system", "dataset", "protocol")}
        for name in (*CHOSEN, *self.controls):
            self.controls[name].show(_shown(name, config) if name in config.flat else default(name, **chosen))
            self.controls[name].waits(False)
        self._chosen = chosen
        self._refresh()

    def _show_dataset(self, dataset: str) -> None:
        """Offer a user's own graph, which is not in the catalogue, once it was seen."""
        self.controls["dataset"].show(dataset, dataset_label(dataset), OWN)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call ``watcher()`` whenever a setting has changed, here or in the run."""
        self._watchers.append(watcher)

    def touched(self) -> None:
        """Notify the watchers."""
        for watcher in self._watchers:
            watcher()

    def follow(self, config: RunConfig) -> None:
        """Show the live settings of the run, except for a value just requested here."""
        became_another = config.system != self._chosen["system"]
        for name, control in self.controls.items():
            if control.option.live == "no" or name not in config.flat:
                continue
            value = _shown(name, config)
            asked, until = self._asked.get(name, (None, 0.0))
            if asked == value or time.monotonic() >= until:
                self._asked.pop(name, None)
                control.show(value)
        if became_another:
            self._chosen = {name: config[name] for name in self._chosen}
            self._refresh()

    def settled(self, name: str) -> None:
        """A value that was pending until the end of the epoch has been applied, or will not be."""
        self._asked.pop(name, None)
        self.controls[name].waits(False)

    def refused(self, name: str, config: RunConfig) -> None:
        """Show the run's value again after a change was refused."""
        self.settled(name)
        if name in config.flat:
            self.controls[name].show(_shown(name, config))

    def run_is_on(self, running: bool) -> None:
        """Leave only live settings enabled while a run is active; the others apply to the next run."""
        if running != self._running:
            self._running = running
            if not running and self._value("system") != self._chosen["system"]:
                self._take_defaults("system")  # it was pending when the run ended
            self._refresh()

    def _changed(self, name: str, value: Any) -> None:
        live = self.controls[name].option.live
        if self._running and live != "no":
            waits = live == "epoch"
            self._asked[name] = (value, math.inf if waits else time.monotonic() + PATIENCE_S)
            self.controls[name].waits(waits)
            self._on_knob(name, value)
        elif name in CHOSEN:
            self._take_defaults(name)
            self._refresh()
        elif name in ("task", "ranks"):
            self._refresh()
        self.touched()

    def _take_defaults(self, changed: str) -> None:
        """Data set, protocol and system set defaults: show those of the new choice and undo those of the old."""
        before, now = self._chosen, {name: self._value(name) for name in ("system", "dataset", "protocol")}
        self._chosen = now
        if changed == "model":
            return
        for name in {*_with_defaults(changed, before[changed]), *_with_defaults(changed, now[changed])}:
            self.controls[name].show(default(name, **now))

    def _refresh(self) -> None:
        active = self._active()
        alone = catalogue.system(self._system).parts["parallel"] == "single"
        self.controls["ranks"].offer([1] if alone else self._ranks)
        self._offer_parts(alone)
        self._offer_tasks()
        linked = self._value("task") == "link"
        for name, control in self.controls.items():
            control.widget.visible = name in active and (linked or name not in LINK_ONLY)
            if name == "parts" and alone:
                control.widget.visible = False  # there is only one
            control.widget.disabled = self._running and control.option.live == "no"
        for name, note in self.notes.items():
            note.value = about(name, self._value(name))

    def _offer_parts(self, alone: bool) -> None:
        """Offer the numbers of partitions that the ranks divide; an indivisible choice becomes the number of ranks."""
        ranks, parts = self._value("ranks"), self.controls["parts"]
        if alone or parts.value % ranks or parts.value == ranks:
            parts.show(0)
        offered = self._parts(ranks)
        if parts.value not in offered.values():
            offered[str(parts.value)] = parts.value
        parts.offer(offered)

    def _offer_tasks(self) -> None:
        """Offer the tasks of the data set; if the chosen task is none of them, take the data set's own."""
        tasks = dataset_tasks(self._value("dataset"))
        if self._value("task") not in tasks:
            usual = default("task", **self._chosen)
            self.controls["task"].show(usual if usual in tasks else tasks[0])
        self.controls["task"].offer(tasks)


def _with_defaults(chooser: str, value: str) -> set[str]:
    """Names of the options for which a data set, protocol or system has a default of its own."""
    if chooser == "protocol":
        return set(PROTOCOLS[value].settings)
    if chooser == "dataset":
        # a time span in one data set's unit means nothing in another's
        return {"interval", *(() if is_stored(value) else catalogue.entry("datasets", value).defaults)}
    system = catalogue.system(value)
    return {*system.defaults, *(option for room, option in CHOSEN_BY.items() if room in system.parts)}


def _shown(name: str, config: RunConfig) -> Any:
    """The value of a setting's control for a config: 0 where there are as many partitions as ranks."""
    return 0 if name == "parts" and config.parts == config.ranks else config[name]


def _options() -> dict[str, Option]:
    """Every setting as an option: the glossary, and the names that the catalogue lists."""
    listed = {
        "dataset": "Temporal graph to train on.",
        "model": "Dynamic graph network.",
        "system": "How training is distributed.",
        "protocol": "How evaluation metrics are computed.",
    }
    default = RunConfig.model_fields
    named = {
        name: Option(
            name=name,
            owner="run",
            kind=str,
            default=default[name].default,
            meaning=meaning,
            live="epoch" if name == "system" else "no",
        )
        for name, meaning in listed.items()
    }
    glossary = {name: option(name) for name in OPTIONS}
    return {**{name: {**named, **glossary}[name] for name in MAIN}, **named, **glossary}
