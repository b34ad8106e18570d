"""The catalogue's adjusters of batches, and what ranks exchange."""

from __future__ import annotations

from dtdg_lab.core.entry import Entry

_ADJUSTING = (
    "adjuster", "snapshot_sizes", "vertex_sizes", "decide_every", "reward_loss", "reward", "discount", "epsilon_decay",
    "epsilon_min", "agent_rate",
)  # fmt: skip


def _adjuster(name: str, target: str, summary: str, source: str) -> Entry:
    # all name the same options: an adjuster is changed in the middle of a run, and ignores what it does not read
    return Entry(
        name=name, room="control", target=f"dtdg_lab.control.{target}", summary=summary, source=source,
        options=_ADJUSTING,
    )  # fmt: skip


ADJUSTERS: tuple[Entry, ...] = (
    _adjuster("none", "fixed:Fixed", "Batches keep the size that is set.", "DynaHB section 6.2, fixed batches"),
    _adjuster("random", "uniform:Uniform", "Any size, as likely as another.", "DynaHB table 10, Random"),
    _adjuster(
        "bandit", "bandit:Bandit", "The size whose recent rewards were best, or might be.",
        "Garivier, Moulines 2011 (discounted UCB)",
    ),
    _adjuster("dqn", "dqn:DQN", "A deep Q-network chooses by how much the loss fell.", "DynaHB section 5.1"),
    _adjuster(
        "law", "progress_law:ProgressLaw", "The size of most progress per second, by a law fitted to what was seen.",
        "McCandlish, Kaplan, Amodei 2018 (noise scale)",
    ),
)  # fmt: skip

_EXCHANGING = ("exchange", "average_every_s")

EXCHANGES: tuple[Entry, ...] = (
    Entry(
        name="gradients", room="comm", target="dtdg_lab.comm.gradients:FlatGradients",
        summary="Gradients are summed over ranks in every step.", source="common practice", options=_EXCHANGING,
    ),
    Entry(
        name="models", room="comm", target="dtdg_lab.comm.averaging:ModelAverager",
        summary="Models are averaged every T_mu seconds by the steps they had; ranks share an epoch at their own pace.",
        source="DynaHB section 5.2, algorithm 2", options=_EXCHANGING,
    ),
)  # fmt: skip
