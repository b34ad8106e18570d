"""Sequences of PyTorch Geometric Temporal, as JSON: chickenpox, England's covid, mentions at tennis tournaments.

Source: the loaders of PyTorch Geometric Temporal (Rozemberczki et al. 2021, CIKM), whose numbers this gives.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, DataError
from dtdg_lab.datasets.formats.dense import allow_cells
from dtdg_lab.datasets.formats.lists import entry, matrix, numbers, pairs, read_json
from dtdg_lab.datasets.tables import StepTable
from dtdg_lab.graphs.arrays import give_up

VARIANTS = ("chickenpox", "covid", "twitter-tennis")
_MAX_VALUE = float(np.finfo(np.float32).max)
_MAX_NAME = 100  # characters; an array of names is as wide as the longest
_DEFAULT_LAGS = {"chickenpox": 4, "covid": 8}


def parse(
    data: bytes,
    where: str,
    *,
    variant: str,
    lags: int | None = None,
    standardize: bool = True,
    encoding: Literal["one_hot", "raw"] = "one_hot",
) -> StepTable:
    """The B steps of a sequence over N vertices, with features and the value to predict.

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
        DataError: something is missing, is no number, names a vertex that is not there, or is too short for ``lags``.
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
        give_up(np.tile(src, steps)), give_up(np.tile(dst, steps)), give_up(np.repeat(np.arange(steps), len(src))),
        steps, nodes, node_ids=_names(found, nodes, where), **windows,
    )  # fmt: skip


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
        raise DataError(
            f"{where}: y has {nodes} vertices and mentions from {mentions.min(initial=0):g}; 0 is the least."
        )
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
        **_joined(daily, nodes, where), num_steps=steps, num_nodes=nodes,
        features=give_up(_one_hot(features, where) if encoding == "one_hot" else features.astype(np.float32)),
        targets=give_up(np.concatenate([degrees[1:], degrees[-1:]])), persistence=give_up(degrees),
        node_ids=_names(found, nodes, where),
    )  # fmt: skip


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
        "features": give_up(np.ascontiguousarray(past)), "targets": give_up(values[lags:].copy()),
        "persistence": give_up(values[lags - 1 : -1].copy()),
    }  # fmt: skip


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
        "src": give_up(src.copy()), "dst": give_up(dst.copy()), "weight": give_up(np.concatenate(weights)),
        "step": give_up(np.repeat(np.arange(len(steps)), counts)),
    }  # fmt: skip


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
    """The names of the vertices by number, shape (N,); None where the file has none."""
    given = found.get("node_ids")
    if given is None:
        return None
    whole = isinstance(given, dict) and all(type(number) is int for number in given.values())
    if not whole or sorted(given.values()) != list(range(nodes)) or max(map(len, given)) > _MAX_NAME:
        raise DataError(
            f"{where}: node_ids does not give each of the vertices 0 to {nodes - 1} one name of at most {_MAX_NAME} "
            "characters. Fetch the file again."
        )
    return give_up(np.array(sorted(given, key=given.__getitem__)))
