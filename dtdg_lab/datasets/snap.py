"""Temporal graphs in the text format of SNAP: lines of ``source target unixtime``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.windows import IntervalEdges, cut_edges

DAY_S = 86_400
_NOT_STATED = "not stated; cite the paper"
_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapText:
    """A published file of temporal edges: where it is, how to know it, and how it is usually cut.

    Attributes:
        name: the data set's name in the lab.
        files: file names to look for, the one that is downloaded first.
        urls: addresses of ``files[0]``, tried in order.
        sha256_gz: SHA-256 of the gzip file as published, in hexadecimal.
        sha256_text: SHA-256 of the text in it.
        window_s: usual length of a base interval, in seconds, counted from the first time.
        rows: published number of temporal edges.
        nodes: published number of vertices.
        licence: as far as stated.
        cite: the paper to cite, and the collection.
    """

    name: str
    files: tuple[str, ...]
    urls: tuple[str, ...]
    sha256_gz: str
    sha256_text: str
    window_s: int
    rows: int
    nodes: int
    licence: str
    cite: str


COLLEGEMSG = SnapText(
    name="collegemsg",
    files=("CollegeMsg.txt.gz", "CollegeMsg.txt"),
    urls=("https://snap.stanford.edu/data/CollegeMsg.txt.gz",),
    sha256_gz="50ae2d98ed3bad9ddb18dbd495a89e5e10cfb8f7e86932827db29fc41b41f9fa",
    sha256_text="e00ba2415373dee52c00616065bcceaa4750e78de60d1855c76470600f10740f",
    window_s=190_080,  # 2.2 days, as in the experiments of EvolveGCN
    rows=59_835,
    nodes=1_899,
    licence=_NOT_STATED,
    cite="Panzarasa, Opsahl, Carley 2009 (JASIST 60(5)); SNAP CollegeMsg",
)
EMAIL_EU = SnapText(
    name="email-eu",
    files=("email-Eu-core-temporal.txt.gz", "email-Eu-core-temporal.txt"),
    urls=("https://snap.stanford.edu/data/email-Eu-core-temporal.txt.gz",),
    sha256_gz="f6cc93249978e59d1aba111b55ea10ec553917419a3be1210012b5db3580efa6",
    sha256_text="1835c94dc6685dcf2a614a1b6a0275b323dd4002f7aa111fbe9f76db8864391f",
    window_s=7 * DAY_S,
    rows=332_334,
    nodes=986,
    licence=_NOT_STATED,
    cite="Paranjape, Benson, Leskovec 2017 (WSDM); SNAP email-Eu-core-temporal",
)
MATHOVERFLOW = SnapText(
    name="mathoverflow",
    files=("sx-mathoverflow.txt.gz", "sx-mathoverflow.txt"),
    urls=("https://snap.stanford.edu/data/sx-mathoverflow.txt.gz",),
    sha256_gz="cdc635fda76dab06ab02ca242563fa333bb83d096571342ef0326d85ff0c04da",
    sha256_text="2bf52f784cdba69730f912633aa1414b381059406ded2c38bc37658ead5b0773",
    window_s=30 * DAY_S,
    rows=506_550,
    nodes=24_818,
    licence=_NOT_STATED,
    cite="Paranjape, Benson, Leskovec 2017 (WSDM); SNAP sx-mathoverflow",
)


def parse(text: bytes, where: str) -> NDArray[np.int64]:
    """The rows of a text in SNAP's temporal format, shape (E, 3): source, target, time.

    Columns are separated by spaces or tabs; blank lines and lines that start with ``#`` or ``%`` are skipped.

    Args:
        text: the content of the file, uncompressed.
        where: the file's name, for messages.

    Raises:
        DataError: a line is not three whole numbers; the message has its number and content. Or no line is.
    """
    lines = [line for line in text.decode("latin-1").split("\n") if line.strip() and line.lstrip()[0] not in "#%"]
    if not lines:
        raise DataError(f"{where} holds no edges; lines of 'source target unixtime' are expected.")
    try:
        rows = np.loadtxt(lines, dtype=np.int64, comments=None, ndmin=2)
    except ValueError as error:
        raise _first_bad_line(text, where) from error
    if rows.shape[1] != 3:
        raise _first_bad_line(text, where)
    return rows


def _first_bad_line(text: bytes, where: str) -> DataError:
    """The error that names the first line ``parse`` cannot take."""
    for number, line in enumerate(text.decode("latin-1").split("\n"), start=1):
        words = line.split()
        if not words or words[0][0] in "#%":
            continue
        if len(words) != 3 or not all(_is_whole(word) for word in words):
            return DataError(
                f"line {number} of {where} is {line.strip()[:80]!r}; three whole numbers 'source target unixtime', "
                "separated by spaces or tabs, are expected. Correct the line, or delete the file to fetch it again."
            )
    return DataError(f"{where} cannot be read as lines of 'source target unixtime'. Fetch the file again.")


def _is_whole(word: str) -> bool:
    try:
        return bool(_INT64.min <= int(word) <= _INT64.max)
    except ValueError:
        return False


def read_edges(definition: SnapText, text: bytes, *, cut: int = 0) -> IntervalEdges:
    """The edges of a published file, checked against its published counts and dealt to base intervals.

    Args:
        definition: the data set.
        text: the file's text.
        cut: equal intervals over the whole span; 0 takes the data set's own window length.

    Raises:
        DataError: a line cannot be read, or rows or vertices are not as many as published.
    """
    rows = parse(text, definition.files[-1])
    edges = cut_edges(rows[:, 0], rows[:, 1], rows[:, 2], cut=cut, window=definition.window_s)
    if (len(rows), edges.num_nodes) != (definition.rows, definition.nodes):
        raise DataError(
            f"{definition.files[-1]} has {len(rows):,} rows and {edges.num_nodes:,} vertices; {definition.rows:,} and "
            f"{definition.nodes:,} are published for {definition.name!r}. "
            f"Fetch the file again from {definition.urls[0]}."
        )
    return edges
