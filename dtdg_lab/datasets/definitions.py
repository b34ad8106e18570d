"""The published data sets of ``definitions.toml``, by name and as the constants that the catalogue names."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from dtdg_lab.datasets.registry import Form, Published, PublishedFile


def _file(*, urls: tuple[str, ...] = (), archived: str = "", **known: Any) -> PublishedFile:
    """A file, with the Wayback Machine's copy of its first address, byte for byte, as the last address."""
    copies = (f"https://web.archive.org/web/{archived}id_/{urls[0]}",) if archived else ()
    return PublishedFile(urls=(*urls, *copies), also=tuple(known.pop("also", ())), **known)


PUBLISHED = {
    name: Published(
        name=name,
        forms=tuple(Form(files=tuple(_file(**file) for file in form.pop("files")), **form) for form in forms),
        **known,
    )
    for name, known in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
    for forms in [known.pop("forms")]
}


def __getattr__(constant: str) -> Published:
    """``CORA_T`` for ``cora-t``.

    Raises:
        AttributeError: there is no such data set.
    """
    try:
        return PUBLISHED[constant.lower().replace("_", "-")]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {constant!r}") from None
