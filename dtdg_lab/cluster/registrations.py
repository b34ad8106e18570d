"""Registrations on their way to engines: as text where engines can import the code, else by value."""

from __future__ import annotations

import hashlib
import importlib
import pickle
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.extensions import extension_of, names_used, target_of, title_of
from dtdg_lab.config.options import Option
from dtdg_lab.config.registration import REGISTERED, Registration
from dtdg_lab.core.errors import ClusterError, ConfigError, NotAvailableError
from dtdg_lab.core.units import format_bytes

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig

MOST_BYTES = 4 << 20  # of code by value; it is sent to each rank of each attempt
_DIGESTS: dict[str, bytes] = {}  # module -> digest of its file when this engine imported it
_FOLDERS: list[str] = []  # on this engine's import path for what was sent last


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
        digest: of the file of the module; empty where it has none.
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
    digest: bytes = b""

    @property
    def module(self) -> str:
        """The module that engines import; empty for code by value."""
        return self.target.partition(":")[0]

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

    def apply(self) -> None:
        """Register it in this process.

        Raises:
            ConfigError: the code cannot be imported or rebuilt.
        """
        Registration(self.kind, self.name, self.load(), self.summary, self.source, self.options, self.tasks).apply()


def pack_registrations(*configs: RunConfig) -> tuple[SentRegistration, ...]:
    """Return what is registered in this process, to be sent to engines.

    What cannot be sent is left out where no run uses it.

    Args:
        configs: settings of the runs that the engines will train; without any, they may use all of it.

    Raises:
        ClusterError: an object that a run uses can be neither imported nor sent.
        NotAvailableError: cloudpickle is not installed.
    """
    used = {key for config in configs for key in names_used(config)}
    packed = []
    for registration in REGISTERED:
        try:
            packed.append(_packed(registration))
        except (ClusterError, NotAvailableError):
            if not configs or used & set(extension_of(registration).names):
                raise
    return tuple(packed)


def apply_registrations(sent: Sequence[SentRegistration]) -> None:
    """Register in this process what another one has sent, and nothing else.

    Modules that this process imported from files of other content are imported again.

    Raises:
        ConfigError: some code cannot be imported or rebuilt, or is not that which was sent.
    """
    for record in reversed(REGISTERED[:]):
        record.remove()
    _replace_folders(sent)
    for registration in {registration.module: registration for registration in sent if registration.target}.values():
        if registration.module in sys.modules and _is_outdated(registration):
            importlib.reload(sys.modules[registration.module])
    for registration in sent:
        registration.apply()
        if registration.target:
            _DIGESTS[registration.module] = _checked_digest(registration)


def _is_outdated(registration: SentRegistration) -> bool:
    """Return whether a module was imported from a file of other content than it has now, or than was sent."""
    imported, digest = _DIGESTS.get(registration.module), _digest(registration.module)
    return imported != digest or imported != (registration.digest or digest)


def _replace_folders(sent: Sequence[SentRegistration]) -> None:
    """Look for modules last in the folders that were sent now, and no longer in those that were sent before."""
    sys.path[:] = [folder for folder in sys.path if folder not in _FOLDERS]
    folders = dict.fromkeys(registration.folder for registration in sent if registration.folder)
    _FOLDERS[:] = [folder for folder in folders if folder not in sys.path]
    sys.path.extend(_FOLDERS)
    importlib.invalidate_caches()


def _checked_digest(registration: SentRegistration) -> bytes:
    """Return the digest of the file that a module was imported from.

    Raises:
        ConfigError: the file that was sent has another one.
    """
    module = registration.module
    digest = _digest(module)
    # a file of that folder was only edited since it was sent
    if digest != registration.digest and registration.digest and _folder_of(module) != registration.folder:
        raise ConfigError(
            f"{title_of(registration.kind, registration.name)}: engines import {module} from "
            f"{sys.modules[module].__file__}, whose text differs from that in {registration.folder}, where it was "
            "registered. Rename one of the two modules, or copy the registered one there; then restart the engines."
        )
    return digest


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
        _digest(target.partition(":")[0]) if target else b"",
    )


def _folder_of(module: str) -> str:
    """Return the folder on the import path that holds a module's package; empty where there is none."""
    loaded = sys.modules[module.partition(".")[0]]
    paths = list(getattr(loaded, "__path__", ())) or [getattr(loaded, "__file__", None) or ""]
    return str(Path(paths[0]).resolve().parent) if paths[0] else ""


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
