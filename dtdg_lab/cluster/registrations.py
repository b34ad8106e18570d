"""Registrations on their way to engines: as text where engines can import the code, else by value."""

from __future__ import annotations

import hashlib
import importlib
import pickle
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtdg_lab.core import catalogue
from dtdg_lab.core.catalogue import REGISTERED
from dtdg_lab.core.errors import ClusterError, ConfigError, NotAvailableError
from dtdg_lab.core.extensions import target_of, title_of
from dtdg_lab.core.options import Option
from dtdg_lab.core.registration import Registration
from dtdg_lab.core.units import format_bytes

MOST_BYTES = 4 << 20  # of code by value; it is sent to each rank of each attempt
_DIGESTS: dict[str, bytes] = {}  # module -> digest of its file when this engine imported it


@dataclass(frozen=True, slots=True)
class SentRegistration:
    """One registration as plain values.

    Attributes:
        kind: of the registration.
        name: in the catalogue.
        target: ``module:attribute`` that engines import; empty for code by value.
        folder: that holds the module here; engines look there last.
        code: the object as cloudpickle writes it; empty where there is a target.
        summary: one sentence.
        source: paper and section.
        options: names of options, and new ones.
        tasks: of a data set.
    """

    kind: str
    name: str
    target: str
    folder: str
    code: bytes
    summary: str
    source: str
    options: tuple[str | Option, ...]
    tasks: tuple[str, ...]

    def load(self) -> Any:
        """Return the text to import, or the object.

        Raises:
            ConfigError: the object cannot be rebuilt in this process.
        """
        if self.target:
            return self.target
        try:
            return pickle.loads(self.code)
        except (ImportError, AttributeError, TypeError, pickle.UnpicklingError) as error:
            raise ConfigError(
                f"{title_of(self.kind, self.name)} was sent by value, and cannot be rebuilt on an engine: {error}. "
                "What it refers to must be importable on every engine, or be defined beside it."
            ) from error


def pack_registrations() -> tuple[SentRegistration, ...]:
    """Return what is registered in this process, to be sent to engines.

    Raises:
        ClusterError: an object can be neither imported nor sent.
        NotAvailableError: cloudpickle is not installed.
    """
    return tuple(_packed(registration) for registration in REGISTERED)


def apply_registrations(sent: Sequence[SentRegistration]) -> None:
    """Register in this process what another one has sent, and nothing else.

    Modules whose files have changed since this process imported them are imported again.

    Raises:
        ConfigError: some code cannot be imported or rebuilt.
    """
    for registration in reversed(REGISTERED[:]):
        registration.remove()
    modules = {one.target.partition(":")[0]: one.folder for one in sent if one.target}
    sys.path.extend(folder for folder in dict.fromkeys(modules.values()) if folder and folder not in sys.path)
    for module in modules:
        if module in sys.modules and _DIGESTS.get(module) != _digest(module):
            importlib.reload(sys.modules[module])
    importlib.invalidate_caches()
    for one in sent:
        Registration(one.kind, one.name, one.load(), one.summary, one.source, one.options, one.tasks).apply()
    _DIGESTS.update({module: _digest(module) for module in modules})


def _packed(registration: Registration) -> SentRegistration:
    target = target_of(registration.what)
    return SentRegistration(
        registration.kind,
        registration.name,
        target,
        _folder_of(target.partition(":")[0]) if target else "",
        b"" if target else _by_value(registration),
        registration.summary,
        registration.source,
        registration.options,
        registration.tasks,
    )


def _folder_of(module: str) -> str:
    """Return the folder on the import path that holds a module's package; empty where there is none."""
    loaded = sys.modules[module.partition(".")[0]]
    places = list(getattr(loaded, "__path__", ())) or [getattr(loaded, "__file__", None) or ""]
    return str(Path(places[0]).resolve().parent) if places[0] else ""


def _by_value(registration: Registration) -> bytes:
    try:
        import cloudpickle
    except ImportError as error:
        raise NotAvailableError(
            f"{registration.what!r} cannot be imported by engines, and sending it needs cloudpickle: "
            "pip install cloudpickle, or put it in a module."
        ) from error

    title, what = title_of(registration.kind, registration.name), registration.what
    what = catalogue.load(what) if isinstance(what, str) else what
    # a module that engines cannot import goes with it; __main__ always does
    module = sys.modules.get(getattr(what, "__module__", type(what).__module__))
    is_lost = module is not None and module.__name__ != "__main__" and module.__spec__ is None
    if is_lost:
        cloudpickle.register_pickle_by_value(module)
    try:
        code = bytes(cloudpickle.dumps(what))
    except (TypeError, pickle.PicklingError, RecursionError) as error:
        raise ClusterError(
            f"{title} cannot be sent to engines: {error}. It must not use objects such as sessions, files or locks of "
            "this process; or put it in a module."
        ) from error
    finally:
        if is_lost:
            cloudpickle.unregister_pickle_by_value(module)
    if len(code) > MOST_BYTES:
        raise ClusterError(
            f"{title} takes {format_bytes(len(code))} when it is sent to engines, above {format_bytes(MOST_BYTES)}: it "
            "refers to large objects of this process. Load them inside its functions, or put it in a module."
        )
    return code


def _digest(module: str) -> bytes:
    """Return the digest of a module's file; empty where it has none."""
    file = getattr(sys.modules[module], "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).digest() if file and Path(file).is_file() else b""
