"""What a run's numbers were measured on: protocol, purge gap and data, as every table of results names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.protocols import PROTOCOLS
from dtdg_lab.runs.lines import read_lines
from dtdg_lab.runs.stored_files import reading
from dtdg_lab.views.ground_words import edge_life

if TYPE_CHECKING:
    from dtdg_lab.runs.open import StoredRun

COLUMNS = ("protocol", "leaky", "purge", "data")
MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "protocol": "name of the evaluation protocol",
        "leaky": "whether parts of the sequence share edges: no gap is left, and edges live longer than an interval",
        "purge": "snapshots left out at each boundary between parts",
        "data": "first digits of the SHA-256 of the data set's arrays",
        "data_hash": "the SHA-256 of the data set's arrays",
    }
)
_DIGITS = 12
_PARTS = ("train", "validation", "test")


def provenance(run: StoredRun) -> dict[str, Any]:
    """What tells whether two results may be compared; see ``MEANINGS``. What is not known is None.

    Returns:
        ``protocol`` (a name), ``leaky`` (bool), ``purge`` (snapshots left out at each boundary), ``data`` (the first
        12 hexadecimal digits of ``data_hash``) and ``data_hash``.

    Raises:
        RunStoreError, DataError: the run's files cannot be read.
    """
    environment = run.environment
    with reading(run.directory.environment_file):
        data_hash = (environment.get("data") or {}).get("sha256") or None
        data = data_hash[:_DIGITS] if data_hash else None
    leaky, purge = _leaky(run.config), _purge(run)
    return {"protocol": run.config.protocol, "leaky": leaky, "purge": purge, "data": data, "data_hash": data_hash}


def ground(runs: Sequence[StoredRun]) -> str:
    """What results of these runs were measured on, in a sentence, where it is the same for all of them."""
    told, config = provenance(runs[0]), runs[0].config
    gap = "an unknown number of" if told["purge"] is None else told["purge"]
    left = f"{gap} snapshot{'' if told['purge'] == 1 else 's'} left out at each boundary"
    leaks = ", so that parts share edges" if told["leaky"] else ""
    return (
        f"Scored by protocol {config.protocol} with {left}{leaks}, on {config.dataset} "
        f"(data {told['data'] or 'unknown'})."
    )


def differences(runs: Sequence[StoredRun]) -> list[str]:
    """Why results of these runs may not be comparable, one sentence each; empty where they stand on one ground.

    Args:
        runs: finished or under way; those whose data are not known yet are left out of what is said of data.
    """
    told = [provenance(run) for run in runs]
    sentences = []
    data = {each["data"]: run.config.dataset for run, each in zip(runs, told, strict=True) if each["data"]}
    if len(data) > 1:
        named = ", ".join(f"{name} ({digits})" for digits, name in data.items())
        sentences.append(f"The runs are of different data: {named}. Their losses cannot be compared.")
    protocols = list(dict.fromkeys(run.config.protocol for run in runs))
    if len(protocols) > 1:
        meant = ", ".join(f"{name} ({PROTOCOLS[name].meaning.partition(';')[0]})" for name in protocols)
        sentences.append(f"The runs are scored by different protocols: {meant}. Their losses mean different things.")
    gaps = sorted({each["purge"] for each in told if each["purge"] is not None})
    if len(gaps) > 1:
        counts = ", ".join(map(str, gaps))
        sentences.append(f"The runs leave out {counts} snapshots at each boundary: their parts are not the same.")
    tasks = list(dict.fromkeys(run.config["task"] for run in runs))
    if len(tasks) > 1:
        sentences.append(f"The runs have different tasks ({', '.join(tasks)}): their losses have different units.")
    return sentences


def _leaky(config: RunConfig) -> bool:
    return PROTOCOLS[config.protocol].leaky and edge_life(config) != 1


def _purge(run: StoredRun) -> int | None:
    """The gap as the run's own event tells it, else as protocol and edge life give it."""
    with reading(run.directory.records):
        parts = _told_parts(run)
        if parts is not None:
            ends = [parts[name] for name in _PARTS if name in parts]
            return int(ends[1]["first"]) - int(ends[0]["last"]) - 1 if len(ends) > 1 else None
    life = 1 if PROTOCOLS[run.config.protocol].leaky else edge_life(run.config)
    return None if life is None else PROTOCOLS[run.config.protocol].gap(life)


def _told_parts(run: StoredRun) -> dict[str, Any] | None:
    """The event ``parts``, from the first lines of rank 0 where they are there, else from the merged table."""
    lines = run.directory.record_file(0)
    if not lines.is_file():
        return next((each["data"] for each in run.events if each["kind"] == "parts"), None)
    for line in read_lines(lines):
        if line["table"] == "events":
            at = {name: place for place, name in enumerate(line["columns"])}
            for row in line["rows"]:
                if row[at["kind"]] == "parts":
                    return dict(row[at["data"]])
        elif line["table"] == "steps":  # the event comes before the first of them
            return None
    return None
