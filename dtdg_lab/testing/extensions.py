"""The check of registered code: train it on every system that reads it, and compare losses.

Two processes first share the runs on one rank, then train those on two ranks together. No run leaves a folder.
"""

from __future__ import annotations

import html
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.cluster.registrations import SentRegistration, apply_registrations, pack_registrations
from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import SINGULAR, System
from dtdg_lab.config.options import Option
from dtdg_lab.config.registration import FAMILY, REGISTERED, Registration
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, ContractError, UnknownNameError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.studies.same_losses import same_losses
from dtdg_lab.testing.models import check_model_alone
from dtdg_lab.testing.processes import join_group, run_ranks
from dtdg_lab.testing.small_runs import REFUSALS, read_names, read_settings, small_settings
from dtdg_lab.testing.training import RecordingRecorder, train_in_memory

if TYPE_CHECKING:
    import pandas as pd

EVERYWHERE = ("models", "tasks", "datasets")  # kinds that every system reads
_SEVERITY = ("trained", "refused", "failed")  # if two ranks have different results, the later of these counts
_CLOSE = 1e-8  # allowed relative difference of losses in float64 that are computed in another order


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run.

    Attributes:
        system: the run's system.
        ranks: number of ranks R.
        result: ``trained``; ``refused`` before it began, as not supported or not available; ``differs`` in its losses;
            or ``failed``.
        losses: losses of all steps.
        reason: why it was refused, failed or differs; or the run with which its losses were compared.
        seconds: how long it took.
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
    """The outcomes of registered code on every system.

    Attributes:
        title: kind and name of the checked code.
        outcomes: outcomes in the catalogue's order of systems, on one rank and on two.
    """

    title: str
    outcomes: tuple[Outcome, ...]

    @property
    def trained(self) -> list[Outcome]:
        """The runs that trained as they should."""
        return [outcome for outcome in self.outcomes if outcome.result == "trained"]

    @property
    def bad(self) -> list[Outcome]:
        """The runs that failed, or whose losses differ."""
        return [outcome for outcome in self.outcomes if not outcome.is_good]

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per system and number of ranks."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "system": outcome.system,
                    "ranks": outcome.ranks,
                    "result": outcome.result,
                    "last loss": outcome.losses[-1] if outcome.losses else None,
                    "reason": outcome.reason,
                }
                for outcome in self.outcomes
            ]
        )

    def __str__(self) -> str:
        lines = [f"{self.title}: {len(self.trained)} of {len(self.outcomes)} runs trained, {len(self.bad)} are wrong"]
        for run in self.outcomes:
            ranks, loss = f"{run.ranks} rank{'s' * (run.ranks > 1):1}", f"{run.losses[-1]:.6g}" if run.losses else ""
            lines.append(f"  {run.system:18} {ranks}  {run.result:8} {loss:10} {run.reason}".rstrip())
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        table = self.to_pandas().to_html(index=False, na_rep="")
        return f"<p>{html.escape(str(self).partition(chr(10))[0])}</p>{table}"


def check_model(
    make: Callable[..., DynamicModel] | str,
    *,
    systems: Sequence[str] = (),
    options: Sequence[str | Option] = (),
    **settings: Any,
) -> ExtensionCheck:
    """Check a model by itself, then train it on every system, on one rank and on two.

    The checks of the model alone: parameters come from the seed, states start at zero, rows are not mixed in time, and
    gradients reach every parameter (see :mod:`dtdg_lab.testing.models`). On systems, losses must be equal wherever
    systems compute the same. It takes about a minute on two cores.

    Args:
        make: the model's class, or the name of a registered model.
        systems: names of some systems; by default all.
        options: options of a class that is not registered, as for :func:`dtdg_lab.register`: names, and new options.
        settings: settings of the runs, such as options of the model; by default they are small.

    Returns:
        A table of systems: each was trained, or refused with the reason.

    Raises:
        ConfigError: options are given for a registered model, or a setting is invalid.
        UnknownNameError: there is no such model, system or setting.
        ContractError: a rule is broken, a run failed, losses differ, or nothing trained; the message has the table.
    """
    if isinstance(make, str):
        _require_no_options(make, options)
        check_model_alone(catalogue.entry("models", make).load())
        return check_extension(make, "model", systems=systems, **settings)
    check_model_alone(make)
    with _registered(make, "models", options) as name:
        return check_extension(name, "model", systems=systems, **settings)


def check_extension(name: str, kind: str, *, systems: Sequence[str] = (), **settings: Any) -> ExtensionCheck:
    """Train registered code on every system that reads it, on one rank and on two, and compare losses.

    Losses must be equal on one rank and on two, on all systems with full batches, and on all systems with the same
    batches that only fetch features in different ways, unless measured times change what is computed. The systems of a
    registered family train a small model of the package.

    Args:
        name: name in the catalogue.
        kind: kind, such as ``model``, ``task``, ``scheduler`` or ``family`` (see :func:`dtdg_lab.register`).
        systems: names of some systems; by default all that read the kind, or all of the family.
        settings: settings of the runs, which are small by default; a system that does not read one trains without it.

    Raises:
        UnknownNameError: nothing of the kind has that name, there is no such system, or no system reads a setting.
        ConfigError: the family has no systems.
        ContractError: a run failed, losses differ, or nothing trained; the message has the table.
    """
    kind = next((key for key, singular in SINGULAR.items() if kind in (key, singular)), kind)
    readers = [catalogue.system(system) for system in systems] or _readers(name, kind)
    _require_read(settings, readers, name, kind)
    plan = [_Case.of(system, ranks, kind, name, settings) for system in readers for ranks in (1, 2)]
    reference = _Case.of(catalogue.system("single"), 1, kind, name, settings)
    cases = [*plan, reference]
    runs = list(zip(cases, _train_all(cases), strict=True))
    judged = tuple(_judged(case, outcome, runs) for case, outcome in runs[:-1])
    check = ExtensionCheck(f"{SINGULAR.get(kind, kind)} {name!r}", judged)
    if check.bad or not check.trained:
        raise ContractError(str(check))
    return check


@dataclass(frozen=True, slots=True)
class _Case:
    """One run: its config, or the reason why there is none."""

    system: str
    ranks: int
    config: RunConfig | None
    refused: str = ""

    @classmethod
    def of(cls, system: System, ranks: int, kind: str, name: str, overrides: Mapping[str, Any]) -> _Case:
        """Return the run of a registered name on a system."""
        settings = _settings(system, kind, name, overrides) | {"ranks": ranks}
        refused = ""
        for parts in dict.fromkeys((settings["parts"], ranks)):  # some systems allow only one part
            try:
                return cls(system.name, ranks, RunConfig(**read_settings({**settings, "parts": parts})))
            except REFUSALS as error:
                refused = str(error)
        return cls(system.name, ranks, None, refused)


def _settings(system: System, kind: str, name: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run: given ones, otherwise those of the system, otherwise small ones."""
    settings = small_settings(system, overrides)
    if kind in (*EVERYWHERE, *system.parts):
        settings[_chooser(kind)] = name
    return settings


def _chooser(kind: str) -> str:
    """Return the setting that chooses the checked code; empty for a family."""
    return {"models": "model", "datasets": "dataset"}.get(kind, catalogue.CHOSEN_BY.get(kind, ""))


def _require_read(overrides: Mapping[str, Any], systems: Sequence[System], name: str, kind: str) -> None:
    """Raise UnknownNameError if no system reads a setting, or if the check itself chooses it."""
    names = set[str]().union(*(read_names(_settings(system, kind, name, overrides)) for system in systems))
    names -= {"system", "ranks", _chooser(kind)}
    for setting in overrides:
        if setting not in names:
            advice = "The check chooses systems (systems=...), ranks and the name that it checks."
            raise UnknownNameError("setting", setting, names, advice)


def _require_no_options(name: str, options: Sequence[str | Option]) -> None:
    """Raise ConfigError if options are given for a model that has its own."""
    if options:
        raise ConfigError(
            f"check_model(options={[str(getattr(option, 'name', option)) for option in options]}): model {name!r} is "
            "registered and has the options that lab.register was given. Give them there."
        )


def _readers(name: str, kind: str) -> list[System]:
    """Return the systems that read a kind, or those of a family."""
    if kind != FAMILY:
        catalogue.entry(kind, name)
        return [system for system in catalogue.SYSTEMS if kind in EVERYWHERE or kind in system.parts]
    catalogue.family(name)
    systems = [system for system in catalogue.SYSTEMS if system.family == name]
    if not systems:
        raise ConfigError(f"Family {name!r} has no systems to train. Check what it adds with a run and its report.")
    return systems


@contextmanager
def _registered(what: Any, kind: str, options: Sequence[str | Option]) -> Iterator[str]:
    """Register a class for a while and yield its name; a class that is registered already keeps its own name."""
    registered_name = next((record.name for record in REGISTERED if record.kind == kind and record.what is what), "")
    if registered_name:
        _require_no_options(registered_name, options)
        yield registered_name
        return
    name = f"checked-{getattr(what, '__name__', kind).lower()}"
    registration = Registration(kind, name, what, options=tuple(options))
    registration.apply()
    try:
        yield registration.name
    finally:
        registration.remove()


def _train_all(cases: Sequence[_Case]) -> list[Outcome]:
    """Return the outcome of each run."""
    outcomes = {
        number: Outcome(case.system, case.ranks, "refused", reason=case.refused)
        for number, case in enumerate(cases)
        if case.refused
    }
    while remaining := {number: case for number, case in enumerate(cases) if number not in outcomes}:
        sent = pack_registrations(*(case.config for case in remaining.values() if case.config is not None))
        by_rank = run_ranks(_train_on_rank, 2, sent, remaining)
        for number in set().union(*by_rank):
            outcomes[number] = _decisive([results[number] for results in by_rank if number in results])
    return [outcomes[number] for number in range(len(cases))]


def _decisive(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the worst outcome of a run on its ranks; of several failures the first, since others follow from it."""
    return min(outcomes, key=lambda outcome: (-_SEVERITY.index(outcome.result), outcome.seconds))


def _train_on_rank(
    rank: int, ranks: int, address: str, sent: Sequence[SentRegistration], cases: Mapping[int, _Case]
) -> dict[int, Outcome]:
    """Train this rank's share of the runs on one rank, then those on all ranks, until one of these does not train."""
    apply_registrations(sent)
    alone = [number for number, case in cases.items() if case.ranks == 1]
    outcomes = {number: _train(cases[number]) for number in alone[rank::ranks]}
    group = join_group(rank, ranks, address)
    for number, case in cases.items():
        if case.ranks == ranks:
            outcomes[number] = _train(case, group)
            if outcomes[number].result != "trained":  # other ranks may be stuck, so new processes train the rest
                return outcomes
    group.close()
    return outcomes


def _train(case: _Case, group: Any = None) -> Outcome:
    """Return the outcome of a run on this rank."""
    assert case.config is not None
    recorder, start = RecordingRecorder(), time.perf_counter()

    def outcome(result: str, reason: str = "", losses: Sequence[float] = ()) -> Outcome:
        return Outcome(case.system, case.ranks, result, tuple(losses), reason, time.perf_counter() - start)

    try:
        with tempfile.TemporaryDirectory() as folder:
            trained = train_in_memory(
                case.config,
                load_for(case.config),
                Path(folder) / "checkpoint",
                group=group or SoloGroup(),
                recorder=recorder,
            )
    except Exception as error:  # users' code may raise anything; the table shows it
        if isinstance(error, REFUSALS) and not recorder.events("kernel"):  # the first event of a started run
            return outcome("refused", str(error))
        return outcome("failed", f"{type(error).__name__}: {error}")
    return outcome("trained", losses=trained.losses)


def _judged(case: _Case, outcome: Outcome, runs: Sequence[tuple[_Case, Outcome]]) -> Outcome:
    """Return the outcome of a run, compared with the first that computes the same (``runs[-1]`` comes first)."""
    if outcome.result != "trained" or case.config is None:
        return outcome
    key = _losses_key(case.config)
    if key is None:
        return replace(outcome, reason="not compared, since measured times change what is computed")
    trained = [(candidate, result) for candidate, result in (runs[-1], *runs[:-1]) if result.result == "trained"]
    alike = [pair for pair in trained if pair[0].config is not None and _losses_key(pair[0].config) == key]
    first, reference = alike[0]
    if reference is outcome or (first.system, first.ranks) == (case.system, case.ranks):
        count = len({(other.system, other.ranks) for other, _ in alike}) - 1
        return replace(outcome, reason=f"reference of {count} run{'s' * (count > 1)}" if count else "")
    title, losses = f"{first.system} on {first.ranks}", outcome.losses
    if len(losses) != len(reference.losses) or not np.allclose(losses, reference.losses, rtol=_CLOSE, atol=0):
        why = f"losses {losses[:2]}, but {reference.losses[:2]} of {title}"
        return replace(outcome, result="differs", reason=why)
    return replace(outcome, reason=f"equals {title}")


def _losses_key(config: RunConfig) -> tuple[Any, ...] | None:
    key_and_reason = same_losses(config)
    return key_and_reason[0] if key_and_reason else None
