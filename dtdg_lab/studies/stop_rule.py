"""When runs of a race end: one rule for all of them, which reads the validation split and the clock alone."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from dtdg_lab.cluster.local import Evaluated, Verdict
from dtdg_lab.core.catalogue import PROTOCOLS
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.options import option
from dtdg_lab.core.units import format_seconds
from dtdg_lab.visualization.layout import join_words


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """Whichever comes first ends a run, after the epoch in which it is seen; its test split is then evaluated once.

    Attributes:
        epochs: most epochs; those of the configs where not given.
        patience: validation evaluations in a row without a new least loss.
        seconds: since the run began, evaluations among them; looked at when the validation split is evaluated.
        loss: validation loss that is low enough.

    Raises:
        ConfigError: nothing is given, or a number is not allowed.
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
            raise ConfigError(f"patience={patience!r}: a whole number of evaluations, at least 1, is needed.")
        for name in ("seconds", "loss"):
            value = getattr(self, name)
            if value is None:
                continue
            known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not known or (name == "seconds" and value <= 0):
                raise ConfigError(f"{name}={value!r}: a finite number{' above 0' * (name == 'seconds')} is needed.")

    @property
    def judges(self) -> bool:
        """Whether it may end a run before its epochs are over."""
        return any(value is not None for value in (self.patience, self.seconds, self.loss))

    def check(self, config: RunConfig) -> None:
        """Refuse a config whose runs it could never end.

        Raises:
            ConfigError: it looks at the validation split, and the config's protocol has none.
        """
        if self.judges and not PROTOCOLS[config.protocol].validation_share:
            able = [name for name, known in PROTOCOLS.items() if known.validation_share]
            raise ConfigError(
                f"{self.summary()} is seen when the validation split is evaluated, and protocol="
                f"{config.protocol!r} has none. Stop by epochs= alone, or choose one of {', '.join(able)}."
            )

    def verdict(self, seen: tuple[Evaluated, ...]) -> Verdict | None:
        """Whether a run with these evaluations, oldest first, ends; losses that are not finite never are the least."""
        last = seen[-1]
        if self.loss is not None and last.loss is not None and last.loss <= self.loss:
            return Verdict("finish", f"validation loss {last.loss:.4g} is down to {self.loss:g}")
        if self.seconds is not None and last.seconds >= self.seconds:
            return Verdict("finish", f"{format_seconds(self.seconds)} are over")
        if self.patience is not None and len(seen) > self.patience:
            losses = [math.inf if each.loss is None else each.loss for each in seen]
            if min(losses[: -self.patience]) <= min(losses[-self.patience :]):
                return Verdict("finish", f"no new least validation loss in {self.patience} evaluations")
        return None

    def summary(self) -> str:
        """The rule as part of a sentence."""
        described = []
        if self.epochs is not None:
            described.append(f"{self.epochs} epochs")
        if self.patience is not None:
            described.append(f"{self.patience} evaluations without a new least validation loss")
        if self.seconds is not None:
            described.append(format_seconds(self.seconds))
        if self.loss is not None:
            described.append(f"a validation loss of {self.loss:g}")
        return join_words(described).replace(" and ", " or ")

    def to_dict(self) -> dict[str, Any]:
        """What :meth:`from_dict` reads."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> StopRule:
        """Read what :meth:`to_dict` wrote.

        Raises:
            ConfigError: it is no rule of this version.
        """
        try:
            return cls(**data)
        except TypeError as error:
            raise ConfigError(f"a stopping rule {data!r} cannot be read ({error}). Update dtdg_lab.") from error
