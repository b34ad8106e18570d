"""Facts about published data sets: their files with hashes, and their usual base interval."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

Kind = Literal["edges", "steps", "static"]
_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
PARSER_VERSION = 1  # raise it when a parser returns another table for the same file
_MODULES = {  # format -> module of its parser, parse_<format>
    **dict.fromkeys(("snap_text", "snap_csv", "reddit_hyperlinks", "konect", "network_repository"), "snap"),
    **dict.fromkeys(("planetoid", "ogb", "nodes_edges"), "static"),
    **dict.fromkeys(("jodie", "elliptic", "amlsim", "pygt_json"), "temporal"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFile:
    """One published file: its addresses, its hashes, and the member to read.

    Attributes:
        name: name of the downloaded file.
        urls: its addresses, tried in order; none where only its owner may distribute it.
        also: other names and paths of it, such as the same file unpacked or repacked.
        sha256: SHA-256 of the file as published, in hexadecimal. Where none is published it is empty; the hash is then
            recorded at first use, and any other file is refused afterwards.
        sha256_content: SHA-256 of the unpacked content that is read. It identifies a repacked file.
        member: pattern of the member to read, where the file is an archive; empty for all of it.
    """

    name: str
    urls: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    sha256: str = ""
    sha256_content: str = ""
    member: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the file to search for, the published one first."""
        return (self.name, *self.also)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One published form of a data set: files and the parser that reads them together.

    Attributes:
        files: the files, all needed.
        format: name of their parser in ``datasets.formats``.
        options: further arguments of ``parse``.
        by_name: whether ``parse`` takes several texts by name, instead of one text.
        without_features: further arguments where the data set's own features are not needed.
    """

    files: tuple[PublishedFile, ...]
    format: str
    by_name: bool = False
    options: Mapping[str, Any] = field(default_factory=lambda: _NO_OPTIONS)
    without_features: Mapping[str, Any] = field(default_factory=lambda: _NO_OPTIONS)

    @property
    def parse(self) -> Callable[..., Any]:
        """The parser, imported on first use."""
        module = importlib.import_module(f"dtdg_lab.datasets.formats.{_MODULES[self.format]}")
        return getattr(module, f"parse_{self.format}")

    @property
    def downloadable(self) -> bool:
        """Whether every file has an address."""
        return all(file.urls for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A published data set.

    Attributes:
        name: the data set's name in the lab.
        forms: its published forms. The first on this machine is read, else the first that can be downloaded.
        kind: ``edges`` with times, ``steps`` already cut, or a ``static`` graph that is made dynamic.
        page: web page that describes it.
        licence: its licence, as far as stated.
        cite: the paper to cite, and the collection.
        summary: one sentence.
        interval: usual length of a base interval in the data's unit of time, counted from the first edge; edges only.
        rows: published number of temporal edges, or of the edges of a static graph; None where not stated.
        nodes: published number of nodes; None where not stated.
        exact: whether rows and nodes were counted from the file. Another count is then an error, else a warning.
        bytes: approximate size of the download; None where not stated.
        weights: ``keep`` the file's weights, or ``drop`` them, such as ratings below 0: degrees are sums of weights.
    """

    name: str
    forms: tuple[Form, ...]
    kind: Kind
    page: str
    licence: str
    cite: str
    summary: str
    interval: float = 0.0
    rows: int | None = None
    nodes: int | None = None
    exact: bool = False
    bytes: int | None = None
    weights: Literal["keep", "drop"] = "keep"

    @property
    def address(self) -> str:
        """The first download address; empty if it must be downloaded manually."""
        return next((form.files[0].urls[0] for form in self.forms if form.downloadable), "")


# The published data sets of ``definitions.toml``, by name and as the constants that the catalogue names.


def _file(*, urls: tuple[str, ...] = (), archived: str = "", **fields: Any) -> PublishedFile:
    """Return a file whose last address is the Wayback Machine's copy of the first, byte for byte."""
    copies = (f"https://web.archive.org/web/{archived}id_/{urls[0]}",) if archived else ()
    return PublishedFile(urls=(*urls, *copies), also=tuple(fields.pop("also", ())), **fields)


PUBLISHED = {
    name: Published(
        name=name,
        forms=tuple(Form(files=tuple(_file(**file) for file in form.pop("files")), **form) for form in forms),
        **fields,
    )
    for name, fields in tomllib.loads(Path(__file__).with_name("definitions.toml").read_text(encoding="utf-8")).items()
    for forms in [fields.pop("forms")]
}


def __getattr__(constant: str) -> Published:
    """Return the data set of a constant, such as ``CORA_T`` for ``cora-t``.

    Raises:
        AttributeError: there is no such data set.
    """
    try:
        return PUBLISHED[constant.lower().replace("_", "-")]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {constant!r}") from None
