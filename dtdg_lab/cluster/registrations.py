"""Registrations sent to engines: as a name if engines can import the code, otherwise by value."""

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

MOST_BYTES = 4 << 20  # limit of code sent by value, since it is sent to each rank of each attempt
_DIGESTS: dict[str, bytes] = {}  # module -> digest of its file when this engine imported it
_FOLDERS: list[str] = []  # folders on this engine's import path for the latest registrations


@dataclass(frozen=True, slots=True)
class SentRegistration:
    """One registration as plain values.

    Attributes:
        kind: kind of the registration.
        name: name in the catalogue.
        target: ``module:attribute`` that engines import; empty for code sent by value.
        folder: folder of the module on this machine; engines search it last.
        code: the object pickled by cloudpickle; empty if there is a target.
        summary: one sentence.
        source: paper and section.
        options: names of options, and new options.
        tasks: tasks of a data set.
        digest: digest of the module's file; empty if it has none.
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
        """The module that engines import; empty for code sent by value."""
        return self.target.partition(":")[0]

    def load(self) -> Any:
        """Return the name to import, or the object.

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
                "Everything it refers to must be importable on every engine, or be defined in the same module."
            ) from error

    def apply(self) -> None:
        """Register the code in this process.

        Raises:
            ConfigError: the code cannot be imported or rebuilt.
        """
        Registration(self.kind, self.name, self.load(), self.summary, self.source, self.options, self.tasks).apply()


def pack_registrations(*configs: RunConfig) -> tuple[SentRegistration, ...]:
    """Pack the registrations of this process, to be sent to engines.

    Registrations that cannot be sent are left out if no run uses them.

    Args:
        configs: settings of the runs that the engines will train; without any, all registrations may be used.

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
    """Register exactly the sent registrations in this process.

    Modules are imported again if their files have changed since this process imported them.

    Raises:
        ConfigError: some code cannot be imported or rebuilt, or differs from the sent code.
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
    """Return True if a module was imported from a file that has changed since, or differs from the sent file."""
    imported, digest = _DIGESTS.get(registration.module), _digest(registration.module)
    return imported != digest or imported != (registration.digest or digest)


def _replace_folders(sent: Sequence[SentRegistration]) -> None:
    """Put the folders of the sent modules at the end of the import path, in place of earlier ones."""
    sys.path[:] = [folder for folder in sys.path if folder not in _FOLDERS]
    folders = dict.fromkeys(registration.folder for registration in sent if registration.folder)
    _FOLDERS[:] = [folder for folder in folders if folder not in sys.path]
    sys.path.extend(_FOLDERS)
    importlib.invalidate_caches()


def _checked_digest(registration: SentRegistration) -> bytes:
    """Return the digest of the file that a module was imported from.

    Raises:
        ConfigError: the sent file has another digest.
    """
    module = registration.module
    digest = _digest(module)
    # in the same folder, the file was only edited since it was sent
    if digest != registration.digest and registration.digest and _folder_of(module) != registration.folder:
        raise ConfigError(
            f"{title_of(registration.kind, registration.name)}: engines import {module} from "
            f"{sys.modules[module].__file__}, which differs from the registered one in {registration.folder}. "
            "Rename one of the two modules, or copy the registered one there; then restart the engines."
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
    """Return the folder on the import path that contains a module's package; empty without one."""
    loaded = sys.modules[module.partition(".")[0]]
    paths = list(getattr(loaded, "__path__", ())) or [getattr(loaded, "__file__", None) or ""]
    return str(Path(paths[0]).resolve().parent) if paths[0] else ""


def _by_value(registration: Registration) -> bytes:
    try:
        import cloudpickle
    except ImportError as error:
        raise NotAvailableError(
            f"{registration.what!r} cannot be imported by engines, and sending it needs cloudpickle. Run: "
            "pip install cloudpickle, or put it in a module."
        ) from error

    title, what = title_of(registration.kind, registration.name), registration.what
    what = catalogue.load(what) if isinstance(what, str) else what
    # send a module that engines cannot import along with the object; cloudpickle always does so for __main__
    module = sys.modules.get(getattr(what, "__module__", type(what).__module__))
    is_lost = module is not None and module.__name__ != "__main__" and module.__spec__ is None
    if is_lost:
        cloudpickle.register_pickle_by_value(module)
    try:
        code = bytes(cloudpickle.dumps(what))
    except (TypeError, pickle.PicklingError, RecursionError) as error:
        raise ClusterError(
            f"{title} cannot be sent to engines: {error}. Do not let it refer to sessions, files or locks of this "
            "process, or put it in a module."
        ) from error
    finally:
        if is_lost:
            cloudpickle.unregister_pickle_by_value(module)
    if len(code) > MOST_BYTES:
        raise ClusterError(
            f"{title} takes {format_bytes(len(code))}, above the limit of {format_bytes(MOST_BYTES)} for engines: it "
            "refers to large objects of this process. Load them inside its functions, or put it in a module."
        )
    return code


def _digest(module: str) -> bytes:
    """Return the digest of a module's file; empty if it has none."""
    file = getattr(sys.modules[module], "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).digest() if file and Path(file).is_file() else b""
