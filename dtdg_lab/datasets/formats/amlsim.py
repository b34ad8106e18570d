"""Transactions between accounts as AMLSim and its relatives write them: csv with a header, columns found by name."""

from __future__ import annotations

from dtdg_lab.datasets.formats.header import columns_of, split_header
from dtdg_lab.datasets.formats.names import numbered
from dtdg_lab.datasets.formats.rows import NAME, NUMBER, STAMP, STAMP_UTC, TIME, Kind, read_rows
from dtdg_lab.datasets.formats.text import first_lines, plain
from dtdg_lab.datasets.tables import EdgeTable

# as AMLSim converts its log, as its log is written (PaySim's columns), and as its published samples have them
_WANTED = {
    "sender": (NAME, ("orig_acct", "nameOrig", "SENDER_ACCOUNT_ID", "sender_id", "src", "source", "from")),
    "receiver": (NAME, ("bene_acct", "nameDest", "RECEIVER_ACCOUNT_ID", "receiver_id", "dst", "target", "to")),
    "time": (TIME, ("tran_timestamp", "step", "TIMESTAMP", "time")),
    "amount": (NUMBER, ("base_amt", "amount", "TX_AMOUNT")),
}


def parse(data: bytes, where: str) -> EdgeTable:
    """The E transactions of a text such as AMLSim's transactions.csv; rows may be in any order of time.

    Columns may stand in any order and under any of their usual names, whatever the case; the others, such as
    ``is_sar``, are left unread. The amount becomes the weight.

    Args:
        data: the file, uncompressed.
        where: its name, for messages.

    Returns:
        Times as the file has them where the first is a number, else seconds since 1970 (UTC); ``node_ids`` are the
        names or numbers of the accounts.

    Raises:
        DataError: a column is missing, a line has other columns or values, or there are fewer than two.
    """
    names, body = split_header(plain(data, where), where)
    columns = columns_of(names, _WANTED, where)
    columns["time"] = _kind_of_time(body, list(columns).index("time"))
    rows = read_rows(body, where, columns, first_line=2, least=2)
    src, dst, accounts = numbered(rows["sender"], rows["receiver"])
    return EdgeTable(src, dst, rows["time"], weight=rows["amount"], node_ids=accounts)


def _kind_of_time(body: bytes, place: int) -> Kind:
    """What the first row has in the column of times; all others must have the same."""
    fields = first_lines(body, 1)[0][1].split(b",")
    found = fields[place].strip() if place < len(fields) else b""
    if b":" not in found and b"-" not in found[1:]:
        return TIME
    return STAMP_UTC if found.endswith(b"Z") else STAMP
