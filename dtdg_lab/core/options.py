"""The glossary: one entry for every option of a run, with owner, type, unit, bounds, default, meaning and liveness.

``live`` says when a change asked for during a run takes effect: ``"step"`` before the next step on all ranks,
``"epoch"`` at the next epoch boundary (in-memory checkpoint, rebuild, restore), ``"no"`` only in a new run.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dtdg_lab.core import catalogue
from dtdg_lab.core.catalogue import PROTOCOLS, names
from dtdg_lab.core.errors import ConfigError, UnknownNameError, shortened

# One setting of a run: what it is called, what it may be, and when it can change.


Live = Literal["step", "epoch", "no"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting of a run: what it is called, what it may be, and when it can change."""

    name: str
    owner: str
    kind: type
    default: Any
    meaning: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    live: Live = "no"

    def check(self, value: Any) -> Any:
        """The value in this option's type.

        Raises:
            ConfigError: the type is wrong, or the value is outside the bounds or choices.
        """
        value = self._typed(value)
        if self.choices and value not in self.choices:
            raise UnknownNameError(f"value of {self.name}", str(value), self.choices)
        too_low = self.low is not None and value < self.low
        too_high = self.high is not None and value > self.high
        if too_low or too_high:
            raise ConfigError(f"{self.name}={shortened(value)} is out of range: allowed {self.allowed}. {self.meaning}")
        return value

    def _typed(self, value: Any) -> Any:
        if isinstance(value, np.bool_):
            value = bool(value)
        number = isinstance(value, numbers.Real) and not isinstance(value, bool)  # numpy's too, which sweeps give
        if number and (self.kind is float or (self.kind is int and value % 1 == 0)):
            try:
                value = self.kind(value)
            except OverflowError:
                value = math.inf if value > 0 else -math.inf  # refused below
        if not isinstance(value, self.kind) or (self.kind is not bool and isinstance(value, bool)):
            kind = type(value).__name__
            raise ConfigError(f"{self.name}={shortened(value)} has type {kind}: allowed {self.allowed}.")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{self.name}={value!r} is not a finite number: allowed {self.allowed}.")
        return value

    @property
    def allowed(self) -> str:
        """What a value may be, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        words = {int: "a whole number", float: "a number", str: "text", bool: "True or False"}[self.kind]
        if self.low is not None and self.high is not None:
            words += f" from {_plain(self.low)} to {_plain(self.high)}"
        elif self.low is not None:
            words += f" of at least {_plain(self.low)}"
        return words + (f" ({self.unit})" if self.unit else "")


def _plain(bound: float) -> str:
    return str(int(bound)) if float(bound).is_integer() else f"{bound:g}"


# The options of batches: which snapshots a step takes, and how much of each.


BATCHING_OPTIONS: tuple[Option, ...] = (
    Option(
        name="window",
        owner="batching",
        kind=int,
        default=8,
        low=1,
        high=10_000,
        unit="snapshots",
        live="epoch",
        meaning="Snapshots in a batch: the full ones and, before them, the decayed ones.",
    ),
    Option(
        name="full_snapshots",
        owner="batching",
        kind=int,
        default=2,
        low=1,
        high=10_000,
        unit="snapshots",
        live="step",
        meaning="Newest snapshots of a batch that are whole (K of FlareDTDG); at most window.",
    ),
    Option(
        name="alpha",
        owner="batching",
        kind=float,
        default=0.1,
        low=1e-4,
        high=1.0,
        live="step",
        meaning="Share of its chunks that a batch's oldest snapshot keeps (text), or its newest decayed one (ladder).",
    ),
    Option(
        name="decay",
        owner="batching",
        kind=str,
        default="ladder",
        choices=("ladder", "text"),
        live="step",
        meaning="How chunks fall from one decayed snapshot to the one before: in a geometric ladder from alpha of them "
        "to a single one, each rung rounded up, as FlareDTDG's released code has it, or by the factor alpha^(1/m), "
        "rounded down, as its text.",
    ),
    Option(
        name="late_state",
        owner="batching",
        kind=str,
        default="inherit",
        choices=("inherit", "zero"),
        live="epoch",
        meaning="What nodes start from that older snapshots of a window lack: the state that they had after the "
        "same earlier snapshot in the step before (FlareDTDG), or zero.",
    ),
    Option(
        name="chunks",
        owner="batching",
        kind=int,
        default=0,
        low=0,
        high=1_000_000,
        live="epoch",
        meaning="Chunks that each part's nodes are dealt to; a decayed snapshot keeps whole chunks. 0 takes 128, or "
        "fewer where a chunk would have less than 4 nodes.",
    ),
    Option(
        name="chunker",
        owner="batching",
        kind=str,
        default="metis",
        choices=("metis", "hash", "load_aware"),
        live="epoch",
        meaning="How the nodes of a part are dealt to its chunks.",
    ),
    Option(
        name="tune",
        owner="batching",
        kind=bool,
        default=False,
        live="epoch",
        meaning="Whether full_snapshots and alpha follow the validation loss after a trial epoch with each of their "
        "neighbours, greedily: K by 1, alpha by 0.1 and not below 0.1.",
    ),
    Option(
        name="tune_every",
        owner="batching",
        kind=int,
        default=5,
        low=1,
        high=10_000,
        unit="epochs",
        live="epoch",
        meaning="Epochs between two looks at the neighbours of full_snapshots and alpha; a look takes up to five trial "
        "epochs, of which nothing is kept.",
    ),
    Option(
        name="tune_memory_gib",
        owner="batching",
        kind=float,
        default=4.0,
        low=1e-6,
        high=1e6,
        unit="GiB",
        live="epoch",
        meaning="Most memory that a step may take on a rank of one thread, by prediction, for tuning to choose it.",
    ),
    Option(
        name="fanout",
        owner="batching",
        kind=int,
        default=10,
        low=1,
        high=1_000_000,
        unit="neighbours",
        live="epoch",
        meaning="Most in-neighbours that are drawn of a node for each layer.",
    ),
)


# The options of features that are fetched: batches, caches, and links made slow on purpose.


SAMPLING: tuple[Option, ...] = (
    Option(
        name="batch_size",
        owner="batching",
        kind=int,
        default=512,
        low=1,
        high=100_000_000,
        unit="vertices",
        live="epoch",
        meaning="Nodes whose loss a step of a part takes; neighbours are sampled around them.",
    ),
    Option(
        name="batch_length",
        owner="batching",
        kind=int,
        default=1,
        low=1,
        high=100_000,
        unit="snapshots",
        live="epoch",
        meaning="Consecutive snapshots of a batch; from state zero. 1 serves graphs that stay as they are.",
    ),
    Option(
        name="fanouts",
        owner="batching",
        kind=str,
        default="10 25",
        live="epoch",
        meaning="Most in-neighbours sampled of a node for each layer, the first layer first; the last number holds "
        "for further layers.",
    ),
    Option(
        name="sampler",
        owner="batching",
        kind=str,
        default="own",
        choices=("own", "dgl"),
        live="epoch",
        meaning="What samples neighbours: draws that node, step and seed alone decide, or DGL's sampler, whose draws "
        "repeat on one thread only.",
    ),
)

CACHING: tuple[Option, ...] = (
    Option(
        name="cache_policy",
        owner="features",
        kind=str,
        default="fixed",
        choices=names("features"),
        live="step",
        meaning="How a batch's remote features come: on demand, ahead of time, or out of a cache, and what decides "
        "when it is rebuilt.",
    ),
    Option(
        name="cache_window",
        owner="features",
        kind=int,
        default=16,
        low=1,
        high=100_000,
        unit="steps",
        live="step",
        meaning="Steps between two rebuilds of the cache (W): always, for policy fixed; of quiet links, for threshold; "
        "of the first window, for those that choose.",
    ),
    Option(
        name="cache_bias",
        owner="features",
        kind=int,
        default=-1,
        low=-1,
        high=65_535,
        unit="part",
        live="step",
        meaning="Part whose rows get 60 % of the cache under policy fixed; -1: all other parts get as much.",
    ),
    Option(
        name="cache_rows",
        owner="features",
        kind=int,
        default=100_000,
        low=1,
        high=1_000_000_000,
        unit="rows",
        live="epoch",
        meaning="Most rows of other parts' features that a part's cache holds.",
    ),
    Option(
        name="queue_depth",
        owner="features",
        kind=int,
        default=4,
        low=1,
        high=1000,
        unit="batches",
        live="epoch",
        meaning="Batches with their features that may wait for training (Q).",
    ),
    Option(
        name="fetch_timeout_s",
        owner="features",
        kind=float,
        default=10.0,
        low=0.1,
        high=3600.0,
        unit="s",
        live="epoch",
        meaning="Time after which an owner that does not answer is given up, and the run with it.",
    ),
    Option(
        name="policy_file",
        owner="features",
        kind=str,
        default="",
        live="epoch",
        meaning="File of a trained policy for double_dqn, as train-policy writes it; empty takes the shipped one.",
    ),
)

CONGESTING: tuple[Option, ...] = (
    Option(
        name="congestion",
        owner="congestion",
        kind=str,
        default="none",
        choices=names("congestion"),
        live="step",
        meaning="Which links are made slow, and when.",
    ),
    Option(
        name="links",
        owner="congestion",
        kind=str,
        default="",
        live="step",
        meaning="Links made slow by hand beside the pattern: 'OWNER>REQUESTER delay=MS rate=MBIT; ...', parts by "
        "number or *; without a requester, all of an owner's.",
    ),
    Option(
        name="congestion_ms",
        owner="congestion",
        kind=float,
        default=20.0,
        low=0.0,
        high=10_000.0,
        unit="ms",
        live="step",
        meaning="Delay that a pattern adds to every reply over a congested link.",
    ),
    Option(
        name="congestion_mbit",
        owner="congestion",
        kind=float,
        default=0.0,
        low=0.0,
        high=1e7,
        unit="Mbit/s",
        live="step",
        meaning="Rate of a congested link in a pattern; 0 does not limit it.",
    ),
    Option(
        name="congestion_from",
        owner="congestion",
        kind=int,
        default=3,
        low=0,
        high=1_000_000,
        unit="epochs",
        live="epoch",
        meaning="Epochs without congestion at the beginning, in which latencies without it are learnt.",
    ),
    Option(
        name="congestion_cycle",
        owner="congestion",
        kind=int,
        default=7,
        low=1,
        high=1_000_000,
        unit="epochs",
        live="epoch",
        meaning="Epochs after which a pattern begins anew.",
    ),
    Option(
        name="congestion_table",
        owner="congestion",
        kind=str,
        default="",
        live="epoch",
        meaning="Epochs of the schedule's cycle: 'OWNERS:MS' with '+' between owners, '-' for an epoch without, such "
        "as '1:15 1+2:25 -'; empty makes one by the seed.",
    ),
    Option(
        name="congestion_file",
        owner="congestion",
        kind=str,
        default="",
        live="epoch",
        meaning="Trace that pattern recorded repeats: JSON lines of epoch, share, delay_ms and mbit.",
    ),
    Option(
        name="congestion_by",
        owner="congestion",
        kind=str,
        default="emulated",
        choices=("emulated", "netem"),
        live="epoch",
        meaning="What makes links slow: the process that serves features, when it replies, or Linux' traffic control, "
        "which needs the right to change it and all parts on this machine.",
    ),
)

FEATURE_OPTIONS = (*SAMPLING, *CACHING, *CONGESTING)


# The options of hybrid batches: their sizes, who makes and chooses them, and what ranks exchange.


SIZES: tuple[Option, ...] = (
    Option(
        name="batch_snapshots",
        owner="batching",
        kind=float,
        default=0.2,
        low=1e-9,
        high=1e9,
        live="step",
        meaning="Consecutive snapshots of a batch (N_S): a share of the training split up to 1, which is all of it, or "
        "a whole number of them from 2. Where an adjuster chooses, the nearest of its sizes.",
    ),
    Option(
        name="batch_vertices",
        owner="batching",
        kind=float,
        default=0.05,
        low=1e-9,
        high=1e9,
        live="step",
        meaning="Target nodes of a batch, of every part (N_V): a share of the part's trained nodes up to 1, "
        "which is all of them, or a whole number from 2. Where an adjuster chooses, the nearest of its sizes.",
    ),
    Option(
        name="load_groups",
        owner="batching",
        kind=int,
        default=10,
        low=1,
        high=10_000,
        unit="groups",
        live="epoch",
        meaning="Groups of like load that a part's nodes are sorted into; a batch takes equally many of each.",
    ),
    Option(
        name="epoch_batches",
        owner="batching",
        kind=int,
        default=20,
        low=1,
        high=1_000_000,
        unit="steps",
        live="epoch",
        meaning="Steps of an epoch on each rank: batches are drawn at random, and no number of them is the whole. With "
        "exchange='models' ranks share the steps of all, and a faster one makes more.",
    ),
    Option(
        name="reservoir",
        owner="batching",
        kind=bool,
        default=False,
        live="step",
        meaning="Whether batches are generated beside training and kept for use again.",
    ),
    Option(
        name="reservoir_gib",
        owner="batching",
        kind=float,
        default=0.5,
        low=1e-6,
        high=1e6,
        unit="GiB",
        live="epoch",
        meaning="Most memory that the batches kept by one rank may take.",
    ),
    Option(
        name="reservoir_uses",
        owner="batching",
        kind=int,
        default=0,
        low=0,
        high=1_000_000,
        unit="steps",
        live="epoch",
        meaning="Steps after which a kept batch makes room for a new one; 0 keeps every batch for good, as the paper.",
    ),
    Option(
        name="generators",
        owner="batching",
        kind=str,
        default="processes",
        choices=("threads", "processes"),
        live="epoch",
        meaning="What generates batches beside training.",
    ),
    Option(
        name="stand_in_gib",
        owner="batching",
        kind=float,
        default=2.0,
        low=0.0,
        high=1e6,
        unit="GiB",
        live="epoch",
        meaning="Most memory that a step may take for a batch of all nodes to stand in for one that the reservoir "
        "does not give; above, a new batch is built while the step waits.",
    ),
)

ADJUSTING: tuple[Option, ...] = (
    Option(
        name="adjuster",
        owner="control",
        kind=str,
        default="none",
        choices=names("control"),
        live="step",
        meaning="What chooses the size of batches while training runs.",
    ),
    Option(
        name="snapshot_sizes",
        owner="control",
        kind=str,
        default="0.1 0.2 0.3",
        live="epoch",
        meaning="Sizes in snapshots that an adjuster may choose: numbers as batch_snapshots takes, blanks between.",
    ),
    Option(
        name="vertex_sizes",
        owner="control",
        kind=str,
        default="0.01 0.05 0.1",
        live="epoch",
        meaning="Sizes in nodes that an adjuster may choose: numbers as batch_vertices takes, blanks between.",
    ),
    Option(
        name="decide_every",
        owner="control",
        kind=int,
        default=5,
        low=1,
        high=1_000_000,
        unit="steps",
        live="step",
        meaning="Steps under one size before an adjuster chooses again. The rank that decides uses its choice from its "
        "next step on; where models are averaged, other ranks follow after the next round.",
    ),
    Option(
        name="reward_loss",
        owner="control",
        kind=str,
        default="train",
        choices=("train", "validation"),
        live="step",
        meaning="Whose fall rewards an adjuster: the loss of the batches, or that of the validation split, which it "
        "hears after evaluations only.",
    ),
    Option(
        name="reward",
        owner="control",
        kind=str,
        default="paper",
        choices=("paper", "progress"),
        live="step",
        meaning="What a size earns: paper, shorter steps and a faster falling loss than under the size before (DynaHB "
        "equation 3); progress, the relative fall of the loss per second over its own best so far. `law` always "
        "earns progress.",
    ),
    Option(
        name="discount",
        owner="control",
        kind=float,
        default=0.99,
        low=0.0,
        high=1.0,
        live="epoch",
        meaning="What a later reward is worth to the DQN, of one now (gamma).",
    ),
    Option(
        name="epsilon_decay",
        owner="control",
        kind=float,
        default=0.95,
        low=0.0,
        high=1.0,
        live="epoch",
        meaning="Factor by which the DQN's share of random choices falls with every decision, from 1.",
    ),
    Option(
        name="epsilon_min",
        owner="control",
        kind=float,
        default=0.1,
        low=0.0,
        high=1.0,
        live="epoch",
        meaning="Where the DQN's share of random choices stays.",
    ),
    Option(
        name="agent_rate",
        owner="control",
        kind=float,
        default=0.005,
        low=1e-9,
        high=10.0,
        live="epoch",
        meaning="The DQN's own learning rate.",
    ),
)

EXCHANGING: tuple[Option, ...] = (
    Option(
        name="exchange",
        owner="comm",
        kind=str,
        default="gradients",
        choices=names("comm"),
        live="epoch",
        meaning="What ranks exchange: the gradients of every step, or their models now and then, without waiting.",
    ),
    Option(
        name="average_every_s",
        owner="comm",
        kind=float,
        default=0.5,
        low=1e-3,
        high=1e6,
        unit="s",
        live="step",
        meaning="Seconds between two rounds of averaging models (T_mu).",
    ),
)

HYBRID_OPTIONS = (*SIZES, *ADJUSTING, *EXCHANGING)


GLOSSARY: tuple[Option, ...] = (
    # data
    Option(
        name="cut",
        owner="datasets",
        kind=int,
        default=0,
        low=0,
        high=100_000,
        meaning="Base intervals the data is cut into, as cut_by says; 0 takes intervals of a fixed length.",
    ),
    Option(
        name="cut_by",
        owner="datasets",
        kind=str,
        default="time",
        choices=("time", "edges"),
        meaning="What the intervals of cut share equally: the time span, or the number of edges.",
    ),
    Option(
        name="interval",
        owner="datasets",
        kind=float,
        default=0.0,
        low=0.0,
        high=1e12,
        meaning="Length of a base interval in the data's unit of time, where cut is 0; 0 takes the data set's own.",
    ),
    Option(
        name="edge_life",
        owner="datasets",
        kind=int,
        default=1,
        low=1,
        high=1000,
        unit="base intervals",
        meaning="Base intervals an edge lives: snapshot i holds the edges of intervals i .. i + edge_life - 1.",
    ),
    Option(
        name="smoothing_window",
        owner="datasets",
        kind=int,
        default=1,
        low=1,
        high=1000,
        unit="snapshots",
        meaning="M-transform of graph and features: means over the last snapshots (w of TM-GCN); 1 is none.",
    ),
    Option(
        name="drop_first",
        owner="datasets",
        kind=bool,
        default=False,
        meaning="Leave out the edges of the first distinct time, as the loaders of DynaHB and FlareDTDG do.",
    ),
    Option(
        name="drop_partial",
        owner="datasets",
        kind=bool,
        default=False,
        meaning="Leave out the edges of the last interval where it is not full: shorter than the others, or with fewer "
        "edges, as EvolveGCN does. Without effect where cut gives the number of intervals.",
    ),
    Option(
        name="min_edges",
        owner="datasets",
        kind=int,
        default=0,
        low=0,
        high=1_000_000_000,
        unit="edges",
        meaning="Snapshots with fewer edges are left out; 0 keeps all, also empty ones.",
    ),
    Option(
        name="features",
        owner="datasets",
        kind=str,
        default="log_degrees",
        choices=("log_degrees", "degrees", "one_hot_degree", "constant", "given"),
        meaning="Node features: weighted in- and out-degree (log(1 + d) or raw), one-hot out-degree, 1, or the "
        "data set's own.",
    ),
    Option(
        name="generated_nodes",
        owner="datasets",
        kind=int,
        default=600,
        low=8,
        high=100_000_000,
        unit="vertices",
        meaning="Size of the generated graph.",
    ),
    Option(
        name="generated_edges",
        owner="datasets",
        kind=int,
        default=3000,
        low=8,
        high=1_000_000_000,
        unit="edges",
        meaning="Edges of the last generated snapshot.",
    ),
    Option(
        name="generated_snapshots",
        owner="datasets",
        kind=int,
        default=50,
        low=4,
        high=100_000,
        unit="snapshots",
        meaning="Base intervals of a generated graph, or of a static graph made dynamic.",
    ),
    Option(
        name="growth",
        owner="datasets",
        kind=float,
        default=10.0,
        low=1.0,
        high=1000.0,
        meaning="Edges of the last generated snapshot over those of the first.",
    ),
    Option(
        name="growth_curve",
        owner="datasets",
        kind=str,
        default="linear",
        choices=("linear", "exponential", "logistic"),
        meaning="How the number of edges grows from the first generated snapshot to the last.",
    ),
    Option(
        name="churn",
        owner="datasets",
        kind=float,
        default=0.1,
        low=0.0,
        high=1.0,
        meaning="Share of the edges that every generated snapshot renews.",
    ),
    Option(
        name="zipf",
        owner="datasets",
        kind=float,
        default=0.6,
        low=0.0,
        high=4.0,
        meaning="Exponent of popularity of generated targets: in-degrees have a tail of exponent 1 + 1/zipf.",
    ),
    Option(
        name="communities",
        owner="datasets",
        kind=int,
        default=3,
        low=2,
        high=1000,
        meaning="Communities of the generated block model.",
    ),
    Option(
        name="drift",
        owner="datasets",
        kind=float,
        default=0.02,
        low=0.0,
        high=1.0,
        meaning="Share of the nodes that change their community at every generated snapshot.",
    ),
    # models
    Option(
        name="gc_layers",
        owner="models",
        kind=int,
        default=1,
        low=1,
        high=2,
        meaning="Graph convolutions before the gates of T-GCN: 1 as PyG-Temporal, 2 as the original paper.",
    ),
    Option(
        name="heads",
        owner="models",
        kind=int,
        default=2,
        low=1,
        high=64,
        meaning="Attention heads, which share the hidden width.",
    ),
    Option(
        name="diffusion_steps",
        owner="models",
        kind=int,
        default=2,
        low=1,
        high=16,
        unit="hops",
        meaning="Hops of the diffusion convolution in each direction (K of DCRNN).",
    ),
    Option(
        name="transform_window",
        owner="models",
        kind=int,
        default=5,
        low=1,
        high=1000,
        unit="snapshots",
        meaning="Snapshots the M-transform of TM-GCN's activations averages (w).",
    ),
    # tasks
    Option(
        name="task",
        owner="tasks",
        kind=str,
        default="regression",
        choices=("regression", "classification", "link"),
        meaning="What is learned: the next snapshot's log-degree (or a given value), a node's class, or its edges.",
    ),
    Option(
        name="link_share",
        owner="tasks",
        kind=float,
        default=0.1,
        low=1e-4,
        high=1.0,
        meaning="Share of the next snapshot's edges that are positives of link prediction (theta of ESDG).",
    ),
    Option(
        name="negatives",
        owner="tasks",
        kind=int,
        default=1,
        low=1,
        high=1000,
        meaning="Random pairs without an edge for each positive of link prediction.",
    ),
    Option(
        name="ranking_negatives",
        owner="tasks",
        kind=int,
        default=100,
        low=1,
        high=100_000,
        meaning="Targets without an edge against which each evaluated positive is ranked (MRR).",
    ),
    Option(
        name="link_head",
        owner="tasks",
        kind=str,
        default="concat",
        choices=("concat", "dot"),
        meaning="Score of a pair: linear in the concatenated embeddings (ESDG), or the product of projected ones.",
    ),
    # parallel
    Option(
        name="group_window",
        owner="parallel",
        kind=int,
        default=4,
        low=1,
        high=1000,
        unit="snapshots",
        live="epoch",
        meaning="Consecutive snapshots in a group (w of DyGNeX).",
    ),
    Option(
        name="group_stride",
        owner="parallel",
        kind=int,
        default=1,
        low=1,
        high=1000,
        unit="snapshots",
        live="epoch",
        meaning="Distance between the starts of neighbouring groups.",
    ),
    Option(
        name="loss_at",
        owner="parallel",
        kind=str,
        default="last",
        choices=("last", "all"),
        live="epoch",
        meaning="Where the loss of a snapshot group, or of a window, is taken: at its last snapshot or at all of them.",
    ),
    Option(
        name="pipelined",
        owner="parallel",
        kind=bool,
        default=False,
        live="epoch",
        meaning="Whether the groups of a step are in work together, all their activations alive, as in BLAD.",
    ),
    Option(
        name="halo_reuse",
        owner="parallel",
        kind=bool,
        default=False,
        live="epoch",
        meaning="Whether pulls of features alone are exchanged once and kept; off, they are exchanged in every step.",
    ),
    Option(
        name="blocks",
        owner="parallel",
        kind=int,
        default=1,
        low=0,
        high=100_000,
        live="epoch",
        meaning="Blocks of time (nb of ESDG): activations of one are kept, states between them; backward computes each "
        "again. 0 takes the fewest that fit memory_gib.",
    ),
    Option(
        name="memory_gib",
        owner="parallel",
        kind=float,
        default=4.0,
        low=1e-6,
        high=1e6,
        unit="GiB",
        live="epoch",
        meaning="Most memory that a step's activations and states may take on a rank, where blocks is 0.",
    ),
    Option(
        name="overlap",
        owner="parallel",
        kind=bool,
        default=True,
        live="epoch",
        meaning="Whether rows are sent snapshot by snapshot while the next one is computed, or all at once after it.",
    ),
    Option(
        name="graphs",
        owner="parallel",
        kind=str,
        default="brought",
        choices=("brought", "kept"),
        live="epoch",
        meaning="With several blocks of time: whether the graphs of each are brought to the device anew, as ESDG does, "
        "or all are kept there, which takes more memory and less time. Ranks that split snapshots keep them.",
    ),
    Option(
        name="difference",
        owner="parallel",
        kind=bool,
        default=True,
        live="epoch",
        meaning="Whether graphs that are brought are so as differences from the snapshot before, or each whole.",
    ),
    Option(
        name="row_ranks",
        owner="parallel",
        kind=int,
        default=1,
        low=1,
        high=4096,
        unit="ranks",
        live="epoch",
        meaning="Ranks that split each snapshot by rows; they must divide the ranks. 1: a snapshot is on one rank.",
    ),
    Option(
        name="cache_gib",
        owner="parallel",
        kind=float,
        default=4.0,
        low=0.0,
        high=1e6,
        unit="GiB",
        live="epoch",
        meaning="Most host memory that the parts with their replicated neighbours may take together.",
    ),
    *BATCHING_OPTIONS,
    *HYBRID_OPTIONS,
    *FEATURE_OPTIONS,
    # partition
    Option(
        name="partitioner",
        owner="partition",
        kind=str,
        default="hash",
        choices=names("partition"),
        live="epoch",
        meaning="How nodes are dealt to parts.",
    ),
    Option(
        name="dealing",
        owner="partition",
        kind=str,
        default="boustrophedon",
        choices=("boustrophedon", "plain"),
        live="epoch",
        meaning="How load_aware deals nodes sorted by load: 1..P, P..1 in turns, or 1..P every time.",
    ),
    Option(
        name="imbalance",
        owner="partition",
        kind=float,
        default=0.03,
        low=0.0,
        high=10.0,
        live="epoch",
        meaning="How much a part may exceed the mean of what metis and hypergraph balance, as a share of it.",
    ),
    Option(
        name="partition_file",
        owner="partition",
        kind=str,
        default="",
        live="epoch",
        meaning="File that partitioner 'file' reads, as save() of a partition writes it.",
    ),
    # scheduling
    Option(
        name="scheduler",
        owner="scheduling",
        kind=str,
        default="round_robin",
        live="epoch",
        choices=names("scheduling"),
        meaning="How snapshot groups are dealt to parts and iterations.",
    ),
    Option(
        name="group_times",
        owner="scheduling",
        kind=str,
        default="profile",
        choices=("profile", "linear", "size"),
        live="epoch",
        meaning="What groups are scheduled by: medians of profiled epochs, a linear model of nodes and edges fitted "
        "to a few timed groups, or their nodes plus edges.",
    ),
    Option(
        name="profile_epochs",
        owner="scheduling",
        kind=int,
        default=5,
        low=1,
        high=100,
        unit="epochs",
        live="epoch",
        meaning="Epochs in which every group is timed; of several the first is dropped.",
    ),
    Option(
        name="schedule_gap",
        owner="scheduling",
        kind=float,
        default=0.02,
        low=0.0,
        high=10.0,
        live="epoch",
        meaning="How far above a bound dygnex_ilp may stop, as a share of it.",
    ),
    Option(
        name="schedule_limit_s",
        owner="scheduling",
        kind=float,
        default=10.0,
        low=0.01,
        high=3600.0,
        unit="s",
        live="epoch",
        meaning="Most time that a scheduler searches.",
    ),
    Option(
        name="schedule_targets",
        owner="scheduling",
        kind=int,
        default=0,
        low=0,
        high=10_000_000,
        unit="targets",
        live="epoch",
        meaning="Most targets that DyGNeX-G tries in an iteration. 0: all where that takes about a second by the "
        "numbers of groups and ranks, else as many as do.",
    ),
    Option(
        name="groups_per_rank",
        owner="scheduling",
        kind=int,
        default=1,
        low=1,
        high=64,
        unit="groups",
        live="epoch",
        meaning="Most groups a part computes between two gradient exchanges.",
    ),
    # training
    Option(
        name="optimizer",
        owner="training",
        kind=str,
        default="adam",
        choices=("adam", "sgd"),
        meaning="Update rule.",
    ),
    Option(
        name="dtype",
        owner="training",
        kind=str,
        default="float32",
        choices=("float32", "float64"),
        meaning="Floating-point type of features, parameters and gradients.",
    ),
    Option(
        name="kernel",
        owner="training",
        kind=str,
        default="auto",
        choices=("auto", "dgl", "torch"),
        meaning="Backend of sparse products; auto picks by device and edge weights, as measured.",
    ),
    Option(
        name="norm",
        owner="training",
        kind=str,
        default="in",
        choices=("in", "in_out"),
        meaning="Scaling of graph convolutions: 1/sqrt(1 + in-degree) on both sides, or, as FlareDTDG's code, "
        "1/sqrt(in-degree of the target x out-degree of the source).",
    ),
    Option(
        name="self_loops",
        owner="training",
        kind=bool,
        default=True,
        meaning="Whether graph convolutions add every node to its own neighbours.",
    ),
    Option(
        name="evaluate_every",
        owner="training",
        kind=int,
        default=1,
        low=1,
        high=100_000,
        unit="epochs",
        live="epoch",
        meaning="Epochs between two evaluations of the training and validation splits.",
    ),
    Option(
        name="checkpoint_every_s",
        owner="training",
        kind=float,
        default=2.0,
        low=0.0,
        high=86_400.0,
        unit="s",
        meaning="Least time between two checkpoints, which are taken between steps; where steps hand on a state, where "
        "none is handed on.",
    ),
    Option(
        name="keep_every",
        owner="training",
        kind=int,
        default=0,
        low=0,
        high=100_000,
        unit="epochs",
        live="epoch",
        meaning="Epochs between two checkpoints that are kept beside the last one, to branch from; 0 keeps none.",
    ),
    Option(
        name="slow_rank",
        owner="training",
        kind=int,
        default=-1,
        low=-1,
        high=4095,
        live="step",
        meaning="Rank made slower on purpose, to see imbalance; -1 is none.",
    ),
    Option(
        name="slow_ms",
        owner="training",
        kind=float,
        default=0.0,
        low=0.0,
        high=5000.0,
        unit="ms",
        live="step",
        meaning="Time the slowed rank sleeps inside the compute phase of every step.",
    ),
    # energy
    Option(
        name="power_idle_w",
        owner="energy",
        kind=float,
        default=20.0,
        low=0.0,
        high=10_000.0,
        unit="W",
        live="step",
        meaning="Assumed power of the idle processors of a node, for modelled energy only.",
    ),
    Option(
        name="power_max_w",
        owner="energy",
        kind=float,
        default=100.0,
        low=0.0,
        high=10_000.0,
        unit="W",
        live="step",
        meaning="Assumed power of a node with all processor cores busy, for modelled energy only.",
    ),
    Option(
        name="power_gpu_idle_w",
        owner="energy",
        kind=float,
        default=30.0,
        low=0.0,
        high=10_000.0,
        unit="W",
        live="step",
        meaning="Assumed power of a GPU that waits, where NVML cannot read it.",
    ),
    Option(
        name="power_gpu_max_w",
        owner="energy",
        kind=float,
        default=250.0,
        low=0.0,
        high=10_000.0,
        unit="W",
        live="step",
        meaning="Assumed power of a GPU that computes, where NVML cannot read it; 0: it stays unknown.",
    ),
    # the run itself
    Option(
        name="epochs",
        owner="run",
        kind=int,
        default=5,
        low=1,
        high=10_000_000,
        unit="epochs",
        live="epoch",
        meaning="Passes over the training split.",
    ),
    Option(name="seed", owner="run", kind=int, default=0, low=0, high=2**53, meaning="Seed of every random stream."),
    Option(
        name="ranks",
        owner="run",
        kind=int,
        default=1,
        low=1,
        high=4096,
        unit="processes",
        meaning="Processes that train together (R).",
    ),
    Option(
        name="parts",
        owner="run",
        kind=int,
        default=0,
        low=0,
        high=65_536,
        live="epoch",
        meaning="Parts the plan is made for (P); 0 takes the number of ranks, which must divide it (2 for one rank "
        "where features are fetched).",
    ),
    Option(name="hidden", owner="run", kind=int, default=32, low=1, high=65_536, meaning="Width of hidden layers (H)."),
    Option(name="layers", owner="run", kind=int, default=1, low=1, high=64, meaning="Layers of the model."),
    Option(
        name="learning_rate",
        owner="run",
        kind=float,
        default=1e-3,
        low=0.0,
        high=100.0,
        live="step",
        meaning="Step size of the optimiser.",
    ),
    Option(
        name="threads",
        owner="run",
        kind=int,
        default=0,
        low=0,
        high=1024,
        unit="threads",
        meaning="Threads of each rank; 0 shares the machine's cores out.",
    ),
    Option(
        name="device",
        owner="run",
        kind=str,
        default="auto",
        choices=("auto", "cpu", "cuda"),
        meaning="Where ranks compute; auto takes one GPU a rank when there are enough, else the CPU.",
    ),
)

OPTIONS: dict[str, Option] = {option.name: option for option in GLOSSARY}


def option(name: str) -> Option:
    """The glossary entry called ``name``.

    Raises:
        UnknownNameError: no option has that name.
    """
    if name not in OPTIONS:
        raise UnknownNameError("option", name, OPTIONS)
    return OPTIONS[name]


# The value an option has where none is given: protocol, data set and system may bring another than the glossary's.


# room -> the option that names its entry
CHOSEN_BY = {
    "scheduling": "scheduler",
    "partition": "partitioner",
    "control": "adjuster",
    "comm": "exchange",
    "features": "cache_policy",
    "congestion": "congestion",
}


def default(name: str, *, system: str, dataset: str, protocol: str) -> Any:
    """The default of an option in a run: the protocol's, else the data set's, the system's, the glossary's.

    A data set with features of its own keeps them under every protocol.

    Raises:
        UnknownNameError: one of the names is unknown.
    """
    chosen = catalogue.system(system)
    brought = [PROTOCOLS[protocol].settings]
    if not dataset.startswith(catalogue.STORED):
        own = catalogue.entry("datasets", dataset).defaults
        brought.insert(0 if name == "features" and own.get(name) == "given" else 1, own)
    own_parts = {option: chosen.parts[room] for room, option in CHOSEN_BY.items() if room in chosen.parts}
    brought.append({**chosen.defaults, **own_parts})
    for settings in brought:
        if name in settings:
            return settings[name]
    return option(name).default
