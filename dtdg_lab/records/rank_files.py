"""RankFiles: the files of record lines that the ranks of a run write, read side by side as they grow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from dtdg_lab.records.lines import AttemptSpan, RecordFile, attempt_spans

UPDATE_BYTES = 1 << 20  # bytes read from a rank's file at a time: far fewer steps than a rank may lag behind


class RankFiles:
    """The growing files ``rank<number>.jsonl`` of one folder, each with the position read so far.

    Args:
        folder: the folder; None for lines from another source.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._files: dict[int, RecordFile] = {}

    def paths(self) -> dict[int, Path]:
        """Return the file of each rank."""
        paths = [] if self._folder is None else sorted(self._folder.glob("rank*.jsonl"))
        return {int(path.stem[4:]): path for path in paths if path.stem[4:].isdigit()}

    def spans(self) -> Iterator[AttemptSpan]:
        """Yield the position and the time of each rank's attempts."""
        for path in self.paths().values():
            yield from attempt_spans(path)

    def begin_again(self) -> None:
        """Set the position to the first line of each file."""
        self._files = {}

    def begin_after(self, offsets: Mapping[int, int]) -> None:
        """Set the position in each rank's file, in bytes."""
        paths = self.paths()
        self._files = {rank: RecordFile(paths[rank], offset) for rank, offset in offsets.items() if rank in paths}

    def cut(self) -> list[str]:
        """Return the names of files that are shorter than the part already read."""
        return [file.path.name for file in self._files.values() if file.is_cut()]

    def next_block(self, steps: Mapping[int, int]) -> list[tuple[bytes, str]]:
        """Return the next lines, with their locations, of the rank furthest behind; empty without any.

        Args:
            steps: rank -> newest step that was read; a step needs the rows of all ranks.

        Raises:
            RunStoreError: a file cannot be read.
        """
        for rank, path in self.paths().items():
            self._files.setdefault(rank, RecordFile(path))
        for rank in sorted(self._files, key=lambda rank: steps.get(rank, -1)):
            if raw_lines := self._files[rank].read(UPDATE_BYTES):
                return raw_lines
        return []
