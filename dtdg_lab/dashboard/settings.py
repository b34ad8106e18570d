"""The settings of the next run and the live knobs of this one: controls made from glossary and catalogue."""

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
    """The flat settings that differ from what ``RunConfig`` would take by itself, with the main ones always."""
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


# What the controls offer by name, and the words under a choice: from the catalogue and the protocols.


HERE, DOWNLOAD, GENERATED, OWN = "On this machine", "Download at first use", "Generated here", "Your own graphs"
_GENERATORS = "dtdg_lab.datasets.generators."
_NOTE = f"font-size:11.5px;line-height:1.3;color:{coloured('soft')}"


def is_generated(dataset: str) -> bool:
    """Whether a data set of the catalogue is made by a seeded generator."""
    return not is_stored(dataset) and catalogue.entry("datasets", dataset).target.startswith(_GENERATORS)


def is_stored(dataset: str) -> bool:
    """Whether it names a graph of the user's own, stored under its hash."""
    return dataset.startswith(catalogue.STORED)


def dataset_choices() -> dict[str, dict[str, str]]:
    """Label -> name of every data set, in groups: files that are here, generators, files to be downloaded."""
    groups: dict[str, dict[str, str]] = {HERE: {}, GENERATED: {}, DOWNLOAD: {}}
    for info in datasets():
        group = GENERATED if is_generated(info.name) else HERE if info.on_this_machine else DOWNLOAD
        groups[group][info.name] = info.name
    return {group: choices for group, choices in groups.items() if choices}


def dataset_label(dataset: str) -> str:
    """What a data set is called in the choice: its name; of the user's own, the name it was given and its hash."""
    if not is_stored(dataset):
        return dataset
    return f"{_stored_meta(dataset).get('name', 'not on this machine')} ({dataset.removeprefix(catalogue.STORED)[:8]})"


def dataset_tasks(dataset: str) -> tuple[str, ...]:
    """What can be learned on a data set."""
    if not is_stored(dataset):
        return catalogue.entry("datasets", dataset).tasks
    classified = "classes" in _stored_meta(dataset).get("arrays", ())
    return ("regression", "link", "classification") if classified else ("regression", "link")


def about(name: str, value: str) -> str:
    """The words under a choice, as HTML: what the data set or model is, what the protocol means."""
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
    except DataError:  # the page shows the name all the same; a run of it says what is wrong
        return {}


# One control: a widget made from a glossary option, which can be read, shown a value, and listened to.


# How options are presented; what they may be is in the glossary.
LABELS: Mapping[str, str] = MappingProxyType(
    {
        "slow_rank": "Slow down rank",
        "slow_ms": "by (ms)",
        "gc_layers": "Graph convolutions",
        "dealing": "Dealing of load_aware",
        "imbalance": "Imbalance allowed",
        "cache_gib": "Parts in memory (GiB)",
        "halo_reuse": "Reuse rows of features",
        "groups_per_rank": "Groups per rank",
        "group_times": "Times of groups",
        "pipelined": "Groups of a step in work together",
        "schedule_gap": "Gap of dygnex_ilp",
        "schedule_limit_s": "Search at most (s)",
        "schedule_targets": "Targets of DyGNeX-G (0: by size)",
        "blocks": "Blocks of time (0: fit)",
        "memory_gib": "Fit into (GiB)",
        "row_ranks": "Ranks that share a snapshot",
        "overlap": "Send while computing",
        "difference": "Bring graphs as differences",
        "graphs": "Graphs of other blocks",
        "full_snapshots": "Full snapshots (K)",
        "decay": "Decay of older ones",
        "chunks": "Chunks a part (0: fit)",
        "chunker": "Chunks by",
        "tune": "Tune K and alpha by the validation split",
        "tune_every": "Look every (epochs)",
        "tune_memory_gib": "Tune within (GiB)",
        "fanout": "Neighbours sampled",
        "batch_snapshots": "Snapshots a batch (N_S)",
        "batch_vertices": "Nodes a batch (N_V)",
        "load_groups": "Groups of like load",
        "epoch_batches": "Batches an epoch",
        "reservoir": "Reservoir of batches",
        "reservoir_gib": "Reservoir (GiB)",
        "reservoir_uses": "Uses of a kept batch (0: all)",
        "stand_in_gib": "All nodes stand in within (GiB)",
        "adjuster": "Sizes chosen by",
        "snapshot_sizes": "Sizes in snapshots",
        "vertex_sizes": "Sizes in nodes",
        "decide_every": "Steps a choice",
        "reward_loss": "Rewarded by the loss of",
        "reward": "Reward",
        "agent_rate": "The DQN's learning rate",
        "cache_policy": "Remote features",
        "cache_window": "Window (W, steps)",
        "cache_bias": "Most of the cache for part (-1: even)",
        "cache_rows": "Rows in the cache",
        "queue_depth": "Batches ahead (Q)",
        "fetch_timeout_s": "Give an owner up after (s)",
        "policy_file": "Trained policy (file)",
        "batch_size": "Seeds a batch",
        "batch_length": "Snapshots a batch",
        "fanouts": "Neighbours by layer",
        "sampler": "Sampled by",
        "links": "Links by hand",
        "congestion_ms": "Delay of slow links (ms)",
        "congestion_mbit": "Rate of slow links (Mbit/s, 0: any)",
        "congestion_from": "Congested from epoch",
        "congestion_cycle": "Cycle (epochs)",
        "congestion_table": "Table of the schedule",
        "congestion_file": "Trace (file)",
        "congestion_by": "Links slowed by",
        "power_idle_w": "Idle power (W)",
        "power_max_w": "Busy power (W)",
        "power_gpu_idle_w": "GPU idle (W)",
        "power_gpu_max_w": "GPU busy (W)",
        "exchange": "Ranks exchange",
        "average_every_s": "Average every (T_mu, s)",
    }
)
# where a label only says something beside its neighbour's
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
    """A widget for one option. ``on_change`` calls back for what a person does, never for what ``show`` does."""

    def __init__(self, option: Option, choices: Choices | None = None) -> None:
        self.option = option
        self._quiet: int | None = None  # the thread that shows a value now; a person's may come on another
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
        """What the widget is called."""
        unit = self.option.unit
        bare = self.name.removesuffix(f"_{unit.lower()}") if len(unit) <= 2 else self.name
        words = LABELS.get(self.name, bare.replace("_", " ").capitalize())
        return f"{words} ({unit})" if unit and "(" not in words and unit not in words.lower().split() else words

    @property
    def value(self) -> Any:
        """What the widget stands at."""
        return self._typed(self.widget.value)

    def _typed(self, value: Any) -> Any:
        return float(value) if self.option.kind is float and value is not None else value

    def show(self, value: Any, label: str = "", group: str = "Others") -> None:
        """Put the widget at a value, without a call back; a choice it does not offer yet is added as ``label``."""
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
        """Say beside the label whether what was chosen still waits to be applied."""
        self.widget.label = f"{self.label} · waits" if waiting else self.label

    def offer(self, choices: Choices) -> None:
        """Change what a choice offers; the value goes to the nearest one left: itself, or the last."""
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
        """Call ``listener(name, value)`` when a person has chosen a value: on release, for a slider."""
        self._listener = listener

    def _changed(self, event: Any) -> None:
        if self._quiet != threading.get_ident() and self._listener is not None and event.new is not None:
            self._listener(self.name, self._typed(event.new))


def _values(choices: Choices) -> list[Any]:
    """The values that choices stand for."""
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
    """A slider over powers of ten, for a positive number."""

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


# A part of the controls that is folded away until it is wanted.


def folded(title: str, *content: Any, most_px: int = 0) -> pn.Card:
    """The content under a title that opens it; what is higher than ``most_px``, where given, scrolls."""
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


# A row of a run's live knobs beside the charts that show what they do.


PATIENCE_S = 3.0  # for a change to be made before the knob shows what the run has


class LiveWidgets:
    """A row of live knobs of the run that is shown; hidden where it has none, disabled where it does not go on.

    Each is the same setting as the one beside the dashboard: whatever was turned last counts.

    Args:
        names: of the settings.
        apply: asks the run for changes.
    """

    def __init__(self, names: Sequence[str], apply: Callable[[dict[str, Any]], None]) -> None:
        self._apply = apply
        self._turned: dict[str, tuple[Any, float]] = {}  # what was asked for here, and until when it is waited for
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
        """Put the knobs where the run has them, but not over what was just asked for here."""
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


CHOSEN = ("dataset", "model", "protocol", "system")  # these decide which options there are, or what they stand at
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
# one row of the panel each; "name?" stands for the words under a choice
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
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # that are offered where the ranks divide them; a cell sets others


class Settings:
    """Controls for every setting of a run; ``on_knob(name, value)`` is called for live ones while a run is on.

    ``defer(call)`` has a call made where widgets may be changed.
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
        # StaticText and not panes: see dash.app
        self.notes = {name: pn.widgets.StaticText(value="", margin=(-3, 8, 2, 9), width=285) for name in EXPLAINED}
        self._stood: dict[str, str] = {}
        self.load(config)
        rest = [control.widget for name, control in self.controls.items() if name not in MAIN]
        self.more = folded("More settings", *rest, most_px=270)
        rows = [pn.Row(*map(self._widget, row), margin=0) for row in _ROWS]
        self.panel = pn.Column(*rows, margin=0, sizing_mode="stretch_width")

    def _widget(self, name: str) -> Any:
        """A control's widget, or the words under one."""
        return self.notes[name.removesuffix("?")] if name.endswith("?") else self.controls[name].widget

    def put_under(self, name: str, widget: Any) -> None:
        """Put another widget under the words of a control."""
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
        """Label -> number of parts that so many ranks can share; 0 follows the number of ranks."""
        return {"as ranks": 0} | {str(parts): parts for parts in PARTS if parts % ranks == 0 and parts != ranks}

    def _value(self, name: str) -> Any:
        return self.controls[name].value

    @property
    def _system(self) -> str:
        """The system that decides which settings there are: the run's, until it has become the one asked for."""
        return str(self._stood["system"] if self._running else self._value("system"))

    def _active(self) -> set[str]:
        """Names of the settings that a run of the chosen system, data set and model reads."""
        owners = catalogue.option_owners(self._system, self._value("dataset"), self._value("model"))
        return {*CHOSEN, *RUN_FIELDS, *(name for names in owners.values() for name in names)}

    def config(self) -> RunConfig:
        """What the controls say.

        Raises:
            ConfigError: the values do not go together.
        """
        return RunConfig(**{name: self._value(name) for name in self.controls if name in self._active()})

    def load(self, config: RunConfig) -> None:
        """Put every control at a config's values; one it does not read at what its choices bring."""
        self._asked.clear()
        self._show_dataset(config.dataset)
        brought = {name: config[name] for name in ("system", "dataset", "protocol")}
        for name in (*CHOSEN, *self.controls):
            self.controls[name].show(_shown(name, config) if name in config.flat else default(name, **brought))
            self.controls[name].waits(False)
        self._stood = brought
        self._refresh()

    def _show_dataset(self, dataset: str) -> None:
        """A graph of the user's own is not in the catalogue: it is offered once it was seen."""
        self.controls["dataset"].show(dataset, dataset_label(dataset), OWN)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call ``watcher()`` whenever a setting has changed, here or in the run."""
        self._watchers.append(watcher)

    def touched(self) -> None:
        """Tell the watchers."""
        for watcher in self._watchers:
            watcher()

    def follow(self, config: RunConfig) -> None:
        """Show the live knobs of the run as they are, but not over a value just asked for here."""
        became_another = config.system != self._stood["system"]
        for name, control in self.controls.items():
            if control.option.live == "no" or name not in config.flat:
                continue
            value = _shown(name, config)
            asked, until = self._asked.get(name, (None, 0.0))
            if asked == value or time.monotonic() >= until:
                self._asked.pop(name, None)
                control.show(value)
        if became_another:
            self._stood = {name: config[name] for name in self._stood}
            self._refresh()

    def settled(self, name: str) -> None:
        """A value that waited for the end of the epoch has been applied, or will not be."""
        self._asked.pop(name, None)
        self.controls[name].waits(False)

    def refused(self, name: str, config: RunConfig) -> None:
        """Show the run's value again after a change was refused."""
        self.settled(name)
        if name in config.flat:
            self.controls[name].show(_shown(name, config))

    def run_is_on(self, running: bool) -> None:
        """Leave only live knobs enabled while a run is on; the others apply to the next run."""
        if running != self._running:
            self._running = running
            if not running and self._value("system") != self._stood["system"]:
                self._take_defaults("system")  # it was asked for when the run ended
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
        """Data set, protocol and system bring defaults: show those of the new choice, take back those of the old."""
        before, now = self._stood, {name: self._value(name) for name in ("system", "dataset", "protocol")}
        self._stood = now
        if changed == "model":
            return
        for name in {*_brought(changed, before[changed]), *_brought(changed, now[changed])}:
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
                control.widget.visible = False  # there is but one
            control.widget.disabled = self._running and control.option.live == "no"
        for name, note in self.notes.items():
            note.value = about(name, self._value(name))

    def _offer_parts(self, alone: bool) -> None:
        """The numbers of parts that the ranks divide; where they do not divide the one chosen, as many as ranks."""
        ranks, parts = self._value("ranks"), self.controls["parts"]
        if alone or parts.value % ranks or parts.value == ranks:
            parts.show(0)
        offered = self._parts(ranks)
        if parts.value not in offered.values():
            offered[str(parts.value)] = parts.value
        parts.offer(offered)

    def _offer_tasks(self) -> None:
        """The tasks of the data set; where the one chosen is none of them, the data set's own."""
        tasks = dataset_tasks(self._value("dataset"))
        if self._value("task") not in tasks:
            usual = default("task", **self._stood)
            self.controls["task"].show(usual if usual in tasks else tasks[0])
        self.controls["task"].offer(tasks)


def _brought(chooser: str, value: str) -> set[str]:
    """Names of the options for which a data set, protocol or system has a default of its own."""
    if chooser == "protocol":
        return set(PROTOCOLS[value].settings)
    if chooser == "dataset":
        # a length of time in one data set's unit means nothing in another's
        return {"interval", *(() if is_stored(value) else catalogue.entry("datasets", value).defaults)}
    system = catalogue.system(value)
    return {*system.defaults, *(option for room, option in CHOSEN_BY.items() if room in system.parts)}


def _shown(name: str, config: RunConfig) -> Any:
    """What the control of a setting stands at for a config: 0 where there are as many parts as ranks."""
    return 0 if name == "parts" and config.parts == config.ranks else config[name]


def _options() -> dict[str, Option]:
    """Every setting as an option: the glossary, and the names that the catalogue lists."""
    listed = {
        "dataset": "Temporal graph that is trained on.",
        "model": "Dynamic graph network.",
        "system": "How training is distributed.",
        "protocol": "What an evaluation number means.",
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
