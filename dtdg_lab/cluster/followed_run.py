"""The records of a run, read while it trains."""

from __future__ import annotations

import threading
from pathlib import Path

import pandas as pd

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records.lines import Line, RecordFile, parse_lines
from dtdg_lab.records.rank_files import UPDATE_BYTES
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.charts import all_rollups, captions_of, figures_of, save_figures
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.visualization.changes.log import changes_frame, requested_changes
from dtdg_lab.visualization.chart import Figure, XAxis

LOOK_S = 0.1


class FollowedRun:
    """A run whose record tables are read while it trains.

    Attributes:
        id: name of the run, the name of its folder.
        path: folder of the run.
        live: its record tables as columns, for charts; hold ``lock`` while reading it. The handle of a resumed run
            continues with it.
        version: increases with every change of ``live`` or of the status.
        silent: rank -> whole seconds without a sign of life, for ranks whose processes are stopped or blocked.
    """

    def __init__(self, directory: RunDirectory, predecessor: FollowedRun | None = None) -> None:
        self._directory, self._files = directory, dict[int, RecordFile]()
        self.id, self.path = directory.id, directory.path
        self._started_config = self._config = directory.config()
        self.live = RunTables(self._started_config, directory.records, all_rollups())
        self.lock = threading.Lock()
        self.version = 0
        self.silent: dict[int, int] = {}
        self._next_seq: dict[int, int] = {}
        if predecessor is not None:
            self._files, self.live, self.lock = predecessor._files, predecessor.live, predecessor.lock
            self._config, self.version, self._next_seq = (
                predecessor._config,
                predecessor.version + 1,
                predecessor._next_seq,
            )
        self._thread = threading.Thread(target=self._follow, name=f"run-{directory.id}", daemon=True)

    @property
    def status(self) -> str:
        """The state: starting, running, paused, stopping, finished, stopped, interrupted or failed."""
        return str(self._directory.status()["state"])

    @property
    def reason(self) -> str:
        """The reason why the run ended, or the last refused changes; empty otherwise."""
        return str(self._directory.status()["reason"])

    @property
    def config(self) -> RunConfig:
        """The current settings, as far as the records are read."""
        return self._config

    def requests(self) -> pd.DataFrame:
        """Return the log of changes: requester, setting, old and new value, and outcome.

        One row per setting, with the number of its request as index: see ``StoredRun.requests``.
        """
        with self.lock:
            return changes_frame(requested_changes(self.live, ended=self.status in ENDED))

    def figures(self, x: XAxis = "steps") -> dict[str, Figure]:
        """Return the current charts by name, as plotly figure dicts; the picture of the system comes first."""
        with self.lock:
            return figures_of(self.live, x, ended=self.status in ENDED)

    def captions(self) -> dict[str, str]:
        """Return the current caption of each chart."""
        with self.lock:
            return captions_of(self.live, ended=self.status in ENDED)

    def save_figures(self, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Write all current charts to a folder and return their paths (see ``runs.figures.save_figures``)."""
        return save_figures(self.figures(), folder, overwrite=overwrite)

    def _follow(self) -> None:
        raise NotImplementedError

    def _catch_up(self, rank: int) -> bool:
        """Read the next block of a rank's file; return True unless it was empty."""
        raw_lines = self._file(rank).read(UPDATE_BYTES)
        new = [line for line in parse_lines(raw_lines) if line["seq"] >= self._next_seq.get(rank, 0)]
        if new:
            self._add(new)
        return bool(raw_lines)

    def _file(self, rank: int) -> RecordFile:
        return self._files.setdefault(rank, RecordFile(self._directory.record_file(rank)))

    def _add(self, lines: list[Line]) -> None:
        """Add new lines of one rank."""
        self._next_seq[lines[-1]["rank"]] = lines[-1]["seq"] + 1
        self.live.add_lines(lines)
        self.version += 1


class LocalRun(FollowedRun):
    """Follows the records of one process, so that charts can be drawn during training."""

    def __init__(self, directory: RunDirectory) -> None:
        super().__init__(directory)
        self._over = threading.Event()
        self._thread.start()

    def close(self) -> None:
        """Read the remaining records after the end of the run, and stop following."""
        self._over.set()
        self._thread.join()

    def _follow(self) -> None:
        over = False
        while not over:
            over = self._over.wait(LOOK_S)
            has_more = True
            while has_more:
                with self.lock:
                    has_more = self._catch_up(0)
