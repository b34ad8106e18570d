"""How a run is done again: trained anew where its settings say everything, replayed where clocks or people decided."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.runs.event_list import event_rows
from dtdg_lab.runs.open import StoredRun
from dtdg_lab.runs.packed_run import pack
from dtdg_lab.runs.repeat import changed_settings

_DECIDED = ("knob", "asked", "paused", "resumed")  # kinds of events that settings do not foretell
_DECIDING = ("rounds", "decisions")  # tables of the same
_BULKY = ("phases", "energy", "phase_energy", "memory", "links", "exchanges", "transfers", "fetches", "resolved")
_SCORES = ("train_loss", "validation_loss", "test_loss")
_FORKED = "forked"  # entry of the environment of such a run
_GRAPH = "graph:"  # how the names of graphs of one's own begin


@dataclass(frozen=True, slots=True)
class Again:
    """What a script or notebook that repeats a run is made of.

    Attributes:
        run: its name.
        config: the settings it was started with.
        packed: its records as base64, for ``lab.replay``; empty where the settings say everything, and of a fork.
        forked: whether it began from a checkpoint of another run, which its folder has.
        changes: what was changed while it trained, a line each.
        scores: the losses it came to, by name.
    """

    run: str
    config: RunConfig
    packed: str
    forked: bool
    changes: tuple[str, ...]
    scores: dict[str, float]

    @property
    def title(self) -> str:
        """What is repeated, in words."""
        of, ranks = self.config, self.config.ranks
        return f"{of.system}, {of.model} on {of.dataset}, {ranks} rank{'s' if ranks > 1 else ''}, seed {of.seed}"

    @property
    def why(self) -> str:
        """Whether it is trained or replayed, and why."""
        if self.forked:
            return (
                "That run began from another run's checkpoint, which is too large to ride along: lab.replay repeats it "
                "from its folder, which must be in the folder of runs."
            )
        if self.packed:
            return (
                "Clocks or people decided in that run (changes of knobs, measured schedules, adjusters, rounds of "
                "averaging): what was recorded of it rides along, and lab.replay repeats it from that."
            )
        return "Its settings say everything, so the same data, versions and processor give the same losses."

    @property
    def note(self) -> str:
        """What has to be there first; empty where nothing has."""
        own = self.config.dataset.startswith(_GRAPH)
        return "The data set is a graph of one's own: store it on this machine first with graph.store()." if own else ""


def again(run: StoredRun) -> Again:
    """What repeats a run.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: the run's files cannot be read.
    """
    events = run.events
    decided = any(_is_decided(event) for event in events)
    decided = decided or any(len(run.table(name, all_attempts=True)) for name in _DECIDING)
    forked = _FORKED in run.environment
    packed = base64.b64encode(pack(run, without=_BULKY).zipped()).decode() if decided and not forked else ""
    steered = [event for event in events if event["kind"] in ("knob", "paused", "resumed", "congestion")]
    changes = tuple(
        f"step {step or 'unknown'}: {kind}: {' '.join(what.split())}" for _, step, _, kind, what in event_rows(steered)
    )
    scores = {name: run.summary[name] for name in _SCORES if run.summary.get(name) is not None}
    return Again(run.id, run.config, packed, forked, changes, scores)


def _is_decided(event: Mapping[str, Any]) -> bool:
    """Whether settings do not foretell it; a schedule is made from sizes, or from times that were measured."""
    if event["kind"] == "schedule":
        return (event["data"] or {}).get("source", "size") != "size"
    return event["kind"] in _DECIDED


def settings_code(config: RunConfig) -> str:
    """Arguments of RunConfig as code, a line each: what was chosen first, then all defaults as they were."""
    chosen = changed_settings(config)
    usual = {name: value for name, value in config.flat.items() if name not in chosen}
    lines = [f"    {name}={value!r},\n" for name, value in chosen.items()]
    lines += ["    # the defaults of the version that made the run\n"] if usual else []
    return "".join([*lines, *(f"    {name}={value!r},\n" for name, value in usual.items())])
