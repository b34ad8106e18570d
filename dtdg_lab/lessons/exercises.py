"""Checks of exercises without points: whether an answer is right, or a hint; the answer is never shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import BatchSize, Schedule, SnapshotBlocks
from dtdg_lab.lessons.checks import Feedback, close, is_number

if TYPE_CHECKING:
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.lessons.widgets import BatchBench, CacheBench, ScheduleBench

Cell = tuple[int, float]  # full snapshots and alpha of a decayed window


def _numbers(
    task: int, answers: Any, right: Mapping[str, float], hints: Mapping[str, str], praise: str, *, within: float = 1e-6
) -> Feedback:
    """Return the feedback on named numbers; the first one that is missing or wrong gets its hint."""
    if not isinstance(answers, Mapping):
        return Feedback(False, f"{task}: give a dict with {', '.join(right)}")
    for name, number in right.items():
        answer: Any = answers.get(name)
        if not is_number(answer):
            return Feedback(False, f"{task}: put a number in place of None for {name!r}")
        if not (close(answer, number, within=within) or abs(answer - number) <= within):
            return Feedback(False, f"{task}: {name!r} is not right; {hints.get(name) or hints['']}")
    return Feedback(True, f"{task}: {praise}")


def _words(answer: Any, right: Iterable[str], allowed: Iterable[str], *, hint: str, praise: str) -> Feedback:
    """Return the feedback on names in one string, in any order; both exercises of this kind have number 2."""
    if not isinstance(answer, str) or not answer.split():
        return Feedback(False, "2: write the names into one string, separated by spaces")
    names, expected = set(answer.split()), set(right)
    if unknown := sorted(names - set(allowed)):
        return Feedback(False, f"2: there is no {unknown[0]}")
    if names == expected:
        return Feedback(True, f"2: {praise}")
    missing, extra = len(expected - names), len(names - expected)
    return Feedback(False, f"2: {missing} missing, {extra} too many; {hint}")


# Snapshot parallelism


def check_sent_rows(answer: Any) -> Feedback:
    """Check the rows of an uneven redistribution among three ranks, for seven snapshots and five nodes."""
    from dtdg_lab.partition.redistribution_volume import collective_rows

    rows = collective_rows(SnapshotBlocks(range(7), 1, 3, 5), "to_vertices")
    right = {"rank 2 to rank 1": float(rows[2, 1]), "all together": float(rows.sum())}
    hints = {
        "rank 2 to rank 1": "multiply the snapshots of the sender by the nodes of the receiver",
        "all together": "35 rows exist; subtract those that are already on the right rank",
    }
    return _numbers(1, answer, right, hints, "a sender's snapshots times the receiver's nodes, for each pair of ranks")


def check_blocks(answer: Any, peaks: Mapping[int, int], budget: float) -> Feedback:
    """Check for the smallest number of blocks whose peak memory fits a budget."""
    if answer not in peaks:
        return Feedback(False, f"2: choose one of {', '.join(map(str, sorted(peaks)))}")
    if peaks[answer] > budget:
        return Feedback(False, "2: its peak is above the budget")
    if any(blocks < answer and peak <= budget for blocks, peak in peaks.items()):
        return Feedback(False, "2: it fits, and so do fewer blocks, which recompute less")
    return Feedback(True, "2: the fewest blocks that fit cost the least recomputation")


# Hybrid batches


def check_targets(answer: Any) -> Feedback:
    """Check the targets of three kinds of batches, with 20 % of 20 snapshots and 5 % of 1,000 nodes."""
    from dtdg_lab.systems.hybrid_batches.sizes import batch_size

    shares: dict[str, tuple[float, float]] = {"hybrid": (0.2, 0.05), "node": (1, 0.05), "snapshot": (0.2, 1)}
    right = {kind: float(batch_size(*share, snapshots=20, candidates=1000).targets) for kind, share in shares.items()}
    hints = {"": "a target is one node in one snapshot; which of the two shares applies to this batch?"}
    return _numbers(1, answer, right, hints, "targets are snapshots times nodes")


def check_reads(answer: Any, graph: DynamicGraph) -> Feedback:
    """Check the nodes that a batch of node 0 in the first two snapshots reads with two layers."""
    import numpy as np

    from dtdg_lab.partition.neighbourhoods import hop_distance

    far = hop_distance(graph.snapshots[:2], np.array([0]), hops=2)
    read = [str(node) for node, distance in enumerate(far) if distance <= 2]
    hint = "follow edges backwards from the target, in any snapshot of the batch, twice"
    praise = "all nodes from which the target is reached in two steps"
    return _words(answer, read, map(str, range(graph.num_nodes)), hint=hint, praise=praise)


def check_reservoir(answer: Any) -> Feedback:
    """Check the capacity of a reservoir for 1,000 nodes and 18 snapshots, and its probability."""
    from dtdg_lab.systems.hybrid_batches.reservoir import capacity

    size = BatchSize(4, 50)
    one, nine = (float(capacity(size, snapshots=18, vertices=1000, actions=sizes)) for sizes in (1, 9))
    right = {"one size": one, "nine sizes": nine, "p": 5 / nine}
    hints = {
        "": "divide all rows of the partition by the targets of a batch",
        "nine sizes": "the room is shared by all sizes",
        "p": "batches held, over the capacity",
    }
    return _numbers(1, answer, right, hints, "enough batches to cover the partition once, shared by all sizes")


def check_reward(answer: Any) -> Feedback:
    """Check three rewards of DynaHB's controller."""
    from dtdg_lab.systems.hybrid_batches.controller import reward

    right = {"there": reward(40, 60, 0.01, 0.02), "back": reward(60, 40, 0.02, 0.01)}
    right["staying"] = reward(40, 40, 0.01, 0.01)
    hints = {"": "add the two terms; each is cut to [-1, 1]; t_last is in the first denominator, d_now in the second"}
    return _numbers(
        3, answer, right, hints, "the reward is for a change, so a good size that stays earns nothing", within=0.01
    )


def check_plan(bench: BatchBench) -> list[Feedback]:
    """Check a manual plan of batch sizes against the DQN, and against every fixed size."""
    seconds, dqn, fixed = bench.seconds, bench.batch_policy_s["dqn"], min(bench.fixed_s)
    return [
        Feedback(seconds < dqn, "1: faster than the DQN" + " needs a better size for some quarter" * (seconds >= dqn)),
        Feedback(
            seconds < fixed,
            "2: faster than every fixed size" + ": the noise scale rises, so change the size" * (seconds >= fixed),
        ),
    ]


# Schedules


def check_schedule(rows: Any, times_s: Sequence[float], ranks: int = 2) -> Feedback:
    """Check that a schedule of groups is valid and as short as the lower bound."""
    import numpy as np

    from dtdg_lab.systems.snapshot_groups.schedulers.base import lower_bound_s

    try:
        seconds = Schedule(rows, groups=len(times_s)).makespan_s(np.asarray(times_s, dtype=float))
    except PlanError as error:
        return Feedback(False, f"1: not a valid schedule: {error}")
    bound = lower_bound_s(times_s, ranks, per_rank=2)
    if seconds > bound + 1e-6:
        hint = f"{seconds:.0f} s, {seconds - bound:.0f} s above the bound; look for two ranks with equal sums"
        return Feedback(False, f"1: {hint}")
    return Feedback(True, f"1: {seconds:.0f} s, as short as the bound")


def check_dragged(bench: ScheduleBench) -> Feedback:
    """Check that no schedule keeps all ranks busy with the group times that the learner dragged."""
    if bench.bound_s > 1.001 * sum(bench.times_s) / bench.ranks:
        return Feedback(True, "2: waiting cannot be avoided")
    return Feedback(False, "2: when must one rank wait, whatever the schedule?")


# Decayed windows


def check_window(answer: Any) -> Feedback:
    """Check the shares of nodes in the paper's window of eight snapshots with rule ``text``."""
    from dtdg_lab.systems.decayed_windows.window import decayed_counts

    newest, *_, oldest = decayed_counts("text", chunks=128, alpha=0.1, decayed=6)
    right = {"only the full ones": 1 - newest / 128, "all eight": oldest / 128}
    hints = {
        "only the full ones": "these nodes are in none of the decayed snapshots, not even the newest",
        "all eight": "these are in the oldest snapshot, and so in all others",
    }
    praise = "newer snapshots keep all that older ones keep"
    return _numbers(1, answer, right, hints, praise, within=0.01)


# Feature caches


def cached(batches: Sequence[Sequence[str]], window: int) -> tuple[int, int]:
    """Return hits and moved rows of a cache with one row per owner, rebuilt every ``window`` batches.

    The cache holds each owner's row that is read most often in the window; among equals, the first.
    """
    hits = rebuilt = 0
    for first in range(0, len(batches), window):
        requests = [row for batch in batches[first : first + window] for row in batch]
        owners = {row[0] for row in requests}
        cached = {max(sorted(row for row in requests if row[0] == owner), key=requests.count) for owner in owners}
        hits, rebuilt = hits + sum(row in cached for row in requests), rebuilt + len(cached)
    return hits, sum(map(len, batches)) - hits + rebuilt


def check_cache(answer: Any, batches: Sequence[Sequence[str]]) -> Feedback:
    """Check hits and moved rows of a small cache with W = 4 and W = 2."""
    right: dict[str, float] = {}
    for window in (4, 2):
        hits, moved = cached(batches, window)
        right |= {f"hits, W = {window}": float(hits), f"rows moved, W = {window}": float(moved)}
    hint = "count how often each row of an owner is read in the window; the first of the most frequent is cached"
    hints = {"": hint} | {f"rows moved, W = {w}": "misses, and three rows for each rebuild" for w in (4, 2)}
    return _numbers(1, answer, right, hints, "a cache for fewer batches fits them better, and is filled more often")


def near_best(choices: Mapping[Any, float], choice: Any) -> bool:
    """Return whether a choice costs at most 5 % more than the best."""
    return choice in choices and choices[choice] < 1.05 * min(choices.values())


def check_choices(answer: Any, costs: Mapping[str, Mapping[Any, float]]) -> Feedback:
    """Check the window and the prioritized part under each condition.

    Args:
        answer: condition -> (W, part), with parts counted from 1, or None for equal shares.
        costs: condition -> (W, part) -> milliseconds.
    """
    if not isinstance(answer, Mapping):
        return Feedback(False, f"2: give a dict with {', '.join(costs)}")
    for name, choices in costs.items():
        if answer.get(name) not in choices:
            return Feedback(False, f"2: {name!r}: put (W, part or None) in place of (None, None)")
        if not near_best(choices, answer[name]):
            over = choices[answer[name]] / min(choices.values()) - 1
            return Feedback(False, f"2: {name!r}: {over:.0%} slower than the best; read the chart again")
    return Feedback(True, "2: each condition has its own window and priority")


def check_controller(bench: CacheBench) -> list[Feedback]:
    """Check a manual run of cache windows against the best fixed window, and against the clairvoyant."""
    if not bench.done:
        return [Feedback(False, "1 and 2: choose until the run ends")]
    less, over = bench.joules < bench.rivals_j["best fixed"], bench.over_clairvoyant
    return [
        Feedback(less, "1: less than the best fixed window" + ": not yet, begin again" * (not less)),
        Feedback(over <= 0.10, f"2: {over:.0%} above the clairvoyant; 10 % are allowed"),
    ]


def check_rule(beyond: float, even: float) -> Feedback:
    """Check that a rule's joules beyond the optimum, in percent, are fewer than those of W = 16 with an even cache."""
    if beyond < even - 0.2:
        return Feedback(True, "3: better than no rule at all")
    return Feedback(False, "3: not better than W = 16 with an even cache; when does a priority pay off?")
