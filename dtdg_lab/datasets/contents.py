"""What a parser is given: the text of one file, or several texts by name, unpacked when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from dtdg_lab.datasets.archives import Members, unpacked
from dtdg_lab.datasets.published import PublishedFile


def content(path: Path, member: str = "") -> tuple[bytes, str]:
    """What is read of a file, unpacked, and what messages call it, which tells its format by its end.

    Args:
        path: a plain or packed file, or an archive.
        member: patterns of the member's name, separated by ``|``, of which the first that fits is taken; its whole
            name where there is a ``/`` in it. Not asked where there is only one.

    Raises:
        DataError: the file is damaged, or holds no such member.
    """
    members = Members(path)
    if len(members) == 1:
        name = next(iter(members))
    elif "/" in member and member in members:
        name = member
    else:
        name = members.find(*(member or "*").split("|"))
    where = name if path.name.startswith(name) else f"{path.name}/{name}"
    return unpacked(members[name], where), where


class Together(Mapping[str, bytes]):
    """Several files as if they were the members of one archive.

    Args:
        files: what is known of each.
        paths: where each of them is.
    """

    def __init__(self, files: tuple[PublishedFile, ...], paths: tuple[Path, ...]) -> None:
        self._places = {_unpacked_name(path): (path, file.member) for file, path in zip(files, paths, strict=True)}

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, name: str) -> bytes:
        return content(*self._places[name])[0]


def _unpacked_name(path: Path) -> str:
    for end in (".gz", ".bz2", ".zip"):
        if path.name.endswith(end):
            return path.name.removesuffix(end)
    return path.name
