"""Provenance of a run's results: protocol, purge gap and data, as columns of every table of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.runs.handle import ReadableRun
from dtdg_lab.runs.json_files import reading

_DIGITS = 12
_PARTS = ("train", "validation", "test")


def provenance(run: ReadableRun) -> dict[str, Any]:
    """Return the facts that decide if two results are comparable; see ``visualization.studies.result.MEANINGS``.

    Unknown facts are None.

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
    leaky = catalogue.PROTOCOLS[run.config.protocol].leaky and edge_life(run.config) != 1
    return {"protocol": run.config.protocol, "leaky": leaky, "purge": _purge(run), "data": data, "data_hash": data_hash}


def evaluation_summary(run: ReadableRun) -> str:
    """Return protocol, gap and data of a run in a sentence; runs without :func:`differences` share it."""
    facts, config = provenance(run), run.config
    gap = "an unknown number of" if facts["purge"] is None else facts["purge"]
    purged = f"{gap} snapshot{'' if facts['purge'] == 1 else 's'} left out at each boundary"
    leaks = ", so splits share edges" if facts["leaky"] else ""
    return (
        f"Scored by protocol {config.protocol} with {purged}{leaks}, on {config.dataset} "
        f"(data {facts['data'] or 'unknown'})."
    )


def differences(runs: Sequence[ReadableRun]) -> list[str]:
    """Return the reasons why results of these runs may not be comparable, a sentence each; empty if they are.

    Args:
        runs: finished or active runs; unknown data are ignored.
    """
    facts = [provenance(run) for run in runs]
    sentences = []
    datasets = {fact["data"]: run.config.dataset for run, fact in zip(runs, facts, strict=True) if fact["data"]}
    if len(datasets) > 1:
        names = ", ".join(f"{name} ({digits})" for digits, name in datasets.items())
        sentences.append(f"The runs use different data: {names}. Their losses cannot be compared.")
    protocols = list(dict.fromkeys(run.config.protocol for run in runs))
    if len(protocols) > 1:
        meanings = ", ".join(f"{name} ({catalogue.PROTOCOLS[name].meaning.partition(';')[0]})" for name in protocols)
        sentences.append(
            f"The runs use different evaluation protocols: {meanings}. Their losses mean different things."
        )
    gaps = sorted({fact["purge"] for fact in facts if fact["purge"] is not None})
    if len(gaps) > 1:
        counts = ", ".join(map(str, gaps))
        sentences.append(f"The runs leave out {counts} snapshots at each boundary: their splits differ.")
    tasks = list(dict.fromkeys(run.config["task"] for run in runs))
    if len(tasks) > 1:
        sentences.append(f"The runs have different tasks ({', '.join(tasks)}): their losses have different units.")
    hashes: dict[str, dict[str, None]] = {}
    for extension in (extension for run in runs for extension in run.directory.extensions() if extension.sha256):
        hashes.setdefault(extension.title, {})[extension.sha256] = None
    sentences += [
        f"The runs use different code of {title} (sha256 {', '.join(digests)})."
        for title, digests in hashes.items()
        if len(digests) > 1
    ]
    return sentences


def edge_life(config: RunConfig) -> int | None:
    """Return the lifetime of an edge in base intervals; None for a stored graph, where only the graph has it."""
    return None if config.dataset.startswith(catalogue.STORED) else config["edge_life"]


def _purge(run: ReadableRun) -> int | None:
    """Return the gap from the run's own event, or else from protocol and edge life."""
    with reading(run.directory.records):
        parts = _parts_event(run)
        if parts is not None:
            spans = [parts[name] for name in _PARTS if name in parts]
            return int(spans[1]["first"]) - int(spans[0]["last"]) - 1 if len(spans) > 1 else None
    protocol = catalogue.PROTOCOLS[run.config.protocol]
    life = 1 if protocol.leaky else edge_life(run.config)
    return None if life is None else protocol.gap(life)


def _parts_event(run: ReadableRun) -> dict[str, Any] | None:
    """Return the event ``parts``, from the first lines of rank 0 if available, else from all events."""
    if not run.directory.record_file(0).is_file():
        return next((event["data"] for event in run.events if event["kind"] == "parts"), None)
    for table, row in run.tables.rows(0):
        if table == "steps":  # the event precedes the first step
            return None
        if table == "events" and row["kind"] == "parts":
            return dict(row["data"])
    return None
