"""Live settings: which may change while training, and how a change is rehearsed and applied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dtdg_lab.config.catalogue import check_loss, option_owners
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError, UnknownNameError
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.training.build import RunComponents, build
from dtdg_lab.training.checkpoint import Checkpoint
from dtdg_lab.training.collective import attempted

# Which settings may change in a running job, and what a control request does to it.


def live_names(config: RunConfig) -> dict[str, str]:
    """Name -> ``step`` or ``epoch`` for every setting of this run that can change during the run."""
    live = {name: OPTIONS[name].live for name in config.flat if name in OPTIONS and OPTIONS[name].live != "no"}
    return {**live, "system": "epoch"}


def check_changes(config: RunConfig, changes: dict[str, Any]) -> RunConfig:
    """The config after the changes, if a running job can make them.

    Raises:
        ConfigError: a value is not allowed, or the setting cannot change during the run.
        UnsupportedError: the changed system cannot compute the loss of the task.
        UnknownNameError: the run has no such setting.
    """
    live = live_names(config)
    if "system" in changes:  # with what the other system reads
        live = {**live, **live_names(config.replace(**changes))}
    for name in changes:
        if name in live:
            continue
        if name in config.flat:
            raise ConfigError(
                f"{name!r} cannot change during a run (now {config[name]!r}). Live settings: "
                f"{', '.join(sorted(live))}. For another {name}, start a new run with config.replace({name}=...)."
            )
        raise UnknownNameError("live setting", name, live)
    changed = config.replace(**changes)
    check_loss(changed["task"], changed.system)
    return changed


def old_values(config: RunConfig, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that settings have before they change, without those that the present system ignores."""
    values = config.flat
    return {name: values[name] for name in changes if name in values}


def readable(system: str, config: RunConfig) -> set[str]:
    """The settings that a run of this model on this data set reads under a system."""
    owners = option_owners(system, config.dataset, config.model, config.flat)
    return {"system", *RunConfig.model_fields, *(name for room in owners.values() for name in room)}


def merged(config: RunConfig, requests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings that requests ask for together, oldest first: the newest value of each rules.

    What was asked for before another system, and that system does not read, is asked for no more.
    """
    found: dict[str, Any] = {}
    for changes in requests:
        if "system" in changes:
            read = readable(changes["system"], config)
            found = {name: value for name, value in found.items() if name in read}
        found |= changes
    return found


@dataclass(slots=True)
class LiveSettings:
    """The control word as this rank has applied it: step changes made, requests waiting, paused or stopping.

    ``requests`` wait for the end of the epoch, oldest first; each is made or refused for itself.
    """

    config: RunConfig
    version: int = 0
    paused: bool = False
    stopping: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def waiting(self) -> dict[str, Any]:
        """All settings that wait."""
        return merged(self.config, self.requests)

    def expected(self, later: Sequence[Mapping[str, Any]] = ()) -> RunConfig:
        """The settings as they will be once what waits has been made, less the requests that will be refused.

        Args:
            later: requests that no rank has applied yet, oldest first.
        """
        config = self.config
        for changes in [*self.requests, *later]:
            try:
                config = config.replace(**changes)
            except LabError:
                continue  # it will be refused, and the others made
        return config

    def apply(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Take one request; returns the step-live changes made now (epoch changes wait in ``requests``).

        Raises:
            ConfigError: the step-live changes fit neither the settings now nor what waits. None of the request is made.
        """
        self.paused = bool(payload.get("pause", self.paused))
        self.stopping = self.stopping or bool(payload.get("stop", False))
        changes: dict[str, Any] = payload.get("set", {})
        when = {name: "epoch" if name == "system" else OPTIONS[name].live for name in changes}
        now = {name: value for name, value in changes.items() if when[name] == "step"}
        later = {name: value for name, value in changes.items() if when[name] == "epoch"}
        if now:
            try:
                self.config = self.config.replace(**now)
            except ConfigError:
                self.config.replace(**merged(self.config, [*self.requests, changes]))
                now, later = {}, changes  # what waits makes room for it: all of it waits
        if later:
            self.requests = [*self.requests, later]
        return now


# Rebuild the trained components under other settings: in-memory checkpoint, build, restore.


PlanEvents = list[tuple[str, dict[str, Any]]]  # kind and data


def plan_events(built: RunComponents, group: Group, before: RunComponents | None = None) -> PlanEvents:
    """Events that describe the plans of what trains, on rank 0; none on the others.

    Args:
        built: what trains.
        group: the ranks.
        before: what trained before; an event without contents ends a plan of a kind that ``built`` has none of.
    """
    if group.rank != 0:
        return []
    strategy = built.strategy
    ended = () if before is None else [kind for kind in before.strategy.plan_kinds if kind not in strategy.plan_kinds]
    described = [(event.kind, event.write()) for event in strategy.plan_events()]
    return [*described, *((kind, {"layout": None}) for kind in ended)]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What trains from here on.

    Attributes:
        built: in place of what trained before.
        events: that describe its plans.
    """

    built: RunComponents
    events: PlanEvents


def rebuilt(
    config: RunConfig,
    changes: dict[str, Any],
    memory: Checkpoint,
    graph: DynamicGraph,
    group: Group,
    *,
    device: str,
    before: RunComponents,
) -> tuple[Rebuilt | None, str]:
    """Rebuild, or say why not, the same on every rank; collective. After a refusal, training continues as before.

    A device that the kernel shapes for it is given back first: there is one for both.

    Args:
        config: the settings until now, with changes made in place.
        changes: of its settings.
        memory: parameters and moments to go on with.
        graph: the data.
        group: the ranks.
        device: where this rank computes.
        before: what trained.
    """

    def make() -> RunComponents:
        made = build(config.replace(**changes), graph, group, device=device, plan=memory.plan)
        try:
            memory.restore(made.model, made.optimizer)
        except BaseException:
            made.close()
            raise
        return made

    if before.network is not None and before.config["congestion_by"] == "netem":
        _, reason = attempted(before.network.release, group, device=device)
        if reason:
            return None, reason
    made, reason = attempted(make, group, device=device)
    if made is None or reason:
        if made is not None:
            made.close()
        return None, reason
    events, reason = attempted(partial(plan_events, made, group, before), group, device=device)
    if reason:
        made.close()
        return None, reason
    return Rebuilt(made, events or []), ""


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of the requests that waited for the end of an epoch.

    Attributes:
        made: what trains from here on; None where nothing changes.
        changes: that were made.
        refused: requests that were not, with reasons, oldest first.
    """

    made: Rebuilt | None
    changes: dict[str, Any]
    refused: list[tuple[dict[str, Any], str]]


def settle(
    requests: Sequence[dict[str, Any]],
    merge: Callable[[Sequence[dict[str, Any]]], dict[str, Any]],
    make: Callable[[dict[str, Any]], tuple[Rebuilt | None, str]],
) -> Settled:
    """Make the requests together, or as many of them as can be; collective where ``make`` is.

    Where they cannot all be made, they are tried one by one, oldest first, each with those that could. One that was
    refused is tried again once others are made that may make room for it.

    Args:
        requests: at least one.
        merge: the settings that some of them ask for together.
        make: what trains under changed settings, or why there is none.
    """
    everything = merge(requests)
    made, reason = make(everything)
    if made is not None or len(requests) == 1:
        return Settled(
            made, everything if made is not None else {}, [] if made is not None else [(requests[0], reason)]
        )
    failed, kept = [(everything, reason)], [False] * len(requests)
    reasons, found, again = [""] * len(requests), dict[str, Any](), True
    while again:
        again = False
        for place in range(len(requests)):
            if kept[place]:
                continue
            wanted = merge([of for at, of in enumerate(requests) if kept[at] or at == place])
            known = [why for changes, why in failed if changes == wanted]
            if known:
                reasons[place] = reasons[place] or known[0]
                continue
            if wanted != found:
                if made is not None:
                    made.built.close()  # there may be no room for both
                made, reason = make(wanted)
                if made is None:
                    failed, reasons[place] = [*failed, (wanted, reason)], reason
                    continue
            kept[place], found, again = True, wanted, True
    if found and made is None:  # closed for one that failed after it
        made, reason = make(found)
        if made is None:
            return Settled(None, {}, [(of, reasons[place] or reason) for place, of in enumerate(requests)])
    refused = [(of, reasons[place]) for place, of in enumerate(requests) if not kept[place]]
    return Settled(made, found, refused)


# One step on a toy graph, so that what libraries do on first use is done before a person waits for it.


def rehearse() -> None:
    """Forward, backward, update and evaluation of every model on a generated graph; nothing is kept."""
    graph = load_dataset("growing", generated_nodes=16, generated_edges=32, generated_snapshots=12)
    for model in ("tgcn", "evolvegcn-o"):
        config = RunConfig(system="single", dataset="growing", model=model, hidden=4)
        built = build(config, graph, SoloGroup())
        built.gradients.zero()
        built.strategy.compute(built.strategy.epoch(0)[0], StepMarks())
        built.optimizer.step()
        built.evaluator.evaluate(built.model, ("train", "validation"))
