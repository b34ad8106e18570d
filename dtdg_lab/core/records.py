"""Record tables: what each rank writes, one narrow table per kind of fact.

A rank writes lines of JSON, each ``{"v", "rank", "attempt", "seq", "table", "columns", "rows"}``: rows of one table
with the names of their columns, so that readers keep columns they do not know. Rank and attempt (how many times the
run was started, from 1) hold for all rows of a line. Times ending in ``_ns`` are nanoseconds since 1970-01-01.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SCHEMA = 1

MAX_CONTROL_VERSION = 2**24 - 1  # the version rides in a float32 slot, which holds every integer up to here exactly

PHASES = ("batch", "transfer", "compute", "wait", "communicate", "update", "control")
BETWEEN_STEPS = ("evaluate", "checkpoint", "rebuild")  # rows of `phases` that belong to no step's sum

STEPS = (
    "step", "epoch", "iteration", "time_ns", "time_s", "loss", "global_loss", "groups", "vertex_snapshots",
    "batch_s", "transfer_s", "compute_s", "wait_s", "communicate_s", "update_s", "control_s", "cpu_s",
    "bytes_sent", "bytes_received", "energy_j", "energy_source", "control_version",
)  # fmt: skip

TABLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "steps": STEPS,
        "phases": ("step", "epoch", "phase", "start_ns", "end_ns"),
        "evaluations": (
            "step", "epoch", "time_ns", "split", "loss", "persistence_loss", "mean_loss", "snapshots", "metrics",
        ),
        "events": ("step", "epoch", "time_ns", "kind", "data"),
        "memory": ("step", "time_ns", "rss_bytes", "peak_rss_bytes", "peak_bytes"),
        "energy": (
            "time_ns", "interval_s", "joules", "watts", "cpu_s", "reader", "source", "scope", "device", "node",
        ),
        "links": ("step", "epoch", "layer", "way", "to", "rows", "bytes"),
        "groups": ("step", "epoch", "group", "start_ns", "end_ns", "cpu_s"),
        "exchanges": ("step", "epoch", "layer", "way", "leg", "exchanges", "in_flight_s", "exposed_s"),
        "transfers": ("step", "epoch", "snapshots", "bytes", "whole_bytes"),
        "batches": ("step", "epoch", "target", "first", "full", "chunks", "rows", "edges", "shrink_s"),
        "tasks": ("step", "epoch", "layer", "snapshot", "kind", "predicted_s", "took_s"),
        "targets": (
            "step", "epoch", "part", "action", "index", "source", "first", "snapshots", "targets", "rows", "edges",
            "built_s", "map",
        ),
        "reservoir": (
            "step", "epoch", "time_ns", "part", "action", "held", "capacity", "bytes", "made", "busy_s", "distinct",
        ),
        "rounds": (
            "step", "epoch", "number", "joined_step", "applied_step", "weight", "version", "choice", "gathered",
        ),
        "resolved": (
            "step", "epoch", "part", "window", "remote", "hits", "misses", "rpcs", "bytes", "resolve_s", "wait_s",
        ),
        "fetches": ("step", "epoch", "part", "owner", "purpose", "rows", "bytes", "rtt_s"),
        "windows": (
            "step", "epoch", "part", "number", "first", "length", "late_steps", "policy", "action", "biased",
            "capacity", "held", "copied", "fetched", "by_owner", "rebuild_s", "exposed_s",
        ),
        "cache_decisions": (
            "step", "epoch", "part", "policy", "state", "values", "action", "window", "biased", "epsilon", "greedy",
            "reward", "delays_ms", "forecast_ms", "covered", "early",
        ),
        "phase_energy": ("step", "epoch", "time_ns", "phase", "joules", "seconds", "source", "coverage"),
        "decisions": ("step", "epoch", "policy", "state", "values", "action", "reward"),
    }
)  # fmt: skip

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "step": "updates of the model before this row, from 0, through all epochs",
        "time_s": "wall-clock seconds of the step; its phases sum to it",
        "loss": "mean loss of the groups this rank computed; empty where it had none",
        "global_loss": "mean loss of all groups of the step, the same on every rank; the rank's own where ranks "
        "average models; empty where no batch had a label",
        "vertex_snapshots": "vertices times snapshots this rank ran forward and backward",
        "wait_s": "from this rank's arrival at the exchange to the last rank's",
        "communicate_s": "from the last rank's arrival at the exchange to its end",
        "cpu_s": "processor seconds of this process in the step; in `groups`, of the group",
        "energy_j": "joules attributed to this rank; empty where unknown, never 0",
        "energy_source": "counter, polled or modelled",
        "metrics": "other scores of the task by name, those of persistence under persistence_<name>; empty where "
        "the run was recorded before there were any",
        "scope": "rank, or node where the reader sees the whole machine",
        "device": "processor or gpu; a row without joules is of one that this rank neither reads nor models",
        "node": "the machine, by a number of its boot",
        "layer": "layer of the model whose pulls exchange the rows, from 0",
        "way": "forward; rerun, where a block of time is computed again; or backward: gradients of rows that were "
        "received go back to their owner",
        "leg": "to_vertices, to_snapshots: a redistribution; summaries: all-gathered, of EvolveGCN-H",
        "exchanges": "collectives of a layer, way and leg in the step",
        "in_flight_s": "seconds in which at least one of them was between its start and its end on this rank",
        "exposed_s": "of this, what the rank stood still for; the rest was hidden behind its own computing; in "
        "`windows`, of a cache made while training stood still: the first one's",
        "snapshots": "in `evaluations`, those scored; in `transfers`, graphs brought to the device",
        "whole_bytes": "what their arrays take, brought each whole",
        "to": "rank the rows were sent to; the rank of the line sent them",
        "rows": "rows of vertices sent in the step, of this layer and way; in `batches`, the rank's rows of all "
        "snapshots of the batch, copies of neighbours among them",
        "bytes": "bytes of these rows; what else the ranks exchange (gradients of the model, control) is not in it",
        "target": "snapshot whose loss the step took, the newest of the batch",
        "first": "oldest snapshot of the batch",
        "full": "how many of the newest snapshots were whole",
        "chunks": "chunks of each part that each snapshot kept, oldest first; empty where it was whole",
        "edges": "edges along which the rank pulled in the batch's decayed snapshots, or that were drawn for it",
        "shrink_s": "seconds of taking the decayed snapshots' edges, or of dealing parts and drawing neighbours",
        "kind": "in `tasks`: compute, a stretch of a snapshot's spatial part between pulls; communicate, the exchange "
        "of a pull; in `events`, what happened",
        "predicted_s": "what a task was predicted to take, by a predictor that had not seen it",
        "took_s": "what it took",
        "policy": "what decided: greedy, for full_snapshots and alpha; random, bandit or dqn, for sizes of batches",
        "state": "settings before the decision; for sizes of batches, what was seen since the last one",
        "values": "what each choice was thought to be worth: for greedy, validation losses; Q-values or mean rewards",
        "action": "the choice made; in `targets` and `reservoir`, the number of the size of a batch",
        "reward": "what it gained by these values; 0 where nothing was changed; for sizes of batches, of the last one",
        "part": "number of the part of vertices, from 0",
        "index": "number of the batch among those of its part and size",
        "source": "where the batch came from: reservoir; new, built in the step; snapshot, all vertices stand in",
        "built_s": "seconds that building it took, whoever did it",
        "map": "targets in each sixtieth of the part's vertices, the largest load first; a few times a second",
        "targets": "vertices of which the batch's loss is taken, in each of its snapshots",
        "held": "batches of a part and size in the reservoir",
        "capacity": "most of them that it holds",
        "distinct": "of those held, how many differ in their targets or snapshots",
        "made": "batches generated so far",
        "busy_s": "processor seconds of their generator so far",
        "number": "of a round of averaging, from 1",
        "joined_step": "steps this rank had made when it gave its model",
        "applied_step": "steps it had made when it took the mean; the difference is how stale the mean was",
        "weight": "of the rank in the mean: its steps since the round before; in round 0, which ends all, its share of "
        "the trained vertices",
        "gathered": "whether the mean came while this rank waited for the others to finish",
        "choice": "size of batches that rank 0 asked for in the round, from 0; plus 1,024 for each change of sizes",
        "window": "in `resolved`, number of the cache that served, from 0; -1 where there is none; in "
        "`cache_decisions`, steps until the next rebuild (W)",
        "remote": "distinct rows of other parts' features that a batch reads",
        "hits": "of these, how many the cache had, by owner",
        "misses": "and how many it had not, by owner",
        "rpcs": "remote procedure calls for what was missing: one for each owner asked",
        "resolve_s": "seconds in which the rows of a batch were put together, misses fetched",
        "owner": "part that was asked",
        "purpose": "miss, for a batch; bulk, for a cache; probe, to time one (in no sum but its own)",
        "rtt_s": "seconds from asking to the last byte",
        "length": "steps that a cache was made for (W)",
        "late_steps": "steps that training went on with the old cache because the new one was not ready",
        "biased": "part that gets the larger share of the cache; -1 where all get as much",
        "copied": "rows that the cache before had",
        "fetched": "rows that were fetched for it",
        "by_owner": "rows held of each part",
        "rebuild_s": "seconds that making it took, beside training",
        "epsilon": "probability with which a policy chooses at random",
        "greedy": "whether the action was the one thought best",
        "delays_ms": "delay that each other part's links were thought to have, in their order",
        "forecast_ms": "what a step was forecast to take under each action; empty where nothing forecasts",
        "covered": "batches ahead that the forecast was counted from; 0 without one",
        "early": "whether the window that served was abandoned for it, because the links had changed",
        "joules": "energy; in `phase_energy`, of this rank in a phase since the row before of that phase",
        "coverage": "share of the seconds for which energy is known",
        "phase": "of a step, or between steps; in `phase_energy`, idle is what is between steps, and stall is standing "
        "still for features, taken out of transfer",
        "seconds": "of the phase since the row before; repeated in rows of other sources of the same time",
        "group": "number of the snapshot group, from 0 in order of time; a row is one group that the rank computed",
        "peak_bytes": "highest sum of live tensor storages in a probe step, or the CUDA allocator's peak",
    }
)
