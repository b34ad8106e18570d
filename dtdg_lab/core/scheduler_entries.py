"""The schedulers of the catalogue: rules that deal snapshot groups to ranks and iterations."""

from __future__ import annotations

from dtdg_lab.core.entry import Entry


def _scheduler(name: str, summary: str, source: str) -> Entry:
    # all name the same options: a scheduler is changed in the middle of a run, and ignores what it does not read
    return Entry(
        name=name, room="scheduling", target=f"dtdg_lab.scheduling.{name}:schedule", summary=summary, source=source,
        options=(
            "scheduler", "groups_per_rank", "group_times", "profile_epochs", "schedule_gap", "schedule_limit_s",
            "schedule_targets",
        ),
    )  # fmt: skip


SCHEDULERS: tuple[Entry, ...] = (
    _scheduler("round_robin", "Groups in time order, dealt to parts in turn.", "DyGNeX section 2.3 (PSG)"),
    _scheduler(
        "consecutive", "Neighbouring groups to one part: 0 and 1, 2 and 3, ...", "DyGNeX section 5.1 (BLAD)",
    ),
    _scheduler(
        "longest_first",
        "Groups sorted by predicted time; each iteration takes the longest left, so that its parts are alike.",
        "Graham 1969 (LPT), applied per iteration",
    ),
    _scheduler("fold", "The largest group with the smallest, and pairs of like sums side by side.", "ours"),
    _scheduler(
        "dygnex_greedy", "Each iteration takes the longest group left and pairs that come closest to it in time.",
        "DyGNeX section 4.3, algorithm 2 (DyGNeX-G)",
    ),
    _scheduler(
        "dygnex_ilp", "The integer programme of the whole epoch, solved to a gap or until time is over.",
        "DyGNeX section 4.2, appendix C (DyGNeX-L)",
    ),
    _scheduler("dygnex_auto", "DyGNeX-L below 100 groups, DyGNeX-G from 100.", "DyGNeX appendix G"),
    _scheduler("best_of", "The least makespan of several heuristics, improved by swaps.", "ours"),
)  # fmt: skip
