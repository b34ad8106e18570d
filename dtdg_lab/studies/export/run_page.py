"""A run as one page: its report, and its tables packed into it, to be opened offline and read back."""

from __future__ import annotations

import base64

from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.core.units import format_bytes
from dtdg_lab.runs import page
from dtdg_lab.runs.open import StoredRun
from dtdg_lab.runs.open_any import PACKED
from dtdg_lab.runs.packed_run import PackedRun, pack
from dtdg_lab.runs.report import report_page

MOST_BYTES = 10_000_000  # of a page
POINTS = (1500, 300)  # of a series drawn; fewer where the page would grow too large otherwise
_SPARE = 8_000  # for words beside the tables
_PLACE = "<!-- tables -->"
_SAVE = """
document.getElementById('save-tables').addEventListener('click', () => {
  const packed = atob(document.getElementById('PACKED').textContent.trim());
  const bytes = Uint8Array.from(packed, letter => letter.charCodeAt(0));
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([bytes], {type: 'application/zip'}));
  link.download = document.getElementById('save-tables').dataset.name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});
""".replace("PACKED", PACKED)


def run_page(run: StoredRun, *, most_bytes: int = MOST_BYTES) -> bytes:
    """The page of a run: everything its report has, and its tables within the limit.

    Args:
        run: read from its folder.
        most_bytes: what the page may take at most; above it tables are thinned, which the page then says.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: the run's files cannot be read, or the page cannot be made small enough.
    """
    for points in POINTS:
        shown = StoredRun(run.directory, points=points)
        made = report_page(shown, more=_PLACE)
        bare = len(made.encode())
        room = (most_bytes - bare - _SPARE) * 3 // 4  # base64 makes four letters of three bytes
        if room > 0:
            break
    else:
        raise RunStoreError(
            f"the page of run {run.id} takes {format_bytes(bare)} without its tables, and {format_bytes(most_bytes)} "
            "are allowed. Export kind='parquet', which has no limit."
        )
    packed = pack(run, most_bytes=room)
    return made.replace(_PLACE, tables_section(packed, run.id)).encode()


def tables_section(packed: PackedRun, name: str) -> str:
    """The section of the tables that ride along, with a button that saves them."""
    thinned = f"Not all fitted into this page: {packed.thinned}." if packed.thinned else "They are whole."
    words = (
        f"The run's record tables ride along in this page, packed to {format_bytes(packed.size)}. {thinned} "
        "dtdg_lab.open_run(page) reads the run back from this file."
    )
    return page.section("Tables in this page", saved(words, packed.zipped(), name))


def saved(words: str, content: bytes, name: str) -> str:
    """A sentence, a button that saves a zip, and the zip."""
    held = base64.b64encode(content).decode()
    return (
        f"<p>{page.text(words)}</p><p><button type='button' id='save-tables' data-name='{page.text(name)}.zip'>"
        f"Save the tables (zip of Parquet)</button></p>"
        f"<script type='application/octet-stream' id='{PACKED}'>{held}</script><script>{_SAVE}</script>"
    )
