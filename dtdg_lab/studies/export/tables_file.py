"""A run's tables as Parquet, with its settings, environment and summary: a zip file or a folder."""

from __future__ import annotations

from pathlib import Path

from dtdg_lab.runs.open import StoredRun
from dtdg_lab.runs.packed_run import pack, zip_of
from dtdg_lab.studies.export.placing import place_file, place_folder


def write_tables(files: dict[str, bytes], where: Path, *, again: bool) -> Path:
    """Write named pieces as a zip where the name ends in ``.zip``, else as a folder.

    Raises:
        RunStoreError: they cannot be written.
    """
    if where.suffix == ".zip":
        return place_file(where, zip_of(files), again=again)

    def fill(folder: Path) -> None:
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)

    return place_folder(where, fill, again=again)


def run_tables(run: StoredRun) -> dict[str, bytes]:
    """All tables of a run, all attempts, each with config, environment and summary as metadata.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: the run's files cannot be read.
    """
    return dict(pack(run, telling=True).files)
