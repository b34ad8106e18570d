"""Small runs of the device check: every system with every model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import System
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.studies.same_losses import same_losses
from dtdg_lab.testing.small_runs import REFUSALS, read_settings, small_settings

ONE_RANK: Mapping[str, Any] = MappingProxyType({"row_ranks": 1})  # settings that have no other value on one rank


@dataclass(frozen=True, slots=True)
class CheckCase:
    """A system with a model.

    Attributes:
        system: name of the system.
        model: name of the model.
        config: settings of its run in float64, in which measured times do not change losses if the family has settings
            for that; None if the system does not support the model.
        timed: settings of its run in float32 with what depends on measured times; None if nothing does.
        refused: why there is no run.
    """

    system: str
    model: str
    config: RunConfig | None
    timed: RunConfig | None = None
    refused: str = ""

    @property
    def configs(self) -> tuple[RunConfig, ...]:
        """The runs of the case."""
        if self.config is None:
            return ()
        return self.config, self.config.replace(dtype="float32"), *(() if self.timed is None else (self.timed,))


def list_cases(systems: Sequence[str] = (), *, quick: bool = False) -> list[CheckCase]:
    """Return every system with every model of the catalogue, in its order.

    Args:
        systems: names of some systems; by default all.
        quick: only the first model that a system supports; the first system keeps all models.

    Raises:
        UnknownNameError: there is no such system.
    """
    cases = []
    for number, system in enumerate(map(catalogue.system, systems or catalogue.names("systems"))):
        of_system = [make_case(system, model) for model in catalogue.names("models")]
        supported = [case for case in of_system if case.config is not None]
        cases += supported[:1] if quick and number and supported else of_system
    return cases


def make_case(system: System, model: str, ranks: int = 1) -> CheckCase:
    """Return the case of a system and a model on R ranks, each with one part if there are several."""
    settings = small_settings(system, {"model": model, "epochs": 1, "ranks": ranks})
    settings |= {"parts": ranks} if ranks > 1 else ONE_RANK
    repeatable = {**settings, **catalogue.family(system.family).repeatable_settings}
    refused = ""
    for parts in dict.fromkeys((settings["parts"], ranks)):  # some systems allow only one part
        try:
            config = _config(settings, parts)
            if same_losses(config) is not None:
                return CheckCase(system.name, model, config)
            return CheckCase(system.name, model, _config(repeatable, parts), config.replace(dtype="float32"))
        except REFUSALS as error:
            refused = str(error)
    return CheckCase(system.name, model, None, refused=refused)


def _config(settings: Mapping[str, Any], parts: int) -> RunConfig:
    return RunConfig(**read_settings({**settings, "parts": parts}))


def models_of(cases: Sequence[CheckCase]) -> tuple[str, ...]:
    """Return the models of the cases, in the catalogue's order."""
    present = {case.model for case in cases}
    return tuple(name for name in catalogue.names("models") if name in present)


def systems_of(cases: Sequence[CheckCase]) -> tuple[str, ...]:
    """Return the systems of the cases, in their order."""
    return tuple(dict.fromkeys(case.system for case in cases))


def group_configs(case: CheckCase) -> tuple[RunConfig, ...]:
    """Return the runs of a case that the ranks of a group train: that in float64, and the timed one."""
    return tuple(config for config in (case.config, case.timed) if config is not None)
