"""Learned cache policies as files: what was learned, from which seed, by which constants."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.cache_memory import memory_size
from dtdg_lab.control.cache_state import state_size
from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.core.feature_path import CacheActions

SHIPPED = Path(__file__).parent / "policies"
FORMAT = 1


@dataclass(frozen=True, slots=True, eq=False)
class StoredPolicy:
    """A learned policy and how it came about.

    Attributes:
        name: of the policy.
        parts: P it decides for.
        seed: it was learned from.
        episodes: it was learned in.
        double: whether by Double DQN, else by DQN.
        hidden: widths of the network's hidden layers.
        remembers: whether it is told how late owners have been for a while, beside the state.
        constants: digests of the simulator's constants, as they were before the first episode.
        training: digest of everything else that decided what is learned; see :mod:`dtdg_lab.control.cache_training`.
        parameters: (n,) float32 of the network.
    """

    name: str
    parts: int
    seed: int
    episodes: int
    double: bool
    hidden: tuple[int, ...]
    remembers: bool
    constants: tuple[str, ...]
    training: str
    parameters: NDArray[np.float32]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Widths of the network's layers."""
        inputs = state_size(self.parts) + (memory_size(self.parts) if self.remembers else 0)
        return (inputs, *self.hidden, len(CacheActions(self.parts)))

    def facts(self) -> dict[str, Any]:
        """All but the parameters, as plain values."""
        told = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "parameters"}
        return {**told, "hidden": list(self.hidden), "constants": list(self.constants)}

    def digest(self) -> str:
        """SHA-256 of facts and parameters."""
        told = json.dumps({"format": FORMAT, **self.facts()}, sort_keys=True).encode()
        return hashlib.sha256(told + self.parameters.astype("<f4").tobytes()).hexdigest()

    def knows(self, constants: str) -> bool:
        """Whether it was learned in a simulator with the constants of this digest (among others)."""
        return constants in self.constants


def save_policy(path: Path, policy: StoredPolicy) -> None:
    """Write a policy to a ``.npz`` file; the same policy gives the same bytes."""
    told = json.dumps({"format": FORMAT, "digest": policy.digest(), **policy.facts()}, sort_keys=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez(file, facts=np.array(told), parameters=policy.parameters.astype("<f4"))


def load_policy(path: Path) -> StoredPolicy:
    """The policy in a file.

    Raises:
        ConfigError: there is no such file, it holds no policy, or not what was written.
    """
    advice = f"Train one: python -m dtdg_lab train-policy --parts P --out {path}"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            told, parameters = json.loads(str(held["facts"])), held["parameters"]
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such file. {advice}") from error
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path} holds no policy ({error}). {advice}") from error
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise ConfigError(f"{path} holds no policy of format {FORMAT}, which this version reads. {advice}")
    policy = _policy(path, told, parameters)
    if policy.digest() != told.get("digest"):
        raise ConfigError(f"{path} is not as it was written: its digest does not fit what it holds. {advice}")
    return policy


def shipped_policy(parts: int, name: str) -> StoredPolicy:
    """The policy of a name that comes with the lab.

    Raises:
        ConfigError: there is none for so many parts.
        UnknownNameError: there is none of that name.
    """
    held = sorted(path.stem.rsplit("_p", 1) for path in SHIPPED.glob("*_p*.npz"))
    names = sorted({stem for stem, _ in held})
    if name not in names:
        raise UnknownNameError("learned policy", name, names)
    known = sorted(int(count) for stem, count in held if stem == name)
    if parts not in known:
        raise ConfigError(
            f"there is no learned policy for {parts} parts; those that come with the lab are for "
            f"{', '.join(map(str, known))}. Train one: python -m dtdg_lab train-policy --parts {parts} --out FILE, and "
            "give FILE as policy_file; or choose another policy."
        )
    return load_policy(shipped_path(parts, name))


def shipped_path(parts: int, name: str) -> Path:
    """Where the policy of a name that comes with the lab is, or would be."""
    return SHIPPED / f"{name}_p{parts}.npz"


def _policy(path: Path, told: Mapping[str, Any], parameters: NDArray[Any]) -> StoredPolicy:
    try:
        return StoredPolicy(
            name=str(told["name"]),
            parts=int(told["parts"]),
            seed=int(told["seed"]),
            episodes=int(told["episodes"]),
            double=bool(told["double"]),
            hidden=tuple(int(width) for width in told["hidden"]),
            remembers=bool(told["remembers"]),
            constants=tuple(str(digest) for digest in told["constants"]),
            training=str(told["training"]),
            parameters=parameters.astype(np.float32),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} holds no whole policy ({error!r}); train it again.") from error
