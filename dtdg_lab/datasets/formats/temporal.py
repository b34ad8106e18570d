"""Parsers of temporal graphs: JODIE, Elliptic, AMLSim and PyTorch Geometric Temporal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, DataError
from dtdg_lab.datasets.archives import part
from dtdg_lab.datasets.formats.text import (
    FEATURE,
    ID,
    NAME,
    NUMBER,
    STAMP,
    STAMP_UTC,
    TEXT,
    TIME,
    UNREAD,
    WHOLE,
    ColumnKind,
    allow_cells,
    codes_of_words,
    columns_of,
    entry,
    first_lines,
    kind_of_time,
    line_of_row,
    matrix,
    named_rows,
    numbered,
    numbers,
    pairs,
    plain,
    read_json,
    read_rows,
    refuse_rows,
    shifted,
    shown,
    side_by_side,
    split_header,
    width,
)
from dtdg_lab.datasets.tables import EdgeTable, StepTable
from dtdg_lab.graphs.snapshot import give_up

# Transactions between accounts as AMLSim and its relatives write them: csv with a header, columns found by name.


# as AMLSim converts its log, as its log is written (PaySim's columns), and as its published samples have them
_WANTED = {
    "sender": (NAME, ("orig_acct", "nameOrig", "SENDER_ACCOUNT_ID", "sender_id", "src", "source", "from")),
    "receiver": (NAME, ("bene_acct", "nameDest", "RECEIVER_ACCOUNT_ID", "receiver_id", "dst", "target", "to")),
    "time": (TIME, ("tran_timestamp", "step", "TIMESTAMP", "time")),
    "amount": (NUMBER, ("base_amt", "amount", "TX_AMOUNT")),
}


def parse_amlsim(data: bytes, where: str) -> EdgeTable:
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
    first, place = first_lines(body, 1)[0][1].split(b","), list(columns).index("time")
    columns["time"] = kind_of_time(first[place].strip() if place < len(first) else b"", TIME, STAMP, STAMP_UTC)
    rows = read_rows(body, where, columns, first_line=2, least=2)
    src, dst, accounts = numbered(rows["sender"], rows["receiver"])
    return EdgeTable(src, dst, rows["time"], weight=rows["amount"], node_ids=accounts)


# The Elliptic transactions: features by step, flows between transactions, and what is known of them, as three csv.


_CLASSES = {"1": 1, "2": 0, "unknown": -1}  # the file's words: illicit, licit, unknown
_FLOWS: dict[str, tuple[ColumnKind, tuple[str, ...]]] = {"from": (WHOLE, ("txId1",)), "to": (WHOLE, ("txId2",))}
_KNOWN: dict[str, tuple[ColumnKind, tuple[str, ...]]] = {"transaction": (WHOLE, ("txId",)), "class": (TEXT, ("class",))}


def parse_elliptic(data: Mapping[str, bytes], where: str) -> StepTable:
    """The B steps (49), N transactions (203,769) and E flows (234,355) of the Elliptic data set.

    Class 1 is illicit and 0 licit, each in the transaction's own step; -1 is unknown, and stands in all other steps.
    Features, shape (N, F), are those of a transaction in its step (165 as published), and never change.

    Args:
        data: ``elliptic_txs_features.csv`` (without header: transaction, step from 1, features), ``_edgelist.csv``
            and ``_classes.csv`` by name; only the end of a name counts.
        where: the archive's name, for messages.

    Raises:
        DataError: a file or column is missing, a line has other values, a flow joins two steps, or the files do not
            fit together.

    Source: Weber et al. 2019; classes as in EvolveGCN section 4.
    """
    called = f"{where} (elliptic_txs_features.csv)"
    text = plain(part(data, "elliptic_txs_features.csv", where), called)
    total = max(width(text, called), 3)
    columns = {"transaction": WHOLE, "step": WHOLE} | {f"feature {place}": FEATURE for place in range(1, total - 1)}
    rows = read_rows(text, called, columns)
    ids, order = _distinct(rows["transaction"], text, called)
    step = _steps(rows["step"], text, called)
    src, dst = _flows(part(data, "elliptic_txs_edgelist.csv", where), ids, order, step, where)
    labels = _classes(part(data, "elliptic_txs_classes.csv", where), ids, order, where)
    nodes, steps = len(step), int(step.max()) + 1
    allow_cells(nodes * steps, len(text), "classes by step", where)
    classes = np.full((steps, nodes), -1, dtype=np.int16)
    classes[step, np.arange(nodes)] = labels
    by_step = np.argsort(step[src], kind="stable")
    return StepTable(
        give_up(src[by_step]),
        give_up(dst[by_step]),
        give_up(step[src[by_step]]),
        steps,
        nodes,
        features=side_by_side(rows, [name for name in columns if name.startswith("feature")], nodes),
        classes=give_up(classes),
        node_ids=rows["transaction"],
    )


def _distinct(transactions: NDArray[np.int64], text: bytes, where: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers of the transactions in rising order, and the row of each."""
    order = np.argsort(transactions, kind="stable")
    ids = transactions[order]
    twice = np.flatnonzero(np.diff(ids) == 0)
    if len(twice):
        row = int(order[twice[0] + 1])
        raise DataError(
            f"line {line_of_row(text, row)} of {where} has transaction {ids[twice[0]]} again; once is allowed."
        )
    return ids, order


def _steps(step: NDArray[np.int64], text: bytes, where: str) -> NDArray[np.int64]:
    """The steps counted from 0; they are counted from 1 in the file, and each has a transaction."""
    allowed = f"1 to the number of transactions, {len(step)}, is allowed. Fetch the file again."
    refuse_rows((step < 1) | (step > len(step)), text, where, lambda row: f"has step {step[row]}; {allowed}")
    empty = np.flatnonzero(np.bincount(step)[1:] == 0)
    if len(empty):
        raise DataError(f"{where} has no transaction in step {empty[0] + 1} of {step.max()}; each needs one.")
    return step - 1


def _placed(
    given: NDArray[np.int64], ids: NDArray[np.int64], order: NDArray[np.int64], body: bytes, where: str
) -> NDArray[np.int64]:
    """The rows of the transactions named in another file."""
    place = np.searchsorted(ids, given).clip(max=len(ids) - 1)
    unknown = "which has no features. Fetch the files again."
    refuse_rows(ids[place] != given, body, where, lambda row: f"names transaction {given[row]}, {unknown}", header=1)
    placed: NDArray[np.int64] = order[place]
    return placed


def _flows(
    data: bytes, ids: NDArray[np.int64], order: NDArray[np.int64], step: NDArray[np.int64], where: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    called = f"{where} (elliptic_txs_edgelist.csv)"
    rows, body = named_rows(data, called, _FLOWS)
    src, dst = (_placed(rows[end], ids, order, body, called) for end in ("from", "to"))

    def said(row: int) -> str:
        joins = f"joins transactions of steps {step[src[row]] + 1} and {step[dst[row]] + 1}"
        return f"{joins}; flows within a step are expected. Fetch the files again."

    refuse_rows(step[src] != step[dst], body, called, said, header=1)
    return src, dst


def _classes(data: bytes, ids: NDArray[np.int64], order: NDArray[np.int64], where: str) -> NDArray[np.int16]:
    """The class of every transaction, shape (N,), in the order of the features."""
    called = f"{where} (elliptic_txs_classes.csv)"
    rows, body = named_rows(data, called, _KNOWN)
    allowed = f"{', '.join(_CLASSES)} are allowed. Fetch the file again."
    found = codes_of_words(rows["class"], _CLASSES, lambda word: f"has class {word}; {allowed}", body, called)
    classes = np.full(len(ids), -1, dtype=np.int16)
    classes[_placed(rows["transaction"], ids, order, body, called)] = found
    return classes


# JODIE's interaction csv: a header, then ``user,item,timestamp,state label,features...``, in order of time.


_KINDS: dict[str, ColumnKind] = {"user": ID, "item": ID, "time": TIME, "state label": NUMBER}


def parse_jodie(data: bytes, where: str) -> EdgeTable:
    """The E interactions of a text such as wikipedia.csv, as edges from users to items.

    Users and items are numbered separately: an item becomes ``users + item``, with users = largest user + 1. State
    labels and features are left unread: :func:`read_features` reads them.

    Args:
        data: the file, uncompressed.
        where: its name, for messages.

    Raises:
        DataError: there is no header, a line has other columns or values, a time is before the one above it, or
            there are fewer than two rows.
    """
    body, total = _rows(data, where)
    kinds = {**_KINDS, "state label": UNREAD, **_features(total, UNREAD)}
    rows = read_rows(body, where, kinds, first_line=2, least=2)
    falls = np.flatnonzero(np.diff(rows["time"]) < 0)
    if len(falls):
        before, now = rows["time"][falls[0]], rows["time"][falls[0] + 1]
        raise DataError(
            f"line {line_of_row(body, int(falls[0]) + 1) + 1} of {where} has time {now}, after {before} in the row "
            "before; rows must be in order of time. Sort them, or fetch the file again."
        )
    return EdgeTable(rows["user"], shifted(rows["user"], rows["item"], where), rows["time"])


def read_features(data: bytes, where: str) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """State labels, shape (E,), and features, shape (E, F), of the interactions; F may be 0.

    Args:
        data: the file, uncompressed.
        where: its name, for messages.

    Raises:
        DataError: as :func:`parse`; or a label or feature is not a finite number.
    """
    body, total = _rows(data, where)
    features = _features(total, FEATURE)
    unread = dict.fromkeys(("user", "item", "time"), UNREAD)
    rows = read_rows(body, where, {**unread, "state label": NUMBER, **features}, first_line=2)
    return rows["state label"], side_by_side(rows, features, len(rows["state label"]))


def _rows(data: bytes, where: str) -> tuple[bytes, int]:
    """The lines under the header, and the columns of the first: the header has one name for all features."""
    names, body = split_header(plain(data, where), where)
    number, line = first_lines(body, 1)[0]
    total = width(body, where)
    if len(names) < len(_KINDS) or total < len(_KINDS):
        raise DataError(
            f"line {number + 1} of {where} is {shown(line)}, under the header {shown(','.join(names))}; at least four "
            "columns are needed: user, item, timestamp, state label. Fetch the file again."
        )
    return body, total


def _features(total: int, kind: ColumnKind) -> dict[str, ColumnKind]:
    return {f"feature {place}": kind for place in range(total - len(_KINDS))}


# Sequences of PyTorch Geometric Temporal, as JSON: chickenpox, England's covid, mentions at tennis tournaments.
#
# Source: the loaders of PyTorch Geometric Temporal (Rozemberczki et al. 2021, CIKM), whose numbers this gives.


VARIANTS = ("chickenpox", "covid", "twitter-tennis")
_MAX_VALUE = float(np.finfo(np.float32).max)
_MAX_NAME = 100  # characters; an array of names is as wide as the longest
_DEFAULT_LAGS = {"chickenpox": 4, "covid": 8}


def parse_pygt_json(
    data: bytes,
    where: str,
    *,
    variant: str,
    lags: int | None = None,
    standardize: bool = True,
    encoding: Literal["one_hot", "raw"] = "one_hot",
) -> StepTable:
    """The B steps of a sequence over N nodes, with features and the value to predict.

    Args:
        data: the file, uncompressed.
        where: its name, for messages.
        variant: ``chickenpox``: one graph for all weeks, features are ``lags`` weeks, the target is the next one.
            ``covid``: a weighted graph each day, features are ``lags`` days, the target is the next one; the graph is
            that of the first of those days. ``twitter-tennis``: a weighted graph each hour, the target is
            log(1 + mentions) in the next hour; that of the last step, which has none, is its own.
        lags: values of the past as features, F; 4 weeks and 8 days where left out, not read for tennis.
        standardize: covid only: values less their mean over their standard deviation over all days. The test days are
            among them; the chickenpox file comes so.
        encoding: tennis only: ``one_hot`` of the rounded logarithm of degree (5) and of transitivity in tenths (11),
            or the two numbers ``raw``.

    Raises:
        ConfigError: an option is out of its bounds.
        DataError: something is missing, is no number, names a node that is not there, or is too short for ``lags``.
    """
    if variant not in VARIANTS or encoding not in ("one_hot", "raw"):
        raise ConfigError(f"variant={variant!r}, encoding={encoding!r}; {', '.join(VARIANTS)}, and one_hot or raw.")
    found = read_json(data, where)
    if variant == "twitter-tennis":
        return _tennis(found, where, encoding)
    lags = _DEFAULT_LAGS[variant] if lags is None else lags
    if not isinstance(lags, int) or lags < 1:
        raise ConfigError(f"lags={lags!r}; a whole number of at least 1 is needed.")
    if variant == "chickenpox":
        return _chickenpox(found, where, lags, len(data))
    return _covid(found, where, lags, len(data), standardize=standardize)


def _chickenpox(found: dict[str, Any], where: str, lags: int, held: int) -> StepTable:
    signal = _signal(entry(found, "FX", where), "FX", where)
    windows = _windows(signal, lags, held, where)
    steps, nodes = windows["targets"].shape
    src, dst = pairs(entry(found, "edges", where), nodes, "edges", where)
    allow_cells(steps * len(src), held, "edges of all steps", where)
    return StepTable(
        give_up(np.tile(src, steps)),
        give_up(np.tile(dst, steps)),
        give_up(np.repeat(np.arange(steps), len(src))),
        steps,
        nodes,
        node_ids=_names(found, nodes, where),
        **windows,
    )


def _covid(found: dict[str, Any], where: str, lags: int, held: int, *, standardize: bool) -> StepTable:
    signal = _signal(entry(found, "y", where), "y", where)
    if standardize:
        signal = (signal - signal.mean(axis=0)) / (signal.std(axis=0) + 1e-10)
    windows = _windows(signal, lags, held, where)
    steps, nodes = windows["targets"].shape
    mapping = entry(found, "edge_mapping", where)
    edges, weights = (entry(mapping, name, f"{where} (edge_mapping)") for name in ("edge_index", "edge_weight"))
    daily = [
        (entry(edges, str(day), f"{where} (edge_index)"), entry(weights, str(day), f"{where} (edge_weight)"))
        for day in range(steps)
    ]
    return StepTable(**_joined(daily, nodes, where), num_steps=steps, num_nodes=nodes, **windows)


def _tennis(found: dict[str, Any], where: str, encoding: str) -> StepTable:
    steps = entry(found, "time_periods", where)
    if type(steps) is not int or not 1 <= steps <= len(found):
        given = steps if isinstance(steps, int) else f"a {type(steps).__name__}"
        raise DataError(f"{where}: time_periods is {given}; 1 to the number of steps it holds is allowed.")
    hourly = [entry(found, str(step), where) for step in range(steps)]
    in_step = [f"{where} (step {step})" for step in range(steps)]
    mentions = matrix([entry(hour, "y", place) for hour, place in zip(hourly, in_step, strict=True)], "y", where)
    nodes = mentions.shape[1]
    if not nodes or mentions.min() < 0:
        raise DataError(f"{where}: y has {nodes} nodes and mentions from {mentions.min(initial=0):g}; 0 is the least.")
    rows = [_signal(entry(hour, "X", place), "X", place, width=2) for hour, place in zip(hourly, in_step, strict=True)]
    wrong = next((step for step in range(steps) if len(rows[step]) != nodes), None)
    if wrong is not None:
        raise DataError(f"{in_step[wrong]}: X has {len(rows[wrong])} rows; {nodes} are needed. Fetch the file again.")
    degrees = np.log1p(mentions).astype(np.float32)
    daily = [
        (entry(hour, "edges", place), entry(hour, "weights", place))
        for hour, place in zip(hourly, in_step, strict=True)
    ]
    features = np.stack(rows)
    return StepTable(
        **_joined(daily, nodes, where),
        num_steps=steps,
        num_nodes=nodes,
        features=give_up(_one_hot(features, where) if encoding == "one_hot" else features.astype(np.float32)),
        targets=give_up(np.concatenate([degrees[1:], degrees[-1:]])),
        persistence=give_up(degrees),
        node_ids=_names(found, nodes, where),
    )


def _signal(values: Any, what: str, where: str, *, width: int | None = None) -> NDArray[np.float64]:
    """Rows of numbers that float32 can hold."""
    signal = matrix(values, what, where, width=width)
    if not signal.size:
        raise DataError(f"{where}: {what} has shape {signal.shape}; at least one row of numbers is needed.")
    if np.abs(signal).max() > _MAX_VALUE:
        raise DataError(
            f"{where}: {what} has a value of {np.abs(signal).max():g}; float32 holds {_MAX_VALUE:g} at most."
        )
    return signal


def _windows(signal: NDArray[np.float64], lags: int, held: int, where: str) -> dict[str, Any]:
    """Features (B, N, lags), targets (B, N) and persistence (B, N) of a signal of shape (B + lags, N)."""
    times, nodes = signal.shape
    if times <= lags:
        raise DataError(f"{where} has {times} times; more than lags={lags} are needed. Lower lags.")
    allow_cells((times - lags) * nodes * lags, held, "features", where)
    values = signal.astype(np.float32)
    past = np.lib.stride_tricks.sliding_window_view(values[:-1], lags, axis=0)
    return {
        "features": give_up(np.ascontiguousarray(past)),
        "targets": give_up(values[lags:].copy()),
        "persistence": give_up(values[lags - 1 : -1].copy()),
    }


def _joined(steps: list[tuple[Any, Any]], nodes: int, where: str) -> dict[str, Any]:
    """Sources, targets, weights and step of the edges of all steps."""
    ends, weights = [], []
    for step, (edges, given) in enumerate(steps):
        ends.append(np.stack(pairs(edges, nodes, f"edges of step {step}", where)))
        weights.append(numbers(given, f"weights of step {step}", where))
        if len(weights[-1]) != ends[-1].shape[1]:
            raise DataError(
                f"{where}: step {step} has {ends[-1].shape[1]} edges and {len(weights[-1])} weights; as many of both "
                "are needed. Fetch the file again."
            )
    src, dst = np.concatenate(ends, axis=1)
    counts = [len(each) for each in weights]
    return {
        "src": give_up(src.copy()),
        "dst": give_up(dst.copy()),
        "weight": give_up(np.concatenate(weights)),
        "step": give_up(np.repeat(np.arange(len(steps)), counts)),
    }


def _one_hot(features: NDArray[np.float64], where: str) -> NDArray[np.float32]:
    """From degree and transitivity, shape (B, N, 2), to positions of ones, shape (B, N, 16)."""
    degree, transitivity = features[..., 0], features[..., 1]
    if degree.min() < 0 or transitivity.min() < 0 or transitivity.max() > 1:
        raise DataError(
            f"{where}: X has degrees from {degree.min():g} and transitivities from {transitivity.min():g} to "
            f"{transitivity.max():g}; degrees of at least 0 and transitivities from 0 to 1 are allowed."
        )
    of_degree = np.minimum(np.ceil(np.log(degree + 1.0)), 4).astype(np.int64)
    of_transitivity = np.floor(transitivity * 10).astype(np.int64)
    both = [of_degree[..., None] == np.arange(5), of_transitivity[..., None] == np.arange(11)]
    return np.concatenate(both, axis=-1).astype(np.float32)


def _names(found: dict[str, Any], nodes: int, where: str) -> NDArray[Any] | None:
    """The names of the nodes by number, shape (N,); None where the file has none."""
    given = found.get("node_ids")
    if given is None:
        return None
    whole = isinstance(given, dict) and all(type(number) is int for number in given.values())
    if not whole or sorted(given.values()) != list(range(nodes)) or max(map(len, given)) > _MAX_NAME:
        raise DataError(
            f"{where}: node_ids does not give each of the nodes 0 to {nodes - 1} one name of at most {_MAX_NAME} "
            "characters. Fetch the file again."
        )
    return give_up(np.array(sorted(given, key=given.__getitem__)))
