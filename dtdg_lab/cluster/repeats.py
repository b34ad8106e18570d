"""Whether a replay did what its run did, bit for bit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dtdg_lab.cluster.beginning import repeated_by
from dtdg_lab.cluster.story import Story
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.open import StoredRun

STEP = ("epoch", "iteration", "loss", "global_loss")
SCORES = ("loss", "persistence_loss", "mean_loss", "snapshots", "metrics")
Facts = dict[tuple[int, Any], tuple[Any, ...]]  # (step, rank or part of the sequence) -> what it must be


@dataclass(frozen=True, slots=True)
class Repeated:
    """What a comparison of a replay with its run found.

    Attributes:
        run: the replay's name.
        of: its run's.
        steps: of all ranks, that were compared.
        evaluations: parts of the sequence, that were compared.
        first_difference: the first step whose loss or evaluation differs; None where none does.
        parameters: whether the last parameters are the same; None where either run does not tell.
        words: what was found, in words.
    """

    run: str
    of: str
    steps: int
    evaluations: int
    first_difference: int | None
    parameters: bool | None
    words: str

    def __bool__(self) -> bool:
        """Whether nothing differs."""
        return self.first_difference is None and self.parameters is not False

    def told(self) -> dict[str, Any]:
        """As plain values."""
        return {"bit_for_bit": bool(self), **asdict(self)}


def repeats(run: str | Path | StoredRun) -> Repeated:
    """Compare a replay with the run that it repeats: every loss, every evaluation, and the last parameters.

    Raises:
        ConfigError: it is no replay.
        RunStoreError: either folder is gone.
        DataError: a record line is damaged.
    """
    directory = RunDirectory.open(run if isinstance(run, str | Path) else run.path)
    first, again = Story(repeated_by(directory)), Story(directory)
    steps, evaluations = (_steps(first), _steps(again)), (_evaluations(first), _evaluations(again))
    failed = first.directory.status()["state"] == "failed"  # some ranks recorded more than others, and none its end
    differing = [step for one, other in (steps, evaluations) for step in _differing(one, other, part=failed)]
    prints = _parameters(first), _parameters(again)
    parameters = None if None in prints else prints[0] == prints[1]
    where = min(differing, default=None)
    words = _words(first, again, where, parameters)
    return Repeated(
        directory.id, first.directory.id, len(steps[0]), len(evaluations[0]), where, parameters, words
    )  # fmt: skip


def _steps(of: Story) -> Facts:
    return {
        (row["step"], rank): tuple(row[name] for name in STEP)
        for rank in of.directory.record_files()
        for row in of.rows("steps", rank)
    }


def _evaluations(of: Story) -> Facts:
    """Of the timeline; where an attempt ended that was gone on with, the later one's count, and no test part's."""
    found: Facts = {}
    for row in of.evaluations():
        found[row["step"], row["split"]] = tuple(row[name] for name in SCORES)
    return found


def _differing(one: Facts, other: Facts, *, part: bool) -> list[int]:
    """Steps at which they differ; with ``part``, of those that the first one has."""
    keys = one.keys() if part else one.keys() | other.keys()
    return [key[0] for key in keys if one.get(key) != other.get(key)]


def _parameters(of: Story) -> str | None:
    ended = of.events("ended")
    return ended[-1]["data"]["parameters"] if ended else None


def _words(first: Story, again: Story, where: int | None, parameters: bool | None) -> str:
    ids = f"run {again.directory.id} repeats run {first.directory.id}"
    if where is None and parameters is not False:
        end = "." if parameters else "; last parameters are not compared, since the first run does not tell its own."
        return f"{ids} bit for bit: every loss and every evaluation is the same" + (
            ", and so are the last parameters." if parameters else end
        )
    place = "in its last parameters" if where is None else f"from step {where} on"
    causes = _causes(first.directory, again.directory)
    return f"{ids}, but not bit for bit: it differs {place}. {causes}"


def _causes(first: RunDirectory, again: RunDirectory) -> str:
    before, now = first.environment(), again.environment()
    hashes = [each.get("data", {}).get("sha256") for each in (before, now)]
    if hashes[0] != hashes[1]:
        return "Their data are not the same: bring back the data set that the first run had."
    told = [name for name in ("versions", "python", "cpu", "gpus", "git") if before.get(name) != now.get(name)]
    if told:
        return f"Their environments differ in {', '.join(told)}: sums may be made in another order there."
    return "Their data and environments are the same: on a GPU sums need not repeat; on a CPU please report it."
