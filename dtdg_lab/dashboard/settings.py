"""The settings of the next run and the live settings of this one: controls made from glossary and catalogue."""

from __future__ import annotations

import html
import math
import time
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import panel as pn

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import DataError
from dtdg_lab.core.options import CHOSEN_BY, OPTIONS, Option, default, option
from dtdg_lab.datasets.names import list_datasets
from dtdg_lab.graphs.storage import graph_folder, read_meta
from dtdg_lab.visualization.style import coloured
from dtdg_lab.widgets.controls import PATIENCE_S, folded, make_control
from dtdg_lab.widgets.live import Defer

# Settings as text: a cell that repeats them, and JSON.


_ALWAYS = ("system", "dataset", "model", "ranks", "epochs", "seed", "learning_rate")


def as_arguments(config: RunConfig) -> dict[str, object]:
    """The flat settings that differ from the defaults of ``RunConfig``, with the main ones always."""
    names = {name: getattr(config, name) for name in ("system", "dataset", "model", "ranks", "protocol")}
    plain = RunConfig(**names)
    shown = _ALWAYS if config.protocol == RunConfig.model_fields["protocol"].default else (*_ALWAYS, "protocol")
    chosen = {name: value for name, value in config.flat.items() if name in shown or value != plain[name]}
    fields = RunConfig.model_fields
    return {name: chosen[name] for name in (*fields, *sorted(chosen.keys() - fields.keys())) if name in chosen}


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
    for info in list_datasets():
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
        text = catalogue.PROTOCOLS[value].meaning
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


# The controls beside the charts, for every setting.


CHOSEN = ("dataset", "model", "protocol", "system")  # these decide which options exist and their defaults
EXPLAINED = ("dataset", "model", "protocol")
LINK_ONLY = catalogue.entry("tasks", "link").options
RUN_FIELDS = ("ranks", "epochs", "learning_rate", "seed", "hidden", "layers", "parts", "device", "threads")
_DECLARED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_OF_FAMILIES = [row for family in catalogue.families() for row in family.setting_rows]
_ROWS = (*_DECLARED["above"], *_OF_FAMILIES, *_DECLARED["below"])
MAIN = tuple(name for row in _ROWS for name in row if not name.endswith("?"))
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # offered where the ranks divide them; code can set others


class Settings:
    """Controls for every setting of a run; ``on_change(name, value)`` is called for live ones while a run is active.

    ``defer(call)`` schedules a call where widgets may be changed.
    """

    def __init__(
        self,
        ranks: int,
        config: RunConfig,
        on_change: Callable[[str, Any], None],
        *,
        defer: Defer = lambda call: call(),
    ) -> None:
        self._on_change = on_change
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
        beside = {name: control.widget for name, control in self.controls.items()}
        beside |= {f"{name}?": note for name, note in self.notes.items()}
        rows = [pn.Row(*(beside[name] for name in row), margin=0) for row in _ROWS]
        self.panel = pn.Column(*rows, margin=0, sizing_mode="stretch_width")

    def put_under(self, name: str, widget: Any) -> None:
        """Insert another widget under the text of a control."""
        at = next(index for index, row in enumerate(_ROWS) if list(row) == [f"{name}?"])
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
            "protocol": tuple(catalogue.PROTOCOLS),
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
        active = self._active()
        return RunConfig(**{name: self._value(name) for name in self.controls if name in active})

    def load(self, config: RunConfig) -> None:
        """Set every control to a config's values; those it does not read get the defaults of its choices."""
        self._asked.clear()
        # a user's own graph is not in the catalogue: it is offered once it was seen
        self.controls["dataset"].show(config.dataset, dataset_label(config.dataset), OWN)
        chosen = {name: config[name] for name in ("system", "dataset", "protocol")}
        for name in (*CHOSEN, *self.controls):
            self.controls[name].show(_shown(name, config) if name in config.flat else default(name, **chosen))
            self.controls[name].waits(False)
        self._chosen = chosen
        self._refresh()

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
            self._on_change(name, value)
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
        return set(catalogue.PROTOCOLS[value].settings)
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
    named = {}
    for name, meaning in listed.items():
        facts: dict[str, Any] = {"name": name, "owner": "run", "kind": str, "default": default[name].default}
        named[name] = Option(**facts, meaning=meaning, live="epoch" if name == "system" else "no")
    glossary = {name: option(name) for name in OPTIONS}
    return {**{name: {**named, **glossary}[name] for name in MAIN}, **named, **glossary}
