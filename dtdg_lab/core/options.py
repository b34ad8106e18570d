"""The glossary: every option of a run with its owner, type, unit, bounds, default, meaning and liveness.

``live`` says when a change requested during a run takes effect: ``"step"`` before the next step on all ranks,
``"epoch"`` at the next epoch boundary (in-memory checkpoint, rebuild, restore), ``"no"`` only in a new run.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dtdg_lab.core import catalogue
from dtdg_lab.core.catalogue import PROTOCOLS, names
from dtdg_lab.core.errors import ConfigError, UnknownNameError, shortened

if TYPE_CHECKING:
    import pandas as pd

Live = Literal["step", "epoch", "no"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting of a run: its name, allowed values, and when it can change."""

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
        number = isinstance(value, numbers.Real) and not isinstance(
            value, bool
        )  # including numpy scalars, which sweeps produce
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
        """The allowed values, as text."""
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


# Options of batches: which snapshots a step uses, and how much of each.


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
        meaning="Number of snapshots in a batch: the full ones and the decayed ones before them.",
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
        meaning="Number of newest snapshots that a batch uses in full (K of FlareDTDG); at most window.",
    ),
    Option(
        name="alpha",
        owner="batching",
        kind=float,
        default=0.1,
        low=1e-4,
        high=1.0,
        live="step",
        meaning="Share of chunks that a batch keeps of its oldest snapshot (decay='text'), or of its newest decayed "
        "snapshot (decay='ladder').",
    ),
    Option(
        name="decay",
        owner="batching",
        kind=str,
        default="ladder",
        choices=("ladder", "text"),
        live="step",
        meaning="How the number of chunks shrinks towards older decayed snapshots. ladder: geometrically from alpha "
        "of the chunks to one chunk, rounded up, as in FlareDTDG's released code. text: by the factor alpha^(1/m), "
        "rounded down, as in its paper.",
    ),
    Option(
        name="late_state",
        owner="batching",
        kind=str,
        default="inherit",
        choices=("inherit", "zero"),
        live="epoch",
        meaning="Initial state of nodes that older snapshots of a window do not contain: their state after the same "
        "earlier snapshot in the previous step (as in FlareDTDG), or zero.",
    ),
    Option(
        name="chunks",
        owner="batching",
        kind=int,
        default=0,
        low=0,
        high=1_000_000,
        live="epoch",
        meaning="Number of chunks that each part's nodes are split into; a decayed snapshot keeps whole chunks. 0 "
        "uses 128, or fewer if a chunk would have less than 4 nodes.",
    ),
    Option(
        name="chunker",
        owner="batching",
        kind=str,
        default="metis",
        choices=("metis", "hash", "load_aware"),
        live="epoch",
        meaning="How the nodes of a part are assigned to its chunks.",
    ),
    Option(
        name="tune",
        owner="batching",
        kind=bool,
        default=False,
        live="epoch",
        meaning="Tune full_snapshots and alpha by greedy search: a trial epoch is run with each neighbouring value, "
        "and the one of lowest validation loss is kept. K changes by 1; alpha by 0.1, down to 0.1.",
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
        meaning="Epochs between two searches around the current full_snapshots and alpha. A search runs up to five "
        "trial epochs, whose updates are discarded.",
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
        meaning="Tuning considers only settings whose predicted memory per step, on a rank of one thread, is within "
        "this limit.",
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
        meaning="Maximum number of in-neighbours sampled per node in each layer.",
    ),
)


# Options of remote features: batches, caches, and artificially slow links.


SAMPLING: tuple[Option, ...] = (
    Option(
        name="batch_size",
        owner="batching",
        kind=int,
        default=512,
        low=1,
        high=100_000_000,
        unit="nodes",
        live="epoch",
        meaning="Target nodes of a part's step, whose loss is computed; their neighbours are sampled.",
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
        meaning="Consecutive snapshots of a batch, computed from a zero initial state. Use 1 for graphs that do not "
        "change.",
    ),
    Option(
        name="fanouts",
        owner="batching",
        kind=str,
        default="10 25",
        live="epoch",
        meaning="Maximum number of in-neighbours sampled per node in each layer, first layer first; the last number "
        "applies to all further layers.",
    ),
    Option(
        name="sampler",
        owner="batching",
        kind=str,
        default="own",
        choices=("own", "dgl"),
        live="epoch",
        meaning="Neighbour sampler: our own, whose draws depend only on node, step and seed, or DGL's, whose draws "
        "are reproducible only on one thread.",
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
        meaning="How a batch's remote features are obtained (on demand, prefetched, or from a cache), and the policy "
        "that decides when the cache is rebuilt.",
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
        meaning="Steps between two cache rebuilds (W). fixed always uses it; threshold uses it while links are quiet; "
        "the other policies use it for the first window only.",
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
        meaning="Prioritised part, whose rows get 60 % of the cache under policy fixed; -1 gives every other part an "
        "equal share.",
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
        meaning="Maximum number of remote feature rows that a part's cache holds.",
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
        meaning="Maximum number of batches that are queued, features included, ahead of training (Q).",
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
        meaning="Fetch timeout: the run fails if an owner does not answer within this time.",
    ),
    Option(
        name="policy_file",
        owner="features",
        kind=str,
        default="",
        live="epoch",
        meaning="File of a trained policy for double_dqn, as written by train-policy; empty uses the shipped policy.",
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
        meaning="Pattern that decides which links are slowed down, and when.",
    ),
    Option(
        name="links",
        owner="congestion",
        kind=str,
        default="",
        live="step",
        meaning="Links slowed down in addition to the pattern: 'OWNER>REQUESTER delay=MS rate=MBIT; ...', parts by "
        "number or *; without a requester, all links of the owner.",
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
        meaning="Bandwidth of a congested link in a pattern; 0 means no limit.",
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
        meaning="Number of first epochs without congestion, in which the baseline latencies are measured.",
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
        meaning="Epochs after which a pattern repeats.",
    ),
    Option(
        name="congestion_table",
        owner="congestion",
        kind=str,
        default="",
        live="epoch",
        meaning="Epochs of one cycle of pattern schedule: 'OWNERS:MS' with '+' between owners, '-' for an epoch "
        "without congestion, such as '1:15 1+2:25 -'; empty generates a cycle from the seed.",
    ),
    Option(
        name="congestion_file",
        owner="congestion",
        kind=str,
        default="",
        live="epoch",
        meaning="Trace that pattern recorded replays: JSON lines with epoch, share, delay_ms and mbit.",
    ),
    Option(
        name="congestion_by",
        owner="congestion",
        kind=str,
        default="emulated",
        choices=("emulated", "netem"),
        live="epoch",
        meaning="What slows links down: the process that serves features delays its replies (emulated), or Linux "
        "traffic control does (netem), which needs permission to change it and all parts on this machine.",
    ),
)

FEATURE_OPTIONS = (*SAMPLING, *CACHING, *CONGESTING)


# Options of hybrid batches: sizes, generation, batch-size control and synchronisation.


SIZES: tuple[Option, ...] = (
    Option(
        name="batch_snapshots",
        owner="batching",
        kind=float,
        default=0.2,
        low=1e-9,
        high=1e9,
        live="step",
        meaning="Consecutive snapshots of a batch (N_S): up to 1, a share of the training split; from 2, a number of "
        "snapshots. Where a batch-size controller is active, the nearest of its sizes is used.",
    ),
    Option(
        name="batch_vertices",
        owner="batching",
        kind=float,
        default=0.05,
        low=1e-9,
        high=1e9,
        live="step",
        meaning="Target nodes that a batch takes from every part (N_V): up to 1, a share of the part's training "
        "nodes; from 2, a number of nodes. Where a batch-size controller is active, the nearest of its sizes is used.",
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
        meaning="Number of groups of similar load that a part's nodes are sorted into; a batch takes the same number "
        "of nodes from each.",
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
        meaning="Steps per epoch on each rank; batches are drawn at random, so an epoch is not one pass over the "
        "data. With exchange='models' all ranks share the steps, and a faster rank does more of them.",
    ),
    Option(
        name="reservoir",
        owner="batching",
        kind=bool,
        default=False,
        live="step",
        meaning="Generate batches in the background and keep them for reuse.",
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
        meaning="Memory limit per rank for the batches kept in the reservoir.",
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
        meaning="Steps after which a batch in the reservoir is replaced by a new one; 0 keeps every batch, as in the "
        "paper.",
    ),
    Option(
        name="generators",
        owner="batching",
        kind=str,
        default="processes",
        choices=("threads", "processes"),
        live="epoch",
        meaning="Whether threads or processes generate batches in the background.",
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
        meaning="Memory limit for using a full-graph batch when the reservoir has none ready; above it, the step "
        "waits for a new batch.",
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
        meaning="Batch-size controller: the policy that chooses the batch size during training.",
    ),
    Option(
        name="snapshot_sizes",
        owner="control",
        kind=str,
        default="0.1 0.2 0.3",
        live="epoch",
        meaning="Sizes in snapshots that the batch-size controller may choose: values of batch_snapshots, separated "
        "by blanks.",
    ),
    Option(
        name="vertex_sizes",
        owner="control",
        kind=str,
        default="0.01 0.05 0.1",
        live="epoch",
        meaning="Sizes in nodes that the batch-size controller may choose: values of batch_vertices, separated by "
        "blanks.",
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
        meaning="Steps per decision of the batch-size controller. The deciding rank applies a choice from its next "
        "step; where models are averaged, the other ranks follow after the next round.",
    ),
    Option(
        name="reward_loss",
        owner="control",
        kind=str,
        default="train",
        choices=("train", "validation"),
        live="step",
        meaning="Loss whose decrease rewards the batch-size controller: the training-batch loss, or the validation "
        "loss, which is updated only at evaluations.",
    ),
    Option(
        name="reward",
        owner="control",
        kind=str,
        default="paper",
        choices=("paper", "progress"),
        live="step",
        meaning="Reward of a batch size. paper: shorter steps and a faster decrease of the loss than with the "
        "previous size (DynaHB equation 3). progress: relative decrease of the loss per second, divided by its best "
        "value so far. `law` always uses progress.",
    ),
    Option(
        name="discount",
        owner="control",
        kind=float,
        default=0.99,
        low=0.0,
        high=1.0,
        live="epoch",
        meaning="Discount factor of the DQN's future rewards (gamma).",
    ),
    Option(
        name="epsilon_decay",
        owner="control",
        kind=float,
        default=0.95,
        low=0.0,
        high=1.0,
        live="epoch",
        meaning="Factor by which the DQN's share of random choices is multiplied after every decision, starting from "
        "1.",
    ),
    Option(
        name="epsilon_min",
        owner="control",
        kind=float,
        default=0.1,
        low=0.0,
        high=1.0,
        live="epoch",
        meaning="Lower bound of the DQN's share of random choices.",
    ),
    Option(
        name="agent_rate",
        owner="control",
        kind=float,
        default=0.005,
        low=1e-9,
        high=10.0,
        live="epoch",
        meaning="Learning rate of the DQN itself.",
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
        meaning="What ranks synchronise: the gradients in every step, or the models from time to time, without "
        "waiting.",
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
        meaning="Seconds between two rounds of model averaging (T_mu).",
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
        meaning="Number of base intervals that the data is cut into, as cut_by says; 0 uses intervals of a fixed "
        "length.",
    ),
    Option(
        name="cut_by",
        owner="datasets",
        kind=str,
        default="time",
        choices=("time", "edges"),
        meaning="What the intervals of cut share equally: the time span or the number of edges.",
    ),
    Option(
        name="interval",
        owner="datasets",
        kind=float,
        default=0.0,
        low=0.0,
        high=1e12,
        meaning="Length of a base interval in the data's unit of time, where cut is 0; 0 uses the data set's own "
        "length.",
    ),
    Option(
        name="edge_life",
        owner="datasets",
        kind=int,
        default=1,
        low=1,
        high=1000,
        unit="base intervals",
        meaning="Number of base intervals that an edge lives: snapshot i holds the edges of intervals i .. i + "
        "edge_life - 1.",
    ),
    Option(
        name="smoothing_window",
        owner="datasets",
        kind=int,
        default=1,
        low=1,
        high=1000,
        unit="snapshots",
        meaning="M-transform of graph and features: each snapshot becomes the mean of this many last snapshots (w of "
        "TM-GCN); 1 disables it.",
    ),
    Option(
        name="drop_first",
        owner="datasets",
        kind=bool,
        default=False,
        meaning="Drop the edges of the first distinct timestamp, as the loaders of DynaHB and FlareDTDG do.",
    ),
    Option(
        name="drop_partial",
        owner="datasets",
        kind=bool,
        default=False,
        meaning="Drop the last interval if it is incomplete (shorter than the others, or with fewer edges), as "
        "EvolveGCN does. Has no effect where cut gives the number of intervals.",
    ),
    Option(
        name="min_edges",
        owner="datasets",
        kind=int,
        default=0,
        low=0,
        high=1_000_000_000,
        unit="edges",
        meaning="Snapshots with fewer edges are dropped; 0 keeps all, including empty ones.",
    ),
    Option(
        name="features",
        owner="datasets",
        kind=str,
        default="log_degrees",
        choices=("log_degrees", "degrees", "one_hot_degree", "constant", "given"),
        meaning="Node features: weighted in- and out-degree (log(1 + d) or raw), one-hot out-degree, constant 1, or "
        "the features that the data set provides.",
    ),
    Option(
        name="generated_nodes",
        owner="datasets",
        kind=int,
        default=600,
        low=8,
        high=100_000_000,
        unit="nodes",
        meaning="Number of nodes of the generated graph.",
    ),
    Option(
        name="generated_edges",
        owner="datasets",
        kind=int,
        default=3000,
        low=8,
        high=1_000_000_000,
        unit="edges",
        meaning="Number of edges of the last generated snapshot.",
    ),
    Option(
        name="generated_snapshots",
        owner="datasets",
        kind=int,
        default=50,
        low=4,
        high=100_000,
        unit="snapshots",
        meaning="Number of base intervals of a generated graph, or of a static graph made dynamic.",
    ),
    Option(
        name="growth",
        owner="datasets",
        kind=float,
        default=10.0,
        low=1.0,
        high=1000.0,
        meaning="Ratio of the edges of the last generated snapshot to those of the first.",
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
        meaning="Share of edges that each generated snapshot replaces.",
    ),
    Option(
        name="zipf",
        owner="datasets",
        kind=float,
        default=0.6,
        low=0.0,
        high=4.0,
        meaning="Popularity exponent of generated targets: in-degrees have a tail of exponent 1 + 1/zipf.",
    ),
    Option(
        name="communities",
        owner="datasets",
        kind=int,
        default=3,
        low=2,
        high=1000,
        meaning="Number of communities of the generated block model.",
    ),
    Option(
        name="drift",
        owner="datasets",
        kind=float,
        default=0.02,
        low=0.0,
        high=1.0,
        meaning="Share of nodes that change their community at each generated snapshot.",
    ),
    # models
    Option(
        name="gc_layers",
        owner="models",
        kind=int,
        default=1,
        low=1,
        high=2,
        meaning="Graph convolutions before the gates of T-GCN: 1 as in PyG-Temporal, 2 as in the original paper.",
    ),
    Option(
        name="heads",
        owner="models",
        kind=int,
        default=2,
        low=1,
        high=64,
        meaning="Number of attention heads, which share the hidden width.",
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
        meaning="Number of snapshots over which the M-transform of TM-GCN averages activations (w).",
    ),
    # tasks
    Option(
        name="task",
        owner="tasks",
        kind=str,
        default="regression",
        choices=("regression", "classification", "link"),
        meaning="Prediction target: the next snapshot's log-degree (or a given value), a node's class, or the next "
        "snapshot's edges.",
    ),
    Option(
        name="link_share",
        owner="tasks",
        kind=float,
        default=0.1,
        low=1e-4,
        high=1.0,
        meaning="Share of the next snapshot's edges used as positives of link prediction (theta of ESDG).",
    ),
    Option(
        name="negatives",
        owner="tasks",
        kind=int,
        default=1,
        low=1,
        high=1000,
        meaning="Number of random non-edges per positive of link prediction.",
    ),
    Option(
        name="ranking_negatives",
        owner="tasks",
        kind=int,
        default=100,
        low=1,
        high=100_000,
        meaning="Number of non-edges against which each evaluated positive is ranked (MRR).",
    ),
    Option(
        name="link_head",
        owner="tasks",
        kind=str,
        default="concat",
        choices=("concat", "dot"),
        meaning="Score of a node pair: linear in the concatenated embeddings (ESDG), or the dot product of projected "
        "embeddings.",
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
        meaning="Number of consecutive snapshots in a group (w of DyGNeX).",
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
        meaning="Where the loss of a snapshot group or window is computed: at its last snapshot or at all of them.",
    ),
    Option(
        name="pipelined",
        owner="parallel",
        kind=bool,
        default=False,
        live="epoch",
        meaning="Process a step's groups concurrently, with the activations of all of them in memory, as BLAD does.",
    ),
    Option(
        name="halo_reuse",
        owner="parallel",
        kind=bool,
        default=False,
        live="epoch",
        meaning="Exchange the halo rows of input features once and cache them, instead of exchanging them in every "
        "step.",
    ),
    Option(
        name="blocks",
        owner="parallel",
        kind=int,
        default=1,
        low=0,
        high=100_000,
        live="epoch",
        meaning="Number of time blocks for gradient checkpointing (nb of ESDG). Activations are kept for one block "
        "only; for the others the boundary state is stored and the block is recomputed in the backward pass. 0 uses "
        "the fewest blocks that fit in memory_gib.",
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
        meaning="Memory limit per rank for a step's activations and states, where blocks is 0.",
    ),
    Option(
        name="overlap",
        owner="parallel",
        kind=bool,
        default=True,
        live="epoch",
        meaning="Send the rows of each snapshot while the next one is computed, instead of all at once at the end.",
    ),
    Option(
        name="graphs",
        owner="parallel",
        kind=str,
        default="brought",
        choices=("brought", "kept"),
        live="epoch",
        meaning="With several time blocks: whether the graphs of each block are transferred to the device whenever "
        "the block is computed (as in ESDG), or all graphs stay there, which uses more memory and less time. Ranks "
        "that split snapshots by rows always keep them.",
    ),
    Option(
        name="difference",
        owner="parallel",
        kind=bool,
        default=True,
        live="epoch",
        meaning="Transfer each snapshot as a delta from the previous one instead of in full.",
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
        meaning="Number of ranks that split each snapshot by rows; it must divide the number of ranks. 1 keeps a "
        "snapshot on one rank.",
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
        meaning="Host memory limit for the parts together with their replicated neighbours.",
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
        meaning="How nodes are assigned to parts.",
    ),
    Option(
        name="dealing",
        owner="partition",
        kind=str,
        default="boustrophedon",
        choices=("boustrophedon", "plain"),
        live="epoch",
        meaning="Order in which load_aware assigns nodes sorted by load to parts: alternately 1..P and P..1, or "
        "always 1..P.",
    ),
    Option(
        name="imbalance",
        owner="partition",
        kind=float,
        default=0.03,
        low=0.0,
        high=10.0,
        live="epoch",
        meaning="Tolerated imbalance of metis and hypergraph: how far a part may exceed the mean, as a share of it.",
    ),
    Option(
        name="partition_file",
        owner="partition",
        kind=str,
        default="",
        live="epoch",
        meaning="File read by partitioner 'file', as written by save() of a partition.",
    ),
    # scheduling
    Option(
        name="scheduler",
        owner="scheduling",
        kind=str,
        default="round_robin",
        live="epoch",
        choices=names("scheduling"),
        meaning="How snapshot groups are assigned to parts and iterations.",
    ),
    Option(
        name="group_times",
        owner="scheduling",
        kind=str,
        default="profile",
        choices=("profile", "linear", "size"),
        live="epoch",
        meaning="Cost of a group used for scheduling: the median over profiled epochs, a linear model of nodes and "
        "edges fitted to a few timed groups, or the number of nodes plus edges.",
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
        meaning="Number of epochs in which every group is timed; the first is discarded if there are several.",
    ),
    Option(
        name="schedule_gap",
        owner="scheduling",
        kind=float,
        default=0.02,
        low=0.0,
        high=10.0,
        live="epoch",
        meaning="Optimality gap at which dygnex_ilp may stop, relative to the bound.",
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
        meaning="Time limit of the scheduler's search.",
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
        meaning="Maximum number of targets that DyGNeX-G tries per iteration. 0 tries all if that is estimated to "
        "take about a second, else as many as fit in a second.",
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
        meaning="Maximum number of groups that a part computes between two gradient exchanges.",
    ),
    # training
    Option(
        name="optimizer",
        owner="training",
        kind=str,
        default="adam",
        choices=("adam", "sgd"),
        meaning="Optimiser.",
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
        meaning="Backend of sparse matrix products; auto chooses by device and edge weights, as measured.",
    ),
    Option(
        name="norm",
        owner="training",
        kind=str,
        default="in",
        choices=("in", "in_out"),
        meaning="Normalisation of graph convolutions. in: 1/sqrt(1 + in-degree) on both sides. in_out: "
        "1/sqrt(in-degree of the target x out-degree of the source), as in FlareDTDG's code.",
    ),
    Option(
        name="self_loops",
        owner="training",
        kind=bool,
        default=True,
        meaning="Whether graph convolutions add self-loops.",
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
        meaning="Epochs between two evaluations on the training and validation splits.",
    ),
    Option(
        name="checkpoint_every_s",
        owner="training",
        kind=float,
        default=2.0,
        low=0.0,
        high=86_400.0,
        unit="s",
        meaning="Minimum time between checkpoints. They are taken between steps; for stateful systems, only where no "
        "hidden state is carried over.",
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
        meaning="Epochs between two checkpoints that are kept in addition to the last one, for forking; 0 keeps none.",
    ),
    Option(
        name="slow_rank",
        owner="training",
        kind=int,
        default=-1,
        low=-1,
        high=4095,
        live="step",
        meaning="Rank that is slowed down artificially, to study stragglers; -1 means none.",
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
        meaning="Time that the slowed rank sleeps in the compute phase of every step.",
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
        meaning="Assumed power of a node whose processors are idle; used for modelled energy only.",
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
        meaning="Assumed power of a node with all processor cores busy; used for modelled energy only.",
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
        meaning="Assumed power of an idle GPU, where NVML cannot read it.",
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
        meaning="Assumed power of a busy GPU, where NVML cannot read it; 0 leaves it unknown.",
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
    Option(name="seed", owner="run", kind=int, default=0, low=0, high=2**53, meaning="Seed of all random streams."),
    Option(
        name="ranks",
        owner="run",
        kind=int,
        default=1,
        low=1,
        high=4096,
        unit="processes",
        meaning="Number of training processes (R).",
    ),
    Option(
        name="parts",
        owner="run",
        kind=int,
        default=0,
        low=0,
        high=65_536,
        live="epoch",
        meaning="Number of parts that the nodes or groups are assigned to (P), a multiple of the ranks. 0 uses the "
        "number of ranks (2 for one rank where features are fetched).",
    ),
    Option(name="hidden", owner="run", kind=int, default=32, low=1, high=65_536, meaning="Width of hidden layers (H)."),
    Option(name="layers", owner="run", kind=int, default=1, low=1, high=64, meaning="Number of layers of the model."),
    Option(
        name="learning_rate",
        owner="run",
        kind=float,
        default=1e-3,
        low=0.0,
        high=100.0,
        live="step",
        meaning="Learning rate of the optimiser.",
    ),
    Option(
        name="threads",
        owner="run",
        kind=int,
        default=0,
        low=0,
        high=1024,
        unit="threads",
        meaning="Threads per rank; 0 divides the machine's cores among its ranks.",
    ),
    Option(
        name="device",
        owner="run",
        kind=str,
        default="auto",
        choices=("auto", "cpu", "cuda"),
        meaning="Device that ranks compute on; auto uses one GPU per rank if there are enough, else the CPU.",
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


# kind -> the option that names its entry
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

    A data set with its own features keeps them under every protocol.

    Raises:
        UnknownNameError: one of the names is unknown.
    """
    chosen = catalogue.system(system)
    sources = [PROTOCOLS[protocol].settings]
    if not dataset.startswith(catalogue.STORED):
        own = catalogue.entry("datasets", dataset).defaults
        sources.insert(0 if name == "features" and own.get(name) == "given" else 1, own)
    own_parts = {option: chosen.parts[kind] for kind, option in CHOSEN_BY.items() if kind in chosen.parts}
    sources.append({**chosen.defaults, **own_parts})
    for settings in sources:
        if name in settings:
            return settings[name]
    return option(name).default


# The settings of a system, listed.

TAKES_EFFECT = {"step": "next step", "epoch": "next epoch", "no": "new run"}
_EVERY_RUN = ("epochs", "ranks", "seed", "parts", "hidden", "layers", "learning_rate", "device", "threads")


@dataclass(frozen=True, repr=False)
class OptionList:
    """The settings that apply to a system.

    Attributes:
        system: its name.
        rows: for each setting its name, meaning, unit, allowed values, default, and when a change takes effect.
    """

    system: str
    rows: tuple[dict[str, Any], ...]

    def to_pandas(self) -> pd.DataFrame:
        """One row per setting."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    def __str__(self) -> str:
        lines = [f"{len(self.rows)} settings of system {self.system}: default; allowed; when a change takes effect"]
        for row in self.rows:
            unit = f" {row['unit']}" if row["unit"] else ""
            lines.append(f"{row['name']} = {row['default']!r}{unit}; {row['allowed']}; {row['takes_effect']}")
            lines.append(f"    {row['meaning']}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        import pandas as pd

        table = self.to_pandas()
        table["default"] = table["default"].map(repr)
        with pd.option_context("display.max_colwidth", None):  # meanings are not cut
            return str(table.to_html(index=False))


def options(system: str, *, dataset: str = "collegemsg", model: str = "tgcn") -> OptionList:
    """The settings that apply to a system, with their defaults under the protocol ``warm``.

    Args:
        system: its name.
        dataset: whose own settings and defaults are included.
        model: whose own settings are included.

    Raises:
        UnknownNameError: there is no such system, data set or model.
    """
    owners = catalogue.option_owners(system, dataset, model)
    rows = []
    for name in dict.fromkeys((*_EVERY_RUN, *(name for group in owners.values() for name in group))):
        of = option(name)
        rows.append(
            {
                "name": name,
                "meaning": of.meaning,
                "unit": of.unit,
                "allowed": of.allowed.removesuffix(f" ({of.unit})"),
                "default": default(name, system=system, dataset=dataset, protocol="warm"),
                "takes_effect": TAKES_EFFECT[of.live],
            }
        )
    return OptionList(system, tuple(rows))
