"""The stopping rule of a race: one for all runs, judging by the validation split and the clock alone."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.stopping_rule import Evaluated, Verdict
from dtdg_lab.config import catalogue
from dtdg_lab.config.options import option
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.units import format_seconds, join_words

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """A stopping rule: the first condition that holds ends a run after the current epoch.

    Then its test split is evaluated once.

    Attributes:
        epochs: maximum epochs; by default those of the configs.
        patience: consecutive validation evaluations without a new lowest loss.
        seconds: since the start of the run, including evaluations; checked when the validation split is evaluated.
        loss: target validation loss.

    Raises:
        ConfigError: no condition is given, or a number is invalid.
    """

    epochs: int | None = None
    patience: int | None = None
    seconds: float | None = None
    loss: float | None = None

    def __post_init__(self) -> None:
        if all(value is None for value in asdict(self).values()):
            raise ConfigError(
                "StopRule() without a rule: give epochs=, patience=, seconds= or loss=, or race(..., stop=None)."
            )
        if self.epochs is not None:
            object.__setattr__(self, "epochs", option("epochs").check(self.epochs))
        patience = self.patience
        if patience is not None and (not isinstance(patience, int) or isinstance(patience, bool) or patience < 1):
            raise ConfigError(f"patience={patience!r}: give a whole number of evaluations, at least 1.")
        for name in ("seconds", "loss"):
            value = getattr(self, name)
            if value is None:
                continue
            is_finite = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not is_finite or (name == "seconds" and value <= 0):
                raise ConfigError(f"{name}={value!r}: give a finite number{' above 0' * (name == 'seconds')}.")

    @property
    def judges(self) -> bool:
        """True if it may stop a run before its last epoch."""
        return any(value is not None for value in (self.patience, self.seconds, self.loss))

    def check(self, config: RunConfig) -> None:
        """Raise for a config whose runs it could never stop.

        Raises:
            ConfigError: it uses the validation split, and the config's protocol has none.
        """
        if self.judges and not catalogue.PROTOCOLS[config.protocol].validation_share:
            protocols = [name for name, protocol in catalogue.PROTOCOLS.items() if protocol.validation_share]
            raise ConfigError(
                f"The rule ({self.summary()}) needs a validation split, and protocol="
                f"{config.protocol!r} has none. Stop by epochs= alone, or choose one of {', '.join(protocols)}."
            )

    def verdict(self, evaluations: tuple[Evaluated, ...]) -> Verdict | None:
        """Return a verdict if a run with these evaluations, oldest first, ends.

        Losses that are not finite are never the lowest.
        """
        last = evaluations[-1]
        if self.loss is not None and last.loss is not None and last.loss <= self.loss:
            return Verdict("finish", f"validation loss {last.loss:.4g} reached {self.loss:g}")
        if self.seconds is not None and last.seconds >= self.seconds:
            return Verdict("finish", f"the time limit of {format_seconds(self.seconds)} is reached")
        if self.patience is not None and len(evaluations) > self.patience:
            losses = [math.inf if evaluated.loss is None else evaluated.loss for evaluated in evaluations]
            if min(losses[: -self.patience]) <= min(losses[-self.patience :]):
                return Verdict("finish", f"no new lowest validation loss in {self.patience} evaluations")
        return None

    def summary(self) -> str:
        """Return the rule as part of a sentence."""
        conditions = []
        if self.epochs is not None:
            conditions.append(f"{self.epochs} epochs")
        if self.patience is not None:
            conditions.append(f"{self.patience} evaluations without a new lowest validation loss")
        if self.seconds is not None:
            conditions.append(format_seconds(self.seconds))
        if self.loss is not None:
            conditions.append(f"a validation loss of {self.loss:g}")
        return join_words(conditions).replace(" and ", " or ")

    def to_dict(self) -> dict[str, Any]:
        """Return the form that :meth:`from_dict` reads."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> StopRule:
        """Read the form that :meth:`to_dict` wrote.

        Raises:
            ConfigError: it is not a rule of this version.
        """
        try:
            return cls(**data)
        except TypeError as error:
            raise ConfigError(f"the stopping rule {data!r} cannot be read ({error}). Update dtdg_lab.") from error
