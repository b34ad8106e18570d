"""The extension suite: train what a user registers on every system that reads it, and compare what must be equal.

Two processes first share the runs on one rank, then make those on two ranks together; no run leaves a folder.
"""

from __future__ import annotations

import html
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.cluster.registrations import SentRegistration, apply_registrations, pack_registrations
from dtdg_lab.core import catalogue
from dtdg_lab.core.catalogue import SINGULAR, System
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.core.registration import Registration
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.studies.race_plan import same_losses
from dtdg_lab.testing.contracts import ContractError, check_model_alone
from dtdg_lab.testing.processes import join_group, run_ranks
from dtdg_lab.testing.training import train_in_memory

if TYPE_CHECKING:
    import pandas as pd

SMALL: Mapping[str, Any] = MappingProxyType(
    {
        "dataset": "growing",
        "generated_nodes": 40,
        "generated_edges": 160,
        "generated_snapshots": 24,
        "hidden": 4,
        "layers": 2,
        "epochs": 2,
        "learning_rate": 0.05,
        "optimizer": "sgd",
        "dtype": "float64",
        "device": "cpu",
        "threads": 1,
        "parts": 2,
        # read by some systems alone
        "group_times": "size",
        "window": 4,
        "full_snapshots": 2,
        "loss_at": "all",
        "epoch_batches": 4,
        "generators": "threads",
        "batch_nodes": 0.5,
        "batch_size": 16,
        "batch_length": 3,
        "fanouts": "3 3",
        "cache_rows": 20,
        "decide_every": 2,
    }
)
EVERYWHERE = ("models", "tasks", "datasets")  # kinds that every system reads
_CLOSE = 1e-8  # relative; of losses in float64 that are computed in another order


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run.

    Attributes:
        system: that trained, or refused.
        ranks: R.
        result: ``trained``, ``refused``, ``differs`` or ``failed``.
        losses: of every step.
        reason: why it was refused, failed, or differs; what its losses were compared with.
        seconds: that it took.
    """

    system: str
    ranks: int
    result: str
    losses: tuple[float, ...] = ()
    reason: str = ""
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether it trained as it should, or was refused with a reason."""
        return self.result in ("trained", "refused")


@dataclass(frozen=True, repr=False)
class ExtensionCheck:
    """What came of a registration on every system.

    Attributes:
        title: kind and name of what was checked.
        outcomes: in the catalogue's order of systems, on one rank and on two.
    """

    title: str
    outcomes: tuple[Outcome, ...]

    @property
    def bad(self) -> list[Outcome]:
        """Return the runs that failed, or whose losses differ."""
        return [outcome for outcome in self.outcomes if not outcome.is_good]

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per system and number of ranks."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "system": of.system,
                    "ranks": of.ranks,
                    "result": of.result,
                    "last loss": of.losses[-1] if of.losses else None,
                    "reason": of.reason,
                }
                for of in self.outcomes
            ]
        )

    def __str__(self) -> str:
        trained = [of for of in self.outcomes if of.result == "trained"]
        lines = [f"{self.title}: {len(trained)} of {len(self.outcomes)} runs trained, {len(self.bad)} are wrong"]
        for of in self.outcomes:
            loss = f"{of.losses[-1]:.6g}" if of.losses else ""
            lines.append(
                f"  {of.system:18} {of.ranks} rank{'s' * (of.ranks > 1):1}  {of.result:8} {loss:10} {of.reason}"
            )
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        table = self.to_pandas().to_html(index=False, na_rep="")
        return f"<p>{html.escape(str(self).partition(chr(10))[0])}</p>{table}"


def check_model(
    make: Callable[..., DynamicModel] | str, *, systems: Sequence[str] = (), **settings: Any
) -> ExtensionCheck:
    """Check a model by itself, then train it on every system, on one rank and on two.

    By itself: parameters come from the seed, states start at zero, no row mixes in time, gradients reach every
    parameter (see :mod:`dtdg_lab.testing.contracts`). On systems: losses are equal wherever systems compute the same.
    It takes about a minute on two cores.

    Args:
        make: the model's class, or the name of a registered model.
        systems: names of some systems; all by default.
        settings: of the runs, such as options of the model.

    Returns:
        A table of systems: trained, or refused with the reason.

    Raises:
        ContractError: a promise is broken, or a run failed, or losses differ; the message has the table.
    """
    if isinstance(make, str):
        check_model_alone(catalogue.entry("models", make).load())
        return check_extension(make, "model", systems=systems, **settings)
    check_model_alone(make)
    with _registered(make, "models") as name:
        return check_extension(name, "model", systems=systems, **settings)


def check_extension(name: str, kind: str, *, systems: Sequence[str] = (), **settings: Any) -> ExtensionCheck:
    """Train what is registered on every system that reads it, on one rank and on two, and compare losses.

    Losses must be equal on one rank and on two, on all systems that train full batches, and on all that train the same
    batches and only bring features otherwise; not where measured times decide what is trained.

    Args:
        name: in the catalogue.
        kind: such as ``model``, ``task``, ``scheduler`` (see :func:`dtdg_lab.register`).
        systems: names of some systems; all that read the kind by default.
        settings: of the runs, beside small ones; those that a system does not read are left out there.

    Raises:
        UnknownNameError: nothing of the kind has that name, or there is no such system.
        ContractError: a run failed, or losses differ; the message has the table.
    """
    of_kind = next((key for key, singular in SINGULAR.items() if kind in (key, singular)), kind)
    catalogue.entry(of_kind, name)
    chosen = [catalogue.system(system) for system in systems] or _readers(of_kind)
    plan = [_Case.of(system, ranks, of_kind, name, settings) for system in chosen for ranks in (1, 2)]
    reference = _Case.of(catalogue.system("single"), 1, of_kind, name, settings)
    cases = [*plan, reference]
    runs = list(zip(cases, _train_all(cases), strict=True))
    judged = tuple(_judged(case, outcome, runs) for case, outcome in runs[:-1])
    found = ExtensionCheck(f"{SINGULAR.get(of_kind, of_kind)} {name!r}", judged)
    if found.bad:
        raise ContractError(str(found))
    return found


# What is trained.


@dataclass(frozen=True, slots=True)
class _Case:
    """One run: its config, or why there is none."""

    system: str
    ranks: int
    config: RunConfig | None
    refused: str = ""

    @classmethod
    def of(cls, system: System, ranks: int, kind: str, name: str, given: Mapping[str, Any]) -> _Case:
        """Return the run of a registered name on a system."""
        chooser = {"models": "model", "datasets": "dataset"}.get(kind, catalogue.CHOSEN_BY.get(kind, ""))
        settings = {**SMALL, **given, "system": system.name, "ranks": ranks}
        if kind in (*EVERYWHERE, *system.parts):
            settings[chooser] = name
        refused = ""
        for parts in dict.fromkeys((settings["parts"], ranks)):  # some systems take one part alone
            try:
                return cls(system.name, ranks, RunConfig(**_read_settings({**settings, "parts": parts})))
            except LabError as error:
                refused = str(error)
        return cls(system.name, ranks, None, refused)


def _read_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the run reads."""
    owners = catalogue.option_owners(settings["system"], settings["dataset"], settings.get("model", "tgcn"), settings)
    read = {name for names in owners.values() for name in names} | set(RunConfig.model_fields)
    return {name: value for name, value in settings.items() if name in read}


def _readers(kind: str) -> list[System]:
    return [system for system in catalogue.SYSTEMS if kind in EVERYWHERE or kind in system.parts]


@contextmanager
def _registered(what: Any, kind: str) -> Iterator[str]:
    """Register a class for a while, and yield its name; one that is registered already keeps its own."""
    known = next((one.name for one in catalogue.REGISTERED if one.kind == kind and one.what is what), "")
    if known:
        yield known
        return
    registration = Registration(kind, f"checked-{getattr(what, '__name__', kind).lower()}", what)
    registration.apply()
    try:
        yield registration.name
    finally:
        registration.remove()


# How it is trained: on two processes, which first share the runs on one rank, then make those on two together.


def _train_all(cases: Sequence[_Case]) -> list[Outcome]:
    """Return what came of each run."""
    found = {n: Outcome(of.system, of.ranks, "refused", reason=of.refused) for n, of in enumerate(cases) if of.refused}
    while left := {number: case for number, case in enumerate(cases) if number not in found}:
        for of_rank in reversed(run_ranks(_train_on_rank, 2, pack_registrations(), left)):
            found |= of_rank
    return [found[number] for number in range(len(cases))]


def _train_on_rank(
    rank: int, ranks: int, address: str, sent: Sequence[SentRegistration], cases: Mapping[int, _Case]
) -> dict[int, Outcome]:
    """Train this rank's share of the runs on one rank, then those on all ranks up to the first that breaks down."""
    apply_registrations(sent)
    alone = [number for number, case in cases.items() if case.ranks == 1]
    found = {number: _train(cases[number])[0] for number in alone[rank::ranks]}
    group = join_group(rank, ranks, address)
    for number, case in cases.items():
        if case.ranks == ranks:
            found[number], is_agreed = _train(case, group)
            if not is_agreed:  # the other rank may wait in a collective: what is left is trained by other processes
                return found
    group.close()
    return found


def _train(case: _Case, group: Any = None) -> tuple[Outcome, bool]:
    """Return what came of a run, and whether all ranks know of it."""
    assert case.config is not None
    start = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as folder:
            trained = train_in_memory(
                case.config, load_for(case.config), Path(folder) / "checkpoint", group=group or SoloGroup()
            )
    except LabError as error:  # raised on every rank before it trains
        refused = Outcome(case.system, case.ranks, "refused", reason=str(error))
        return refused, True
    except Exception as error:  # whatever a user's code raises belongs into the table
        failed = Outcome(case.system, case.ranks, "failed", reason=f"{type(error).__name__}: {error}")
        return failed, False
    seconds = time.perf_counter() - start
    if not np.isfinite(trained.losses).all():
        return Outcome(case.system, case.ranks, "failed", tuple(trained.losses), "a loss is not finite", seconds), True
    return Outcome(case.system, case.ranks, "trained", tuple(trained.losses), "", seconds), True


# What is compared.


def _judged(case: _Case, found: Outcome, runs: Sequence[tuple[_Case, Outcome]]) -> Outcome:
    """Return the outcome of a run, compared with the first one that computes the same; the last run is first of all."""
    if found.result != "trained" or case.config is None:
        return found
    key = _losses_key(case.config)
    if key is None:
        return replace(found, reason="measured times decide: compared with none")
    trained = [(other, of) for other, of in (runs[-1], *runs[:-1]) if of.result == "trained"]
    alike = [(other, of) for other, of in trained if other.config is not None and _losses_key(other.config) == key]
    first, of_first = alike[0]
    if of_first is found or (first.system, first.ranks) == (case.system, case.ranks):
        others = len({(other.system, other.ranks) for other, _ in alike}) - 1
        return replace(found, reason=f"what {others} other run{'s' * (others > 1)} must equal" if others else "")
    named = f"{first.system} on {first.ranks}"
    if len(found.losses) != len(of_first.losses) or not np.allclose(found.losses, of_first.losses, rtol=_CLOSE, atol=0):
        why = f"losses {found.losses[:2]}, but {of_first.losses[:2]} of {named}"
        return replace(found, result="differs", reason=why)
    return replace(found, reason=f"equals {named}")


def _losses_key(config: RunConfig) -> tuple[Any, ...] | None:
    known = same_losses(config)
    return known[0] if known else None
