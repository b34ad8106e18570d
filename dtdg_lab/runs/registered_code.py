"""Descriptions of registered code in the folder of a run, a race or a study."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from dtdg_lab.config import extensions
from dtdg_lab.config.extensions import Extension
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError
from dtdg_lab.runs.json_files import RESTORE, read_object, write_json


def read_extensions(folder: Path) -> tuple[Extension, ...]:
    """Return the descriptions of registered code in a folder; empty without a file.

    Raises:
        RunStoreError: the file is unreadable, damaged, or of a newer version.
    """
    file = folder / extensions.FILE
    if not file.is_file():
        return ()
    descriptions = read_object(file, newest=extensions.SCHEMA, needs=("extensions",))["extensions"]
    try:
        return tuple(map(Extension.from_dict, descriptions))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RunStoreError(f"{file} is damaged ({error!r}). {RESTORE}") from error


def learn_extensions(folder: Path) -> None:
    """Add the registered code that a folder describes, so that configs can name it.

    Raises:
        RunStoreError: the description is unreadable, damaged, or of a newer version.
    """
    try:
        extensions.add_absent(read_extensions(folder))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, RunStoreError):
            raise
        raise RunStoreError(f"{folder / extensions.FILE} is damaged ({error!r}). {RESTORE}") from error


def check_same_code(what: str, folder: Path, *configs: RunConfig, texts: Collection[str] = (), remedy: str) -> None:
    """Raise if registered code has changed since a folder described it.

    Args:
        what: what would continue, such as ``study 'rates'``.
        folder: folder of the run, race or study.
        configs: settings to continue with.
        texts: values of settings; some may name registered code.
        remedy: alternative to registering the former code, as an imperative.

    Raises:
        ConfigError: some code that the settings use has changed.
        RunStoreError: the description is unreadable, damaged, or of a newer version.
    """
    present = extensions.extensions_of(*configs, texts=texts)
    if changes := extensions.code_changes(read_extensions(folder), present):
        raise ConfigError(
            f"{what} cannot be continued: {'; '.join(changes)}. Register the former code (the source of a cell "
            f"is in {extensions.FILE} in the folder {folder.name}), or {remedy}."
        )


def add_extensions(folder: Path, *configs: RunConfig, texts: Collection[str] = (), begin: Path | None = None) -> None:
    """Describe the registered code of runs with these settings in a folder, replacing older descriptions.

    Args:
        folder: folder of a run, race or study; without registered code, nothing is written.
        configs: the settings.
        texts: values of settings; some may name registered code.
        begin: folder of another run, whose descriptions are also kept.

    Raises:
        RunStoreError: the file cannot be written, or an older one cannot be read.
    """
    extensions_by_name = {
        (one.kind, one.name): one for source in (begin, folder) if source for one in read_extensions(source)
    }
    former = dict(extensions_by_name)
    extensions_by_name |= {(one.kind, one.name): one for one in extensions.extensions_of(*configs, texts=texts)}
    if extensions_by_name != former or (begin is not None and extensions_by_name):
        listed = [one.to_dict() for one in extensions_by_name.values()]
        write_json(folder / extensions.FILE, {"schema": extensions.SCHEMA, "extensions": listed})
