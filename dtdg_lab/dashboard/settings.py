"""The settings of the next run and the live settings of this one: controls made from glossary and catalogue."""

from __future__ import annotations

import html
import math
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import panel as pn

from dtdg_lab.cards.card import MAIN as MAIN_SYSTEMS
from dtdg_lab.cards.card import PAPERS
from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import DataError, LabError
from dtdg_lab.core.options import CHOSEN_BY, OPTIONS, Option, default, option
from dtdg_lab.datasets.names import list_datasets
from dtdg_lab.graphs.storage import FOLLOWING, LABEL_ARRAYS, graph_folder, read_meta
from dtdg_lab.visualization.style import coloured
from dtdg_lab.widgets.controls import PATIENCE_S, folded, make_control
from dtdg_lab.widgets.live import Defer
from dtdg_lab.widgets.system_cards import SystemCard, SystemCards, cards_of_families

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
_NOTE = f"font-size:11.5px;line-height:1.3;color:{coloured('soft')}"


def is_generated(dataset: str) -> bool:
    """Return whether a data set of the catalogue comes from a seeded generator.

    Of one that only a run's folder describes, this is not known: False.
    """
    if is_stored(dataset) or ("datasets", dataset) in catalogue.ABSENT:
        return False
    return hasattr(catalogue.entry("datasets", dataset).load(), "generate")


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
        return catalogue.tasks_of(dataset)
    arrays = _stored_meta(dataset).get("arrays", (f"{FOLLOWING}indptr",))
    return catalogue.tasks_with([label for label, array in LABEL_ARRAYS.items() if array in arrays])


_KINDS = {"dataset": "datasets", "model": "models", "task": "tasks"}


def about(name: str, value: str, refused: Mapping[str, str] = MappingProxyType({})) -> str:
    """The text under a choice, as HTML: what was chosen, or why it will be refused, and which others will be.

    Args:
        name: of the setting.
        value: that is chosen.
        refused: value -> why it is certain to be refused beside the other settings.
    """
    if value in refused:
        said = f'<span style="color:{coloured("problem")}">{html.escape(refused[value], quote=False)}</span>'
    else:
        said = html.escape(_meaning(name, value), quote=False)
    others = {other: why for other, why in refused.items() if other != value}
    if others:
        reasons = "".join(f"<div>{html.escape(_first_sentence(why), quote=False)}</div>" for why in others.values())
        said += f"<details><summary>Not available: {html.escape(', '.join(others))}</summary>{reasons}</details>"
    return f'<div style="{_NOTE}">{said}</div>'


def _meaning(name: str, value: str) -> str:
    if name == "protocol":
        text = catalogue.PROTOCOLS[value].meaning
        return f"{text[0].upper()}{text[1:]}."
    if name == "dataset" and is_stored(value):
        return str(_stored_meta(value).get("source", "Not stored on this machine."))
    return catalogue.system(value).summary if name == "system" else catalogue.entry(_KINDS[name], value).summary


def _first_sentence(text: str) -> str:
    return f"{text.partition('. ')[0].rstrip('.')}."


def _stored_meta(dataset: str) -> Mapping[str, Any]:
    """The meta.json of a stored graph; empty where this machine does not hold it."""
    try:
        return read_meta(graph_folder(dataset.removeprefix(catalogue.STORED)))
    except DataError:  # the page shows the name all the same; a run reports the problem
        return {}


# The controls beside the charts, for every setting.


CHOSEN = ("dataset", "model", "protocol", "system")  # these decide which options exist and their defaults
EXPLAINED = ("system", "dataset", "model", "task", "protocol")
NARROW = 262  # pixels: a text among folded controls
JUDGED = ("system", "model", "task")  # choices that others may rule out
RUN_FIELDS = ("ranks", "epochs", "learning_rate", "seed", "hidden", "layers", "parts", "device", "threads")
_DECLARED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_ORDER = {paper["name"]: place for place, paper in enumerate(PAPERS.values())}  # of cards; others follow
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # offered where the ranks divide them; code can set others


def _system_rows() -> list[Sequence[str]]:
    """Return the rows of the main settings of systems and training; families of systems add theirs."""
    of_families = [row for family in catalogue.families() for row in family.setting_rows]
    return [*_DECLARED["system"], *of_families, *_DECLARED["exchange"], *_DECLARED["training"]]


def _main_names() -> list[str]:
    """Return the names of the settings that are not folded."""
    return [name for row in (*_system_rows(), *_DECLARED["data"]) for name in row if not name.endswith("?")]


class Settings:
    """Controls for every setting of a run; ``on_change(name, value)`` is called for live ones while a run is active.

    ``defer(call)`` schedules a call where widgets may be changed.

    Attributes:
        cards: of all systems; the chosen one offers its own below.
        panel: settings of the chosen system and of training.
        data: settings of data, model and task, folded.
        more: all others, folded.
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
        self._followed: dict[str, Any] = {}
        self._ranks = [count for count in range(1, ranks + 1) if ranks % count == 0]
        self.controls = {name: make_control(made, self._choices(name)) for name, made in _options().items()}
        for control in self.controls.values():
            control.on_change(lambda name, value: defer(partial(self._changed, name, value)))
        # StaticText and not panes: see dashboard.app
        self.notes = {name: pn.widgets.StaticText(value="", margin=(-3, 8, 2, 9), width=NARROW) for name in EXPLAINED}
        self._chosen: dict[str, str] = {}
        self._of_run = config
        self.cards = SystemCards(self._card_chosen, defer=defer, sizing_mode="stretch_width", margin=(2, 4, 8, 4))
        self._cards = sorted(cards_of_families(), key=lambda card: _ORDER.get(card.name, len(_ORDER)))
        main = _main_names()
        rest = [control.widget for name, control in self.controls.items() if name not in main]
        self.more = folded("More settings", *rest, most_px=270)
        self.panel = pn.Column(*self._rows(_system_rows()), margin=0, sizing_mode="stretch_width")
        self.of_data = pn.Column(*self._rows(_DECLARED["data"]), margin=0, sizing_mode="stretch_width")
        self.data = folded("Data", self.of_data)
        self.load(config)

    def _rows(self, rows: Sequence[Sequence[str]]) -> list[pn.Row]:
        beside = {name: control.widget for name, control in self.controls.items()}
        beside |= {f"{name}?": note for name, note in self.notes.items()}
        return [pn.Row(*(beside[name] for name in row), margin=0) for row in rows]

    def put_under_dataset(self, widget: Any) -> None:
        """Insert another widget under the text of the data set."""
        self.of_data.insert(1 + _DECLARED["data"].index(["dataset?"]), widget)

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
        chosen = {name: self._value(name) for name in CHOSEN_BY.values()}
        owners = catalogue.option_owners(self._system, self._value("dataset"), self._value("model"), chosen)
        return {*CHOSEN, *RUN_FIELDS, *(name for names in owners.values() for name in names)}

    def config(self) -> RunConfig:
        """The values of the controls as a config.

        Raises:
            LabError: the values are incompatible.
        """
        active = self._active()
        config = RunConfig(**{name: self._value(name) for name in self.controls if name in active})
        catalogue.check_loss(config["task"], config.system)
        return config

    def load(self, config: RunConfig) -> None:
        """Set every control to a config's values; those it does not read get the defaults of its choices."""
        self._asked.clear()
        self._followed.clear()
        self._of_run = config
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
        """Show live settings that have changed in the run, except for a value just requested here.

        Others are left alone: a slider that is being dragged would jump back.
        """
        became_another = config.system != self._chosen["system"]
        self._of_run = config
        for name, control in self.controls.items():
            if control.option.live == "no" or name not in config.flat:
                continue
            value = _shown(name, config)
            asked, until = self._asked.get(name, (None, 0.0))
            if asked == value or time.monotonic() >= until:
                if self._asked.pop(name, None) is not None or self._followed.get(name) != value:
                    control.show(value)
                self._followed[name] = value
        if became_another:
            self._chosen = {name: config[name] for name in self._chosen}
            self._refresh()

    def settled(self, name: str) -> None:
        """A value that was pending until the end of the epoch has been applied, or will not be."""
        self._asked.pop(name, None)
        self._followed.pop(name, None)
        self.controls[name].waits(False)

    def refused(self, name: str, config: RunConfig) -> None:
        """Show the run's value again after a change was refused."""
        self.settled(name)
        if name in config.flat:
            self.controls[name].show(_shown(name, config))
        if name == "system":
            self._refresh()

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
            if name == "system":
                self._offer_systems()
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
        alone = catalogue.system(self._system).family == "single"
        self.controls["ranks"].offer([1] if alone else self._ranks)
        self._offer_parts(alone)
        self._offer_tasks()
        self._offer_systems()
        read = {"task", *catalogue.entry("tasks", self._value("task")).options}
        for name, control in self.controls.items():
            control.widget.visible = name in active and (control.option.owner != "tasks" or name in read)
            if name == "parts" and alone:
                control.widget.visible = False  # there is only one
            control.widget.disabled = self._running and control.option.live == "no"
        said = (dataset_label(self._value("dataset")), self._value("model"), self._value("task"))
        self.data.title = f"Data: {' · '.join(said)}"

    def _card_chosen(self, name: str) -> None:
        """Choose the card's main system, or the first of its others that can be chosen."""
        card = next(card for card in self._cards if card.name == name)
        if self._value("system") in card.systems:
            return
        able = [system for system in (_main(card), *card.systems) if not self._refusal("system", system)]
        if able:
            self.controls["system"].show(able[0])
            self._changed("system", able[0])

    def _offer_systems(self) -> None:
        """Show the cards, offer the systems of the chosen one, and mark all choices that will be refused."""
        chosen = self._value("system")
        refused = {name: self._refused(name) for name in JUDGED}
        shown = []
        for card in self._cards:
            if chosen in card.systems:
                self.controls["system"].offer(card.systems)
            able = set(card.systems) - set(refused["system"])
            why = "" if able else _first_sentence(refused["system"][_main(card)])
            shown.append(replace(card, chosen=chosen in card.systems, refused=why))
        self.cards.draw(shown)
        for name in JUDGED:
            self.controls[name].refuse(refused[name])
        for name, note in self.notes.items():
            offered = self.controls[name].widget.values
            reasons = {value: why for value, why in refused.get(name, {}).items() if value in offered}
            note.value = about(name, self._value(name), reasons)

    def _refused(self, name: str) -> dict[str, str]:
        """Choices of a setting that are certain to be refused beside the others, with the reasons."""
        if self._running and self.controls[name].option.live == "no":
            return {}  # it cannot be chosen now
        values = catalogue.names("systems") if name == "system" else self.controls[name].widget.values
        reasons = {value: self._refusal(name, value) for value in values}
        return {value: why for value, why in reasons.items() if why}

    def _refusal(self, name: str, value: str) -> str:
        """Why a value is certain to be refused, by the run or beside the present choices; empty if it is not."""
        try:
            if self._running:
                config = self._of_run.replace(**{name: value})
            else:
                config = RunConfig(**{each: self._value(each) for each in ("dataset", *JUDGED)} | {name: value})
            catalogue.check_loss(config["task"], config.system)
        except LabError as error:
            return str(error)
        return ""

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


def _main(card: SystemCard) -> str:
    """The system that a card chooses: its paper's, or the first."""
    return MAIN_SYSTEMS.get(card.name.lower(), card.systems[0])


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
    return {**{name: {**named, **glossary}[name] for name in _main_names()}, **named, **glossary}
