"""Runs made of records with known numbers, written through RecordWriter as a training rank would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dtdg_lab.config.record_tables import PHASES, TABLES
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.record_writer import RecordWriter

START_NS = 1_700_000_000_000_000_000
STEP_NS = 20_000_000
STEPS_PER_EPOCH = 5
# Milliseconds a step by phase; rank 1 computes longer, rank 0 waits for it. Own time: 10 ms and 15 ms.
PHASE_MS = {
    0: {"batch": 1.0, "transfer": 1.0, "compute": 8.0, "wait": 5.0, "communicate": 2.0, "update": 2.0, "control": 1.0},
    1: {"batch": 1.0, "transfer": 1.0, "compute": 13.0, "wait": 0.0, "communicate": 2.0, "update": 2.0, "control": 1.0},
}

COUNTED = {"groups": 1, "vertex_snapshots": 400, "bytes_sent": 1000, "bytes_received": 1000, "control_version": 0}
EACH_STEP = {"time_s": 0.02, "cpu_s": 0.012, "energy_j": 0.5, "energy_source": "modelled", **COUNTED}
MODEL = {"reader": "model", "source": "modelled", "scope": "rank", "device": "processor", "node": "a"}
EACH_READING = {"interval_s": 0.02, "joules": 0.4, "watts": 20.0, "cpu_s": 0.012, **MODEL}


def row(table: str, **values: Any) -> tuple[Any, ...]:
    """A row of a table; columns not given are None."""
    assert not values.keys() - set(TABLES[table])
    return tuple(values.get(column) for column in TABLES[table])


def write_steps(writer: RecordWriter, first: int, last: int, *, attempt_ns: int = 0) -> None:
    """Steps ``first`` .. ``last - 1`` of one rank, with phases and the event of each epoch that ends."""
    phase_ms = PHASE_MS[writer.rank]
    for step in range(first, last):
        begin = START_NS + attempt_ns + step * STEP_NS
        epoch, iteration = divmod(step, STEPS_PER_EPOCH)
        losses = {"loss": 2 / (step + 1), "global_loss": 2.5 / (step + 1)}
        seconds = {f"{phase}_s": phase_ms[phase] / 1e3 for phase in PHASES}
        at_step = {"step": step, "epoch": epoch, "iteration": iteration, "time_ns": begin + STEP_NS}
        writer.row("steps", row("steps", **at_step, **losses, **seconds, **EACH_STEP))
        at = begin
        for phase in PHASES:
            end = at + int(phase_ms[phase] * 1e6)
            writer.row("phases", (step, epoch, phase, at, end))
            at = end
        if iteration == STEPS_PER_EPOCH - 1:
            writer.row("events", (step + 1, epoch, begin + STEP_NS, "epoch", {"epoch": epoch, "time_s": 0.11}))


def evaluate(
    writer: RecordWriter,
    step: int,
    split: str,
    loss: float,
    persistence: float,
    *,
    later_ns: int = 0,
    metrics: dict[str, Any] | None = None,
) -> None:
    """One evaluation before ``step``."""
    time_ns = START_NS + step * STEP_NS + later_ns
    writer.row(
        "evaluations", (step, (step - 1) // STEPS_PER_EPOCH, time_ns, split, loss, persistence, 4.0, 10, metrics)
    )


def finished_run(root: Path, *, epochs: int = 3, **settings: Any) -> RunDirectory:
    """Two ranks, some epochs, a knob change at step 7, everything known; not yet brought to its final form."""
    config = RunConfig(**{"system": "psg", "dataset": "growing", "ranks": 2, "epochs": epochs, **settings})
    run = RunDirectory.create(config, root=root)
    steps = epochs * STEPS_PER_EPOCH
    for rank in (0, 1):
        with RecordWriter(run.record_file(rank), rank, 1) as writer:
            if rank == 0:
                described = {"ranks": 2, "attempt": 1, "dataset": "growing", "source": "made by the generator"}
                writer.row("events", (0, 0, START_NS, "started", described))
            write_steps(writer, 0, 7)
            knob = {"version": 1, "changes": {"learning_rate": 0.003}, "when": "step"}
            writer.row("events", (7, 1, START_NS + 7 * STEP_NS, "settings", knob))
            write_steps(writer, 7, steps)
            writer.row("memory", (3, START_NS, 10_000 + rank, 20_000 + rank, 5_000 + rank))
            for number in range(steps):
                writer.row("energy", row("energy", time_ns=START_NS + (number + 1) * STEP_NS, **EACH_READING))
            if rank == 0:
                for epoch in range(1, epochs + 1):
                    step = epoch * STEPS_PER_EPOCH
                    evaluate(writer, step, "train", 1.5 / epoch, 1.2)
                    evaluate(writer, step, "validation", 1.8 / epoch, 1.0)
                evaluate(writer, steps, "test", 0.75, 1.25)
                writer.row("events", (steps, epochs - 1, START_NS + steps * STEP_NS, "finished", {}))
    return run
