"""Parsers of temporal graphs: JODIE, Elliptic, AMLSim and PyTorch Geometric Temporal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError

from dtdg_lab.core.errors import ConfigError, DataError, shortened
from dtdg_lab.datasets.archives import part
from dtdg_lab.datasets.formats import text as txt
from dtdg_lab.datasets.tables import MAX_ID, EdgeTable
from dtdg_lab.graphs.intervals import IntervalEdges
from dtdg_lab.graphs.snapshot import read_only

# Transactions between accounts in the csv files of AMLSim and its relatives; columns are found by name.
# names in AMLSim's converted log, in its raw log (PaySim's columns), and in its published samples
_WANTED = {
    "sender": (txt.NAME, ("orig_acct", "nameOrig", "SENDER_ACCOUNT_ID", "sender_id", "src", "source", "from")),
    "receiver": (txt.NAME, ("bene_acct", "nameDest", "RECEIVER_ACCOUNT_ID", "receiver_id", "dst", "target", "to")),
    "time": (txt.TIME, ("tran_timestamp", "step", "TIMESTAMP", "time")),
    "amount": (txt.NUMBER, ("base_amt", "amount", "TX_AMOUNT")),
}


def parse_amlsim(data: bytes, source: str) -> EdgeTable:
    """Return the E transactions of a text such as AMLSim's transactions.csv; rows may be in any order of time.

    Columns may have any order, any of their usual names, and any case. Others, such as ``is_sar``, are not read. The
    amount becomes the weight.

    Args:
        data: the file, uncompressed.
        source: its name, for messages.

    Returns:
        Times of the file where the first is a number, else seconds since 1970 (UTC); ``node_ids`` are the names or
        numbers of the accounts.

    Raises:
        DataError: a column is missing, a line has other columns or values, or there are fewer than two.
    """
    names, body = txt.split_header(txt.plain(data, source), source)
    columns = txt.columns_of(names, _WANTED, source)
    first, column = txt.first_lines(body, 1)[0][1].split(b","), list(columns).index("time")
    columns["time"] = txt.kind_of_time(
        first[column].strip() if column < len(first) else b"", txt.TIME, txt.STAMP, txt.STAMP_UTC
    )
    rows = txt.read_rows(body, source, columns, first_line=2, min_rows=2)
    src, dst, accounts = txt.numbered(rows["sender"], rows["receiver"])
    return EdgeTable(src, dst, rows["time"], weight=rows["amount"], node_ids=accounts)


# The Elliptic transactions: three csv files of features by step, flows between transactions, and classes.


_CLASSES = {"1": 1, "2": 0, "unknown": -1}  # the file's words: illicit, licit, unknown
_FLOWS: dict[str, tuple[txt.ColumnKind, tuple[str, ...]]] = {
    "from": (txt.WHOLE, ("txId1",)),
    "to": (txt.WHOLE, ("txId2",)),
}
_KNOWN: dict[str, tuple[txt.ColumnKind, tuple[str, ...]]] = {
    "transaction": (txt.WHOLE, ("txId",)),
    "class": (txt.TEXT, ("class",)),
}


def parse_elliptic(data: Mapping[str, bytes], source: str) -> IntervalEdges:
    """Return the B steps (49), N transactions (203,769) and E flows (234,355) of the Elliptic data set.

    Class 1 is illicit and 0 licit, each in the transaction's own step; -1 is unknown, also in all other steps.
    Features, shape (N, F), are those of a transaction in its step (165 as published), and never change.

    Args:
        data: ``elliptic_txs_features.csv`` (without header: transaction, step from 1, features), ``_edgelist.csv``
            and ``_classes.csv`` by name; only the end of a name counts.
        source: the archive's name, for messages.

    Raises:
        DataError: a file or column is missing, a line has other values, a flow joins two steps, or the files do not
            fit together.

    Source: Weber et al. 2019; classes as in EvolveGCN section 4.
    """
    called = f"{source} (elliptic_txs_features.csv)"
    text = txt.plain(part(data, "elliptic_txs_features.csv", source), called)
    total = max(txt.width(text, called), 3)
    columns = {"transaction": txt.WHOLE, "step": txt.WHOLE} | {
        f"feature {number}": txt.FEATURE for number in range(1, total - 1)
    }
    rows = txt.read_rows(text, called, columns)
    ids, order = _distinct(rows["transaction"], text, called)
    step = _steps(rows["step"], text, called)
    src, dst = _flows(part(data, "elliptic_txs_edgelist.csv", source), ids, order, step, source)
    labels = _classes(part(data, "elliptic_txs_classes.csv", source), ids, order, source)
    nodes, steps = len(step), int(step.max()) + 1
    txt.allow_cells(nodes * steps, len(text), "classes by step", source)
    classes = np.full((steps, nodes), -1, dtype=np.int16)
    classes[step, np.arange(nodes)] = labels
    by_step = np.argsort(step[src], kind="stable")
    return IntervalEdges(
        read_only(src[by_step]),
        read_only(dst[by_step]),
        read_only(step[src[by_step]]),
        steps,
        nodes,
        features=txt.side_by_side(rows, [name for name in columns if name.startswith("feature")], nodes),
        classes=read_only(classes),
        node_ids=rows["transaction"],
    )


def _distinct(transactions: NDArray[np.int64], text: bytes, source: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of the transactions in rising order, and the row of each."""
    order = np.argsort(transactions, kind="stable")
    ids = transactions[order]
    twice = np.flatnonzero(np.diff(ids) == 0)
    if len(twice):
        row = int(order[twice[0] + 1])
        raise DataError(
            f"line {txt.line_of_row(text, row)} of {source} has transaction {ids[twice[0]]} again; once is allowed."
        )
    return ids, order


def _steps(step: NDArray[np.int64], text: bytes, source: str) -> NDArray[np.int64]:
    """Return the steps counted from 0; the file counts from 1. Each step must have a transaction."""
    allowed = f"1 to the number of transactions, {len(step)}, is allowed. Fetch the file again."
    txt.refuse_rows((step < 1) | (step > len(step)), text, source, lambda row: f"has step {step[row]}; {allowed}")
    empty = np.flatnonzero(np.bincount(step)[1:] == 0)
    if len(empty):
        raise DataError(f"{source} has no transaction in step {empty[0] + 1} of {step.max()}; each needs one.")
    return step - 1


def _placed(
    transactions: NDArray[np.int64], ids: NDArray[np.int64], order: NDArray[np.int64], body: bytes, source: str
) -> NDArray[np.int64]:
    """Return the rows of the transactions named in another file."""
    positions = np.searchsorted(ids, transactions).clip(max=len(ids) - 1)
    unknown = "which has no features. Fetch the files again."
    txt.refuse_rows(
        ids[positions] != transactions,
        body,
        source,
        lambda row: f"names transaction {transactions[row]}, {unknown}",
        header=1,
    )
    return np.asarray(order[positions])


def _flows(
    data: bytes, ids: NDArray[np.int64], order: NDArray[np.int64], step: NDArray[np.int64], source: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    called = f"{source} (elliptic_txs_edgelist.csv)"
    rows, body = txt.named_rows(data, called, _FLOWS)
    src, dst = (_placed(rows[end], ids, order, body, called) for end in ("from", "to"))

    def describe(row: int) -> str:
        joins = f"joins transactions of steps {step[src[row]] + 1} and {step[dst[row]] + 1}"
        return f"{joins}; flows within a step are expected. Fetch the files again."

    txt.refuse_rows(step[src] != step[dst], body, called, describe, header=1)
    return src, dst


def _classes(data: bytes, ids: NDArray[np.int64], order: NDArray[np.int64], source: str) -> NDArray[np.int16]:
    """Return the class of every transaction, shape (N,), in the order of the features."""
    called = f"{source} (elliptic_txs_classes.csv)"
    rows, body = txt.named_rows(data, called, _KNOWN)
    allowed = f"{', '.join(_CLASSES)} are allowed. Fetch the file again."
    codes = txt.codes_of_words(rows["class"], _CLASSES, lambda word: f"has class {word}; {allowed}", body, called)
    classes = np.full(len(ids), -1, dtype=np.int16)
    classes[_placed(rows["transaction"], ids, order, body, called)] = codes
    return classes


# JODIE's interaction csv: a header, then ``user,item,timestamp,state label,features...``, in order of time.


_KINDS: dict[str, txt.ColumnKind] = {"user": txt.ID, "item": txt.ID, "time": txt.TIME, "state label": txt.UNREAD}


def parse_jodie(data: bytes, source: str) -> EdgeTable:
    """Return the E interactions of a text such as wikipedia.csv, as edges from users to items.

    Users and items are numbered separately: an item becomes ``users + item``, with users = largest user + 1. State
    labels and features are not read.

    Args:
        data: the file, uncompressed.
        source: its name, for messages.

    Raises:
        DataError: there is no header, a line has other columns or values, a time is before the one above it, or
            there are fewer than two rows.
    """
    names, body = txt.split_header(txt.plain(data, source), source)
    number, line = txt.first_lines(body, 1)[0]
    total = txt.width(body, source)  # the header has one name for all features
    if len(names) < len(_KINDS) or total < len(_KINDS):
        raise DataError(
            f"line {number + 1} of {source} is {txt.shown(line)}, under the header {txt.shown(','.join(names))}; at "
            "least four columns are needed: user, item, timestamp, state label. Fetch the file again."
        )
    kinds = {**_KINDS, **{f"feature {number}": txt.UNREAD for number in range(total - len(_KINDS))}}
    rows = txt.read_rows(body, source, kinds, first_line=2, min_rows=2)
    falls = np.flatnonzero(np.diff(rows["time"]) < 0)
    if len(falls):
        earlier, later = rows["time"][falls[0]], rows["time"][falls[0] + 1]
        raise DataError(
            f"line {txt.line_of_row(body, int(falls[0]) + 1) + 1} of {source} has time {later}, after {earlier} in the "
            "row before; rows must be in order of time. Sort them, or fetch the file again."
        )
    return EdgeTable(rows["user"], txt.shifted(rows["user"], rows["item"], source), rows["time"])


# Sequences of PyTorch Geometric Temporal, as JSON: chickenpox, England's covid, mentions at tennis tournaments.
#
# Source: the loaders of PyTorch Geometric Temporal (Rozemberczki et al. 2021, CIKM); the numbers are the same.


VARIANTS = ("chickenpox", "covid", "twitter-tennis")
_MAX_VALUE = float(np.finfo(np.float32).max)
_MAX_NAME = 100  # characters; an array of names is as wide as the longest
_DEFAULT_LAGS = {"chickenpox": 4, "covid": 8}
_Id = Annotated[int, Field(ge=0, le=MAX_ID)]
_Pairs = Annotated[list[tuple[_Id, _Id]], FailFast()]
_Numbers = Annotated[list[float], FailFast()]
_Rows = Annotated[list[_Numbers], FailFast()]
_Named = dict[Annotated[str, Field(max_length=_MAX_NAME)], int]


class _Json(BaseModel):
    """An object of a file, with strict types: text is no number, fractions are not whole, and numbers are finite."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    @classmethod
    def read(cls, data: bytes, source: str) -> Self:
        """Return the object in a JSON text.

        Raises:
            DataError: the text is no JSON, or a value is missing or not allowed; the message names its position.
        """
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            location, wrong = ".".join(map(str, first["loc"])), first["msg"]
            if first["type"] == "missing":
                wrong = f"{location} is missing"
            elif location:
                wrong = f"{location} is {shortened(first['input'])}: {wrong}"
            raise DataError(f"{source}: {wrong}. Fetch the file again.") from None  # it would list every wrong item


class _Chickenpox(_Json):
    edges: _Pairs
    FX: _Rows
    node_ids: _Named | None = None


class _Days(_Json):
    edge_index: dict[str, _Pairs]
    edge_weight: dict[str, _Numbers]


class _Covid(_Json):
    y: _Rows
    edge_mapping: _Days


class _Hour(_Json):
    edges: _Pairs
    weights: _Numbers
    y: _Numbers
    X: Annotated[list[tuple[float, float]], FailFast()]


class _Tennis(_Json, extra="allow"):
    __pydantic_extra__: dict[str, _Hour]
    time_periods: Annotated[int, Field(ge=1)]
    node_ids: _Named | None = None


def parse_pygt_json(
    data: bytes,
    source: str,
    *,
    variant: str,
    lags: int | None = None,
    standardize: bool = True,
    encoding: Literal["one_hot", "raw"] = "one_hot",
) -> IntervalEdges:
    """Return the B steps of a sequence over N nodes, with features and targets.

    Args:
        data: the file, uncompressed.
        source: its name, for messages.
        variant: ``chickenpox``: one graph for all weeks, features are ``lags`` weeks, the target is the next one.
            ``covid``: a weighted graph each day, features are ``lags`` days, the target is the next one; the graph is
            that of the first of those days. ``twitter-tennis``: a weighted graph each hour, the target is
            log(1 + mentions) in the next hour; that of the last step, which has none, is its own.
        lags: number of past values as features, F; 4 weeks or 8 days by default, ignored for tennis.
        standardize: covid only: subtract the mean and divide by the standard deviation over all days, test days
            included, as the library's loader does, so that its published losses can be compared. A data set does not
            know the split of a run. The chickenpox file is already standardized in this way.
        encoding: tennis only: ``one_hot`` of the rounded logarithm of degree (5) and of transitivity in tenths (11),
            or the two numbers ``raw``.

    Raises:
        ConfigError: an option is out of its bounds.
        DataError: something is missing, is no number, names a node that is not there, or is too short for ``lags``.
    """
    if variant not in VARIANTS or encoding not in ("one_hot", "raw"):
        raise ConfigError(f"variant={variant!r}, encoding={encoding!r}; {', '.join(VARIANTS)}, and one_hot or raw.")
    if variant == "twitter-tennis":
        return _tennis(_Tennis.read(data, source), source, encoding)
    lags = _DEFAULT_LAGS[variant] if lags is None else lags
    if not isinstance(lags, int) or lags < 1:
        raise ConfigError(f"lags={lags!r}; a whole number of at least 1 is needed.")
    if variant == "chickenpox":
        weekly = _Chickenpox.read(data, source)
        windows = _windows(_signal(weekly.FX, "FX", source), lags, len(data), source)
        steps, nodes = windows["targets"].shape
        txt.allow_cells(steps * len(weekly.edges), len(data), "edges of all steps", source)
        return _sequence(
            [weekly.edges] * steps, None, source, node_ids=_names(weekly.node_ids, nodes, source), **windows
        )
    daily = _Covid.read(data, source)
    signal = _signal(daily.y, "y", source)
    if standardize:
        signal = (signal - signal.mean(axis=0)) / (signal.std(axis=0) + 1e-10)
    windows = _windows(signal, lags, len(data), source)
    edges, weights = (
        _of_steps(getattr(daily.edge_mapping, name), len(windows["targets"]), f"{source} ({name})")
        for name in ("edge_index", "edge_weight")
    )
    return _sequence(edges, weights, source, **windows)


def _tennis(content: _Tennis, source: str, encoding: str) -> IntervalEdges:
    extra = content.__pydantic_extra__
    hours = _of_steps(extra, content.time_periods, source)
    mentions = _signal([hour.y for hour in hours], "y", source)
    nodes = mentions.shape[1]
    if mentions.min() < 0:
        raise DataError(f"{source}: y has mentions from {mentions.min():g}; 0 is the least.")
    for step, hour in enumerate(hours):
        if len(hour.X) != nodes:
            raise DataError(
                f"{source} (step {step}): X has {len(hour.X)} rows; {nodes} are needed. Fetch the file again."
            )
    features = np.stack([_signal(hour.X, "X", f"{source} (step {step})") for step, hour in enumerate(hours)])
    degrees = np.log1p(mentions).astype(np.float32)
    return _sequence(
        [hour.edges for hour in hours],
        [hour.weights for hour in hours],
        source,
        features=read_only(_one_hot(features, source) if encoding == "one_hot" else features.astype(np.float32)),
        targets=read_only(np.concatenate([degrees[1:], degrees[-1:]])),
        persistence=read_only(degrees),
        node_ids=_names(content.node_ids, nodes, source),
    )


def _of_steps(values_by_step: Mapping[str, Any], steps: int, source: str) -> list[Any]:
    """Return the values of the steps, which are stored under their numbers."""
    for step in range(steps):
        if str(step) not in values_by_step:
            raise DataError(f"{source} has no {str(step)!r}, one of its {steps} steps. Fetch the file again.")
    return [values_by_step[str(step)] for step in range(steps)]


def _signal(rows: Sequence[Sequence[float]], what: str, source: str) -> NDArray[np.float64]:
    """Return rows of numbers that fit float32; at least one row."""
    width = len(rows[0]) if rows else 0
    for row_number, row in enumerate(rows):
        if len(row) != width:
            raise DataError(
                f"{source}: {what}[{row_number}] has {len(row)} entries; {width} are needed. Fetch the file again."
            )
    signal = np.array(rows, dtype=np.float64).reshape(len(rows), width)
    if not signal.size:
        raise DataError(f"{source}: {what} has shape {signal.shape}; at least one row of numbers is needed.")
    if np.abs(signal).max() > _MAX_VALUE:
        raise DataError(
            f"{source}: {what} has a value of {np.abs(signal).max():g}; float32 holds {_MAX_VALUE:g} at most."
        )
    return signal


def _windows(signal: NDArray[np.float64], lags: int, value_count: int, source: str) -> dict[str, Any]:
    """Return features (B, N, lags), targets (B, N) and persistence (B, N) of a signal of shape (B + lags, N)."""
    times, nodes = signal.shape
    if times <= lags:
        raise DataError(f"{source} has {times} times; more than lags={lags} are needed. Lower lags.")
    txt.allow_cells((times - lags) * nodes * lags, value_count, "features", source)
    values = signal.astype(np.float32)
    past = np.lib.stride_tricks.sliding_window_view(values[:-1], lags, axis=0)
    return {
        "features": read_only(np.ascontiguousarray(past)),
        "targets": read_only(values[lags:].copy()),
        "persistence": read_only(values[lags - 1 : -1].copy()),
    }


def _sequence(
    edges: Sequence[_Pairs],
    weights: Sequence[list[float]] | None,
    source: str,
    *,
    targets: NDArray[Any],
    **node_values: Any,
) -> IntervalEdges:
    """Return the edges of all steps, with features and targets."""
    steps, nodes = targets.shape
    counts = [len(pairs) for pairs in edges]
    src, dst = np.array(list(chain.from_iterable(edges)), dtype=np.int64).reshape(-1, 2).T
    interval = np.repeat(np.arange(steps), counts)
    if not len(src):
        raise DataError(f"{source} has no edges; at least 1 edge is needed. Fetch the file again.")
    wrong = np.flatnonzero(np.maximum(src, dst) >= nodes)
    if len(wrong):
        raise DataError(
            f"{source}: step {interval[wrong[0]]} has an edge {[int(src[wrong[0]]), int(dst[wrong[0]])]}; nodes 0 to "
            f"{nodes - 1} are allowed. Fetch the file again."
        )
    for step, step_weights in enumerate(weights or ()):
        if len(step_weights) != counts[step]:
            raise DataError(
                f"{source}: step {step} has {counts[step]} edges and {len(step_weights)} weights; the same number of "
                "both is needed. Fetch the file again."
            )
    weight = None if weights is None else np.array(list(chain.from_iterable(weights)), dtype=np.float64)
    return IntervalEdges(
        read_only(src.copy()),
        read_only(dst.copy()),
        interval,
        steps,
        nodes,
        weight=weight,
        targets=targets,
        **node_values,
    )


def _one_hot(features: NDArray[np.float64], source: str) -> NDArray[np.float32]:
    """Encode degree and transitivity, shape (B, N, 2), one-hot, shape (B, N, 16)."""
    degree, transitivity = features[..., 0], features[..., 1]
    if degree.min() < 0 or transitivity.min() < 0 or transitivity.max() > 1:
        raise DataError(
            f"{source}: X has degrees from {degree.min():g} and transitivities from {transitivity.min():g} to "
            f"{transitivity.max():g}; degrees of at least 0 and transitivities from 0 to 1 are allowed."
        )
    of_degree = np.minimum(np.ceil(np.log(degree + 1.0)), 4).astype(np.int64)
    of_transitivity = np.floor(transitivity * 10).astype(np.int64)
    both = [of_degree[..., None] == np.arange(5), of_transitivity[..., None] == np.arange(11)]
    return np.concatenate(both, axis=-1).astype(np.float32)


def _names(names: _Named | None, nodes: int, source: str) -> NDArray[Any] | None:
    """Return the names of the nodes in the order of their numbers, (N,); None where the file has none."""
    if names is None:
        return None
    if sorted(names.values()) != list(range(nodes)):
        raise DataError(
            f"{source}: node_ids does not give each of the nodes 0 to {nodes - 1} one name. Fetch the file again."
        )
    return read_only(np.array(sorted(names, key=names.__getitem__)))
