"""The options of features that are fetched: batches, caches, and links made slow on purpose."""

from __future__ import annotations

from dtdg_lab.core.catalogue import names
from dtdg_lab.core.option import Option

SAMPLING: tuple[Option, ...] = (
    Option(
        name="batch_size", owner="batching", kind=int, default=512, low=1, high=100_000_000, unit="vertices",
        live="epoch", meaning="Vertices whose loss a step of a part takes; neighbours are sampled around them.",
    ),
    Option(
        name="batch_length", owner="batching", kind=int, default=1, low=1, high=100_000, unit="snapshots", live="epoch",
        meaning="Consecutive snapshots of a batch; from state zero. 1 serves graphs that stay as they are.",
    ),
    Option(
        name="fanouts", owner="batching", kind=str, default="10 25", live="epoch",
        meaning="Most in-neighbours sampled of a vertex for each layer, the first layer first; the last number holds "
        "for further layers.",
    ),
    Option(
        name="sampler", owner="batching", kind=str, default="own", choices=("own", "dgl"), live="epoch",
        meaning="What samples neighbours: draws that vertex, step and seed alone decide, or DGL's sampler, whose draws "
        "repeat on one thread only.",
    ),
)  # fmt: skip

CACHING: tuple[Option, ...] = (
    Option(
        name="cache_policy", owner="features", kind=str, default="fixed", choices=names("features"), live="step",
        meaning="How a batch's remote features come: on demand, ahead of time, or out of a cache, and what decides "
        "when it is rebuilt.",
    ),
    Option(
        name="cache_window", owner="features", kind=int, default=16, low=1, high=100_000, unit="steps", live="step",
        meaning="Steps between two rebuilds of the cache (W): always, for policy fixed; of quiet links, for threshold; "
        "of the first window, for those that choose.",
    ),
    Option(
        name="cache_bias", owner="features", kind=int, default=-1, low=-1, high=65_535, unit="part", live="step",
        meaning="Part whose rows get 60 % of the cache under policy fixed; -1: all other parts get as much.",
    ),
    Option(
        name="cache_rows", owner="features", kind=int, default=100_000, low=1, high=1_000_000_000, unit="rows",
        live="epoch", meaning="Most rows of other parts' features that a part's cache holds.",
    ),
    Option(
        name="queue_depth", owner="features", kind=int, default=4, low=1, high=1000, unit="batches", live="epoch",
        meaning="Batches with their features that may wait for training (Q).",
    ),
    Option(
        name="fetch_timeout_s", owner="features", kind=float, default=10.0, low=0.1, high=3600.0, unit="s",
        live="epoch", meaning="Time after which an owner that does not answer is given up, and the run with it.",
    ),
    Option(
        name="policy_file", owner="features", kind=str, default="", live="epoch",
        meaning="File of a trained policy for double_dqn, as train-policy writes it; empty takes the shipped one.",
    ),
)  # fmt: skip

CONGESTING: tuple[Option, ...] = (
    Option(
        name="congestion", owner="congestion", kind=str, default="none", choices=names("congestion"), live="step",
        meaning="Which links are made slow, and when.",
    ),
    Option(
        name="links", owner="congestion", kind=str, default="", live="step",
        meaning="Links made slow by hand beside the pattern: 'OWNER>REQUESTER delay=MS rate=MBIT; ...', parts by "
        "number or *; without a requester, all of an owner's.",
    ),
    Option(
        name="congestion_ms", owner="congestion", kind=float, default=20.0, low=0.0, high=10_000.0, unit="ms",
        live="step", meaning="Delay that a pattern adds to every reply over a congested link.",
    ),
    Option(
        name="congestion_mbit", owner="congestion", kind=float, default=0.0, low=0.0, high=1e7, unit="Mbit/s",
        live="step", meaning="Rate of a congested link in a pattern; 0 does not limit it.",
    ),
    Option(
        name="congestion_from", owner="congestion", kind=int, default=3, low=0, high=1_000_000, unit="epochs",
        live="epoch", meaning="Epochs without congestion at the beginning, in which latencies without it are learnt.",
    ),
    Option(
        name="congestion_cycle", owner="congestion", kind=int, default=7, low=1, high=1_000_000, unit="epochs",
        live="epoch", meaning="Epochs after which a pattern begins anew.",
    ),
    Option(
        name="congestion_table", owner="congestion", kind=str, default="", live="epoch",
        meaning="Epochs of the schedule's cycle: 'OWNERS:MS' with '+' between owners, '-' for an epoch without, such "
        "as '1:15 1+2:25 -'; empty makes one by the seed.",
    ),
    Option(
        name="congestion_file", owner="congestion", kind=str, default="", live="epoch",
        meaning="Trace that pattern recorded repeats: JSON lines of epoch, share, delay_ms and mbit.",
    ),
    Option(
        name="congestion_by", owner="congestion", kind=str, default="emulated", choices=("emulated", "netem"),
        live="epoch",
        meaning="What makes links slow: the process that serves features, when it replies, or Linux' traffic control, "
        "which needs the right to change it and all parts on this machine.",
    ),
)  # fmt: skip

FEATURE_OPTIONS = (*SAMPLING, *CACHING, *CONGESTING)
