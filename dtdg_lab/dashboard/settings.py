"""The settings of the next run and the live settings of this one: controls made from glossary and catalogue."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import panel as pn

from dtdg_lab.cards.card import MAIN as MAIN_SYSTEMS
from dtdg_lab.cards.card import PAPERS
from dtdg_lab.config import catalogue
from dtdg_lab.config.options import CHOSEN_BY, OPTIONS, Option, default, option
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.dashboard.choices import (
    OWN,
    about,
    dataset_choices,
    dataset_tasks,
    first_sentence,
    is_stored,
)
from dtdg_lab.dashboard.settings_panel import WIDE, SettingsPanel
from dtdg_lab.visualization.run_names import dataset_title, value_text
from dtdg_lab.widgets.component import Defer
from dtdg_lab.widgets.controls import PATIENCE_S, make_control
from dtdg_lab.widgets.navigation import SystemCard, cards_of_families

CHOSEN = ("dataset", "model", "protocol", "system")  # these decide which options exist and their defaults
EXPLAINED = ("system", "dataset", "model", "task", "protocol")
JUDGED = ("system", "model", "task")  # choices that others may rule out
RUN_FIELDS = ("ranks", "epochs", "learning_rate", "seed", "hidden", "layers", "parts", "device", "threads")
_ORDER = {paper["name"]: index for index, paper in enumerate(PAPERS.values())}  # of cards; others follow
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # offered where the ranks divide them; code can set others
NO_RANK = -1  # of ``slow_rank``
OF_CONGESTION = ("congestion_ms", "congestion_mbit")  # of use only with a pattern


class Settings:
    """Controls for every setting of a run; ``on_change(name, value)`` is called for live ones while a run is active.

    ``defer(call)`` schedules a call where widgets may be changed, ``on_cards(cards)`` gets the cards of all
    systems, and ``on_preview(name, value)`` what a slider stands at while it is dragged.

    Attributes:
        controls: of every setting.
        notes: a text under some of them.
        layout: where they are on the page.
    """

    def __init__(
        self,
        ranks: int,
        config: RunConfig,
        on_change: Callable[[str, Any], None],
        *,
        defer: Defer = lambda call: call(),
        on_cards: Callable[[Sequence[SystemCard]], None] = lambda cards: None,
        on_preview: Callable[[str, Any], None] = lambda name, value: None,
    ) -> None:
        self._on_change, self._on_cards = on_change, on_cards
        self._running = False
        self._watchers: list[Callable[[], None]] = []
        self._asked: dict[str, tuple[Any, float]] = {}
        self._followed: dict[str, Any] = {}
        self._waiting: set[str] = set()  # settings whose labels say what they will become
        self._ranks = [count for count in range(1, ranks + 1) if ranks % count == 0]
        self.controls = {
            name: make_control(setting, _first_choices(name, self._ranks)) for name, setting in _options().items()
        }
        for control in self.controls.values():
            control.on_change(lambda name, value: defer(partial(self._changed, name, value)))
            control.on_preview(lambda name, value: defer(partial(on_preview, name, value)))
        # StaticText and not panes: a pane that changes in a notebook asks the internet for its style sheets
        self.notes = {name: pn.widgets.StaticText(value="", margin=(-3, 8, 2, 9), **WIDE) for name in EXPLAINED}
        self._chosen: dict[str, str] = {}
        self._of_run = config
        self._cards = sorted(cards_of_families(), key=lambda card: _ORDER.get(card.name, len(_ORDER)))
        self.layout = SettingsPanel(self.controls, self.notes)
        self.load(config)

    def _value(self, name: str) -> Any:
        return self.controls[name].value

    @property
    def _system(self) -> str:
        """The system that decides which settings exist: the run's, until it has become the requested one."""
        return str(self._chosen["system"] if self._running else self._value("system"))

    def _active(self) -> set[str]:
        """Return the names of the settings that a run of the chosen system, data set and model reads."""
        choices = {name: self._value(name) for name in CHOSEN_BY.values()}
        owners = catalogue.option_owners(self._system, self._value("dataset"), self._value("model"), choices)
        return {*CHOSEN, *RUN_FIELDS, *(name for names in owners.values() for name in names)}

    def config(self) -> RunConfig:
        """Return the values of the controls as a config.

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
        self._waiting.clear()
        self._of_run = config
        # a user's own graph is not in the catalogue: it is offered once it was seen
        self.controls["dataset"].show(config.dataset, dataset_title(config.dataset), OWN)
        choices = {name: config[name] for name in ("system", "dataset", "protocol")}
        for name in (*CHOSEN, *self.controls):
            self.controls[name].show(_shown(name, config) if name in config.flat else default(name, **choices))
            self.controls[name].waits()
        self._chosen = choices
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
            requested, until = self._asked.get(name, (None, 0.0))
            if requested == value or time.monotonic() >= until:
                is_new = self._asked.pop(name, None) is not None or self._followed.get(name) != value
                if is_new or control.is_stale:
                    control.follow(value)
                self._followed[name] = value
        self._end_full_snapshots()
        if became_another:
            self._chosen = {name: config[name] for name in self._chosen}
            self._refresh()

    @property
    def system(self) -> str:
        """The system that is chosen."""
        return str(self._value("system"))

    @property
    def of_run(self) -> RunConfig:
        """The settings of the run as they were followed last."""
        return self._of_run

    def is_waiting(self, name: str) -> bool:
        """Return whether a value that was chosen here waits for the end of an epoch, as its label says."""
        return name in self._waiting

    def take(self, changes: Mapping[str, Any]) -> None:
        """Show these values as if a person had chosen them for the next run."""
        for name, value in changes.items():
            self.controls[name].show(value)
            self._changed(name, value)

    def settled(self, name: str) -> None:
        """Stop waiting for a value that was applied at the end of its epoch, or never will be."""
        self._asked.pop(name, None)
        self._followed.pop(name, None)
        self._waiting.discard(name)
        self.controls[name].waits()

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
            self.layout.fold_fixed(running)
            if not running and self._value("system") != self._chosen["system"]:
                self._take_defaults("system")  # it was pending when the run ended
            self._refresh()

    def _changed(self, name: str, value: Any) -> None:
        live = self.controls[name].option.live
        if self._running and live != "no":
            waits = live == "epoch"
            self._asked[name] = (value, math.inf if waits else time.monotonic() + PATIENCE_S)
            if waits and name in self._of_run.flat:
                old_text = value_text(name, _shown(name, self._of_run))
                self.controls[name].waits(f"{old_text} → {value_text(name, value)}")
                self._waiting.add(name)
            self._on_change(name, value)
            if name == "system":
                self._offer_systems()
            elif name == "congestion":
                self._refresh()
        elif name in CHOSEN:
            self._take_defaults(name)
            self._refresh()
        elif name in ("task", "ranks", "congestion"):
            self._refresh()
        self._end_full_snapshots()
        self.touched()

    def _take_defaults(self, changed: str) -> None:
        """Show the defaults of a new data set, protocol or system, and undo those of the old one."""
        previous, current = self._chosen, {name: self._value(name) for name in ("system", "dataset", "protocol")}
        self._chosen = current
        if changed == "model":
            return
        for name in {*_with_defaults(changed, previous[changed]), *_with_defaults(changed, current[changed])}:
            self.controls[name].show(default(name, **current))
        if changed == "system" and _is_alone(previous["system"]) and not _is_alone(current["system"]):
            self.controls["ranks"].show(self._ranks[-1])

    def _refresh(self) -> None:
        active = self._active()
        alone = _is_alone(self._system)
        self.controls["ranks"].offer([1] if alone else self._ranks)
        self._offer_parts(alone)
        self._offer_slow_ranks()
        self._end_full_snapshots()
        self._offer_tasks()
        self._offer_systems()
        read = {"task", *catalogue.entry("tasks", self._value("task")).options}
        for name, control in self.controls.items():
            control.widget.visible = name in active and (control.option.owner != "tasks" or name in read)
            if name == "parts" and alone:
                control.widget.visible = False  # there is only one
            control.widget.disabled = self._running and control.option.live == "no"
        several = sum(self._value("system") in card.systems and len(card.systems) > 1 for card in self._cards)
        self.controls["system"].widget.visible = several > 0
        for name in OF_CONGESTION:
            self.controls[name].widget.visible &= self._value("congestion") != "none"
        self.layout.show_headings()

    def choose_card(self, name: str) -> None:
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
        system = self._value("system")
        refused = {name: self._refused(name) for name in JUDGED}
        cards = []
        for card in self._cards:
            if system in card.systems:
                self.controls["system"].offer(card.systems)
            able = set(card.systems) - set(refused["system"])
            why = "" if able else first_sentence(refused["system"][_main(card)])
            cards.append(replace(card, chosen=system in card.systems, refused=why))
        self._on_cards(cards)
        for name in JUDGED:
            self.controls[name].refuse(refused[name])
        for name, note in self.notes.items():
            offered = self.controls[name].widget.values
            reasons = {value: why for value, why in refused.get(name, {}).items() if value in offered}
            note.value = about(name, self._value(name), reasons)
            if name == "system":  # what it is stands in the picture
                note.visible = bool(reasons)

    def _refused(self, name: str) -> dict[str, str]:
        """Return the choices of a setting that the others rule out, with the reasons."""
        if self._running and self.controls[name].option.live == "no":
            return {}  # it cannot be chosen now
        values = catalogue.names("systems") if name == "system" else self.controls[name].widget.values
        reasons = {value: self._refusal(name, value) for value in values}
        return {value: why for value, why in reasons.items() if why}

    def _refusal(self, name: str, value: str) -> str:
        """Return why a value is certain to be refused, by the run or beside the present choices; empty if it is not."""
        try:
            if self._running:
                config = self._of_run.replace(**{name: value})
            else:
                config = RunConfig(
                    **{setting: self._value(setting) for setting in ("dataset", *JUDGED)} | {name: value}
                )
            catalogue.check_loss(config["task"], config.system)
        except LabError as error:
            return str(error)
        return ""

    def _offer_parts(self, alone: bool) -> None:
        """Offer the numbers of partitions that the ranks divide; an indivisible choice becomes the number of ranks."""
        ranks, parts = self._value("ranks"), self.controls["parts"]
        if alone or parts.value % ranks or parts.value == ranks:
            parts.show(0)
        offered = _offered_parts(ranks)
        if parts.value not in offered.values():
            offered[str(parts.value)] = parts.value
        parts.offer(offered)

    def _offer_slow_ranks(self) -> None:
        """Offer the ranks there are to be slowed down; one that is no longer there becomes none."""
        slow_rank, offered = self.controls["slow_rank"], _offered_slow_ranks(self._value("ranks"))
        if slow_rank.value not in offered.values():
            slow_rank.show(NO_RANK)
        slow_rank.offer(offered)

    def _end_full_snapshots(self) -> None:
        """Let the slider of full snapshots end at the window, that of the run while it trains."""
        is_of_run = self._running and "window" in self._of_run.flat
        self.controls["full_snapshots"].end_at(self._of_run["window"] if is_of_run else self._value("window"))

    def _offer_tasks(self) -> None:
        """Offer the tasks of the data set; if the chosen task is none of them, take the data set's own."""
        tasks = dataset_tasks(self._value("dataset"))
        if self._value("task") not in tasks:
            usual = default("task", **self._chosen)
            self.controls["task"].show(usual if usual in tasks else tasks[0])
        self.controls["task"].offer(tasks)


def _first_choices(name: str, ranks: Sequence[int]) -> Any:
    """Return the choices of a setting before others rule some out; None where it has none."""
    if name == "dataset":
        return dataset_choices()
    if name in ("ranks", "row_ranks"):
        return ranks
    if name == "parts":
        return _offered_parts(1)
    if name == "slow_rank":
        return _offered_slow_ranks(ranks[-1])
    return {
        "system": catalogue.names("systems"),
        "model": catalogue.names("models"),
        "protocol": tuple(catalogue.PROTOCOLS),
    }.get(name)


def _offered_slow_ranks(ranks: int) -> dict[str, int]:
    """Return label -> rank that can be slowed down, of this many; -1 for none."""
    return {"none": NO_RANK} | {f"rank {rank}": rank for rank in range(ranks)}


def _offered_parts(ranks: int) -> dict[str, int]:
    """Return label -> number of partitions that this many ranks can share; 0 follows the number of ranks."""
    return {"as ranks": 0} | {str(parts): parts for parts in PARTS if parts % ranks == 0 and parts != ranks}


def _is_alone(system: str) -> bool:
    """Return whether a system trains on one rank only."""
    return catalogue.system(system).family == "single"


def _main(card: SystemCard) -> str:
    """Return the system that a card chooses: its paper's, or the first."""
    return MAIN_SYSTEMS.get(card.name.lower(), card.systems[0])


def _with_defaults(chooser: str, value: str) -> set[str]:
    """Return the options for which a data set, protocol or system has a default of its own."""
    if chooser == "protocol":
        return set(catalogue.PROTOCOLS[value].settings)
    if chooser == "dataset":
        # a time span in one data set's unit means nothing in another's
        return {"interval", *(() if is_stored(value) else catalogue.entry("datasets", value).defaults)}
    system = catalogue.system(value)
    return {*system.defaults, *(option for room, option in CHOSEN_BY.items() if room in system.parts)}


def _shown(name: str, config: RunConfig) -> Any:
    """Return the value of a setting's control for a config: 0 for as many partitions as ranks."""
    return 0 if name == "parts" and config.parts == config.ranks else config[name]


def _options() -> dict[str, Option]:
    """Return every setting as an option: the glossary, and the names that the catalogue lists."""
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
    return {**named, **glossary}
