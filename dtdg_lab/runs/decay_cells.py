"""The cells of a study of K and alpha on disk, so that a study that broke off goes on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.runs.json_files import read_json, write_json

SCHEMA = 1
Cell = tuple[int, float, int]  # full_snapshots, alpha, seed


class DecayCells:
    """The cells of a study that are done, in one JSON file.

    The file is named after the config without K, alpha and seed: the same study asked for again, or one of more cells,
    finds what there is. A cell also knows the hash of its data, and is not found for other data.

    Args:
        folder: that holds the file; made when missing.
        config: the study's.
        again: begin anew; what the file holds is replaced with the first cell that is put.

    Raises:
        RunStoreError: the file cannot be read.
    """

    def __init__(self, folder: Path, config: RunConfig, *, again: bool = False) -> None:
        self.path = folder / f"decay-{config.replace(full_snapshots=1, alpha=1.0, seed=0).short_hash}.json"
        self._config = config
        self._kept: dict[Cell, dict[str, Any]] = {}
        if self.path.is_file() and not again:
            stored = read_json(self.path)
            if not isinstance(stored, dict) or stored.get("schema") != SCHEMA:
                raise RunStoreError(
                    f"{self.path} holds no cells that this version reads: move it away, or give again=True to begin "
                    "the study anew."
                )
            self._kept = {_cell(each["row"]): each for each in stored["cells"]}

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, cell: Cell, data_hash: str) -> dict[str, Any] | None:
        """The row of a cell that is done on this data; None where there is none."""
        each = self._kept.get(cell)
        return dict(each["row"]) if each is not None and each["data"] == data_hash else None

    def data_hash(self, cell: Cell) -> str:
        """The hash of the data that a kept cell was trained on."""
        return str(self._kept[cell]["data"])

    def put(self, row: Mapping[str, Any], data_hash: str) -> None:
        """Keep a row.

        Raises:
            RunStoreError: the file cannot be written.
        """
        self._kept[_cell(row)] = {"data": data_hash, "row": dict(row)}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        told = {"schema": SCHEMA, "config": self._config.model_dump(), "cells": list(self._kept.values())}
        write_json(self.path, told)


def _cell(row: Mapping[str, Any]) -> Cell:
    return int(row["full_snapshots"]), float(row["alpha"]), int(row["seed"])
