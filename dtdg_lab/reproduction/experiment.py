"""An experiment: one table or figure of a paper as data, from ``reproduce/<paper>/<name>.toml``.

A file has these entries; those with a default may be left out::

    title = "Error beside full history and recent snapshots"
    source = "Table 6, section 4.4"             # of the paper
    question = "Does decay lose accuracy against full history?"
    protocol = "Paper: ... Here: ..."           # what differs, in a sentence or two
    procedure = "train"                         # or a function of reproduce/<paper>/measures.py (procedures.py)
    core = false                                # true: what the paper stands on, so it comes first
    seeds = [0, 1, 2]                           # (0, 1, 2); [0] where chance has no part, with deterministic = true
    timed = false                               # true: a clock decides, so cells run alone on an idle machine
    cell_s = 40                                 # seconds of a cell, guessed, until rows tell it
    devices = ["cpu", "cuda"]                   # devices on which it can be measured
    values = ["bytes_sent"]                     # train: further numbers of the summary that rows keep

    [settings]                                  # of all cells: of a RunConfig (train), or arguments of the function
    [stop]                                      # train: patience, seconds, epochs, loss of a StopRule
    [over]                                      # axis -> values, or cases with their settings, as in lab.Sweep
    [[skip]]                                    # combinations that are not measured, as in lab.Sweep

    [[claims]]
    name = "beats-recent-only"
    text = "FlareDTDG has less error than recent snapshots alone"
    rule = "less"                               # see Claim
    value = "test_loss"                         # of the cells, or near_s or near_j (reproduction/time_to_loss.py)
    ours = { system = "flaredtdg" }             # values on axes that select the cells
    rival = { system = "recent-only" }
    paper = { size = 0.142, text = "14.2 to 92.1 % less, in 9 of 9 cases" }  # size: a share, not per cent
    needs_skill = true                          # count only comparisons in which one side beats persistence
    of_lab = false                              # true: no claim of a paper, so it does not count among them

    [[claims]]                                  # a claim that cannot be tested here
    name = "papers100m"
    text = "..."
    paper = { text = "732.8 GB" }
    untestable = "55.6 GB of features do not fit into 24 GiB"

    [ranking]                                   # in place of claims: which value of an axis is best over all problems
    axis = "system"
    values = ["test_loss", "within_j"]          # lower is better (reproduction/ranking.py)
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.core.system_errors import explain
from dtdg_lab.reproduction.time_to_loss import NEAR
from dtdg_lab.runs.summary import SUMMARY_MEANINGS

Rule = Literal["less", "times", "points", "equal", "no_more", "at_most", "at_least"]
RIVALLED = frozenset({"less", "times", "points", "equal", "no_more"})
TRAIN = "train"
RESULTS = "results"


class _ExperimentPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Reported(_ExperimentPart):
    """An effect as the paper reports it.

    Attributes:
        text: its numbers and protocol in words.
        size: the effect, in the unit of the claim's rule: the smaller end of a range, the number of an "up to" or a
            mean. None where there is no rule.
    """

    text: str
    size: float | None = None


class Claim(_ExperimentPart):
    """One claim of a paper, and the rule that decides whether it holds here.

    A rule compares a value of our cells with that of rival cells that agree on all other axes (one comparison each):

    - ``less``: 1 - ours / rival, the share by which ours is lower.
    - ``times``: rival / ours, how many times lower ours is, such as a time; averaged as logarithms.
    - ``points``: ours - rival, where more is better.
    - ``equal``: ours / rival - 1; the size is the tolerance.
    - ``no_more``: ours / rival - 1; the size is the most that it may be, and less is welcome.
    - ``at_most``, ``at_least``: the value of our cells by itself; the size is the limit.

    Attributes:
        name: unique in its experiment; letters, digits and hyphens.
        text: the claim in words.
        rule: how it is decided (see :mod:`dtdg_lab.reproduction.verdict`).
        value: the number of a cell that is compared.
        ours: axis -> value or list of values that select our cells.
        rival: the same for the rival's; with several rivals, each makes its own comparison.
        best_rival: compare with the best rival of each comparison only.
        where: axis -> values to which the claim is restricted.
        paper: what the paper reports.
        needs_skill: count only comparisons in which a compared system predicts better than persistence, as otherwise
            a constant would be as good.
        untestable: why it cannot be tested here; such a claim has no rule.
        of_lab: a claim of this lab about what it adds, which does not count among the paper's.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    text: str
    rule: Rule | None = None
    value: str = ""
    ours: Mapping[str, Any] = Field(default_factory=dict)
    rival: Mapping[str, Any] = Field(default_factory=dict)
    best_rival: bool = False
    where: Mapping[str, Any] = Field(default_factory=dict)
    paper: Reported
    needs_skill: bool = False
    untestable: str = ""
    of_lab: bool = False

    @model_validator(mode="after")
    def _check(self) -> Claim:
        if self.untestable:
            if self.rule is not None:
                raise ValueError("has both a rule and untestable. Leave one of them out.")
            return self
        if self.rule is None or not self.value or self.paper.size is None:
            raise ValueError("needs rule, value and paper.size, or untestable with the reason.")
        if self.rule == "less" and self.paper.size >= 1:
            raise ValueError(f"rule 'less' needs a share as paper.size, such as 0.1 for 10 %, not {self.paper.size}.")
        if (self.rule in RIVALLED) != bool(self.rival):
            raise ValueError(f"rule {self.rule!r} needs {'a' if self.rule in RIVALLED else 'no'} rival.")
        return self

    @property
    def neutral(self) -> float:
        """The gain at which ours is no better than the rival."""
        return 1.0 if self.rule == "times" else 0.0


class RankedAxis(_ExperimentPart):
    """An axis whose values are ranked over the problems that the other axes make.

    Attributes:
        axis: such as ``system``.
        values: numbers of the cells by which they are ranked; lower is better.
    """

    axis: str
    values: tuple[str, ...] = Field(min_length=1)


class Experiment(_ExperimentPart):
    """One table or figure of a paper: what is measured, and its claims; entries as in the module's docstring.

    Attributes:
        paper: name of its folder.
        name: name of its file.
        folder: the folder of its paper.
    """

    paper: str
    name: str
    folder: Path
    title: str
    source: str
    question: str
    protocol: str
    procedure: str = TRAIN
    core: bool = False
    seeds: tuple[int, ...] = (0, 1, 2)
    deterministic: bool = False
    timed: bool = False
    cell_s: float = Field(gt=0)
    devices: tuple[Literal["cpu", "cuda"], ...] = ("cpu", "cuda")
    values: tuple[str, ...] = ()
    settings: Mapping[str, Any] = Field(default_factory=dict)
    stop: Mapping[str, Any] = Field(default_factory=dict)
    over: Mapping[str, Any] = Field(default_factory=dict)
    skip: tuple[Mapping[str, Any] | Literal["refused"], ...] = ()
    claims: tuple[Claim, ...] = ()
    ranking: RankedAxis | None = None

    @model_validator(mode="after")
    def _check(self) -> Experiment:
        names = [claim.name for claim in self.claims]
        if len(set(names)) < len(names):
            raise ValueError(f"claims {names} need different names.")
        if self.procedure != TRAIN and (self.stop or "refused" in self.skip):
            raise ValueError(f'[stop] and skip = ["refused"] apply to procedure = {TRAIN!r} only.')
        for rule in self.skip:
            if rule != "refused" and (lacking := rule.keys() - self.over.keys()):
                raise ValueError(f"[[skip]]: there is no axis {min(lacking)!r} in [over]: {', '.join(self.over)}.")
        if not self.claims and self.ranking is None:
            raise ValueError("needs [[claims]] or [ranking].")
        if self.ranking is not None and self.ranking.axis not in self.over:
            raise ValueError(f"ranking: there is no axis {self.ranking.axis!r} in [over]: {', '.join(self.over)}.")
        if self.ranking is None and bool(self.over) == all(claim.untestable for claim in self.claims):
            raise ValueError("needs [over] for claims with a rule, and none if all claims are untestable.")
        for claim in self.claims:
            for axis in {**claim.ours, **claim.rival, **claim.where}:
                if axis not in self.over:
                    raise ValueError(
                        f"claim {claim.name!r}: there is no axis {axis!r} in [over]: {', '.join(self.over)}."
                    )
                values = [
                    value for chosen in (claim.ours, claim.rival, claim.where) for value in listed(chosen.get(axis))
                ]
                if unknown := [value for value in values if value not in list(self.over[axis])]:
                    raise ValueError(f"claim {claim.name!r}: axis {axis!r} has no {unknown[0]!r}.")
        return self

    @model_validator(mode="after")
    def _check_values(self) -> Experiment:
        allowed = (*NEAR, *SUMMARY_MEANINGS)
        values = (*self.values, *(claim.value for claim in self.testable)) if self.procedure == TRAIN else ()
        for value in values:
            if value.partition(".")[0] not in allowed:
                raise UnknownNameError("number of a summary", value, allowed)
        return self

    @property
    def id(self) -> str:
        """The name on the command line, such as ``flaredtdg/accuracy``."""
        return f"{self.paper}/{self.name}"

    @property
    def file(self) -> Path:
        """The file that it was read from."""
        return self.folder / f"{self.name}.toml"

    @property
    def rows_file(self) -> Path:
        """The file of its rows."""
        return self.folder / RESULTS / f"{self.name}.json"

    def rule_digest(self, claim: Claim) -> str:
        """Return eight hexadecimal digits of all that decides a verdict; rows keep those of the claims they are for."""
        rule = claim.model_dump(include={"rule", "value", "ours", "rival", "best_rival", "where", "needs_skill"})
        text = json.dumps(
            [rule, claim.paper.size, *["deterministic"] * self.deterministic], sort_keys=True, default=str
        )
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @cached_property
    def testable(self) -> tuple[Claim, ...]:
        """The claims that have a rule."""
        return tuple(claim for claim in self.claims if not claim.untestable)


def listed(value: Any) -> list[Any]:
    """Return a value, or the values of a list; nothing for None."""
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def read_experiment(file: Path) -> Experiment:
    """Read an experiment.

    Raises:
        ConfigError: the file cannot be read, or an entry is missing, unknown or invalid.
    """
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the experiment {file}: {explain(error, file)}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the experiment {file} is not valid TOML: {error}.") from error
    own: dict[str, Any] = {"paper": file.parent.name, "name": file.stem, "folder": file.parent}
    if given := own.keys() & table.keys():
        raise ConfigError(f"the experiment {file} gives {', '.join(sorted(given))}, which its path decides. Remove it.")
    try:
        return Experiment(**table, **own)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg'].removeprefix('Value error, ')}".lstrip(": ")
            for problem in error.errors()
        ]
        raise ConfigError(
            f"the experiment {file} is invalid: {'; '.join(problems).rstrip('.')}. Its entries are described in "
            "dtdg_lab/reproduction/experiment.py; claims are counted from 0."
        ) from error


def read_experiments(folder: Path, names: tuple[str, ...] = ()) -> list[Experiment]:
    """Read experiments in the order of their papers and names.

    Args:
        folder: the folder with one folder a paper.
        names: papers, or experiments as ``paper/name``; by default all.

    Raises:
        ConfigError: there is no such folder, or a file is invalid.
        UnknownNameError: there is no such paper or experiment.
    """
    files = sorted(folder.glob("*/*.toml"))
    if not files:
        raise ConfigError(
            f"{folder} has no experiments. Run this in a checkout of the lab, or give --folder with its reproduce/."
        )
    known = {f"{file.parent.name}/{file.stem}" for file in files}
    papers = {file.parent.name for file in files}
    for name in names:
        if name not in known | papers:
            paper = name.partition("/")[0]
            of_paper = {one for one in known if one.startswith(f"{paper}/")}
            allowed = of_paper or papers | {one for one in known if one.endswith(f"/{name}")}
            raise UnknownNameError("paper or experiment", name, allowed)
    chosen = [file for file in files if not names or {file.parent.name, f"{file.parent.name}/{file.stem}"} & {*names}]
    return [read_experiment(file) for file in chosen]
