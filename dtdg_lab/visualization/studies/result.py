"""The base of results of studies and forecasts: a table, words, and both as HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from dtdg_lab.core.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import pandas as pd


COLUMNS = ("protocol", "leaky", "purge", "data")  # what decides whether two results are comparable
MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "protocol": "name of the evaluation protocol",
        "leaky": "whether splits share edges: there is no gap, and edges live longer than an interval",
        "purge": "snapshots left out at each boundary between splits",
        "data": "first digits of the SHA-256 of the data set's arrays",
        "data_hash": "the SHA-256 of the data set's arrays",
    }
)


class StudyResult:
    """Rows as a table, and words; a notebook shows it as HTML.

    A subclass is a dataclass with ``rows``, one mapping for each line, and ``described``: what was done, in words.

    Attributes:
        meanings: column -> what it holds.
        text_columns: of the table in ``summary()``; all where empty.
        html_columns: of the table in a notebook; all where empty.
        missing: what stands for an unknown value.
        digits: of numbers.
    """

    __slots__ = ()
    meanings: ClassVar[Mapping[str, str]] = MappingProxyType({})
    text_columns: ClassVar[tuple[str, ...]] = ()
    html_columns: ClassVar[tuple[str, ...]] = ()
    missing: ClassVar[str] = ""
    digits: ClassVar[int] = 4

    if TYPE_CHECKING:

        @property
        def rows(self) -> Sequence[dict[str, Any]]:
            """One mapping for each line."""

        @property
        def described(self) -> str:
            """Description of the work."""

    @property
    def table(self) -> pd.DataFrame:
        """The rows as a frame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a frame."""
        return self.table

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: what was done, and the rows."""
        return {"described": self.described, "rows": [dict(row) for row in self.rows]}

    def conclusion(self) -> str:
        """Return what follows from the rows, in words."""
        return ""

    def summary(self) -> str:
        """Return what was done, the table, and what follows from it."""
        table = self.readable(self.text_columns).to_string(index=False)
        return "\n".join(part for part in (self.described, table, self.conclusion()) if part)

    def readable(self, columns: Iterable[str] = ()) -> pd.DataFrame:
        """Return the table as text: bytes and seconds with their units, numbers of few digits.

        Args:
            columns: in their order; all where empty.
        """
        frame = self.to_pandas()
        frame = frame[list(columns) or list(frame)].astype(object)
        return frame.apply(lambda column: column.map(lambda value: self._readable(str(column.name), value)))

    def _readable(self, name: str, value: Any) -> str:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return self.missing
        if isinstance(value, str | bool):
            return str(value)
        if name.endswith("bytes"):
            return format_bytes(value)
        if name.endswith("_s"):
            return format_seconds(value)
        return f"{value:,}" if isinstance(value, int) else f"{value:.{self.digits}g}"

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        """Return the table with the meaning of its columns as HTML."""
        table = self.readable(self.html_columns)
        meanings = {name: meaning for name, meaning in self.meanings.items() if name in table or not self.html_columns}
        conclusion = paragraphs(self.conclusion())
        return f"<p>{html.escape(self.described)}</p>{table.to_html(index=False)}{conclusion}{explained(meanings)}"


def paragraphs(text: str) -> str:
    """Return lines as paragraphs of a page."""
    return "".join(f"<p>{html.escape(line)}</p>" for line in text.split("\n") if line)


def explained(meanings: Mapping[str, str]) -> str:
    """Return names with their meanings as a list of a page."""
    items = "".join(
        f"<li><b>{html.escape(name)}</b>: {html.escape(meaning)}</li>" for name, meaning in meanings.items()
    )
    return f"<ul style='font-size:90%'>{items}</ul>"
