"""Rows of benchmarks/dygnex.py as lines of text."""

from __future__ import annotations

from typing import Any

EPOCH_HEAD = (
    f"{'graph':12} {'model':11} {'R':>2} {'system':10} {'it.':>4} {'epoch s':>8} {'min':>8} {'max':>8} {'by':4}  "
    f"{'ratio to psg':16} {'imbalance':>9} {'of it.':>6}  {'over bound':>10} {'predicted':>9}  {'solve s':>8}  notes"
)
SUMMARY_HEAD = (
    f"{'R':>2} {'system':10} {'rows':>4}  {'imbalance':>9} {'paper':>5} {'of it.':>6}  "
    f"{'saved of psg':>12} {'paper':>6}  {'of blad':>7} {'paper':>6}"
)
PROFILING_HEAD = (
    f"{'graph':12} {'model':11} {'R':>2} {'profiled':>8}  {'groups/s':>9} {'min':>9} {'max':>9} {'by':4}  "
    f"{'over bound min, median, max':28} {'predicted':>9}"
)
ACCURACY_HEAD = (
    f"{'graph':12} {'model':11} {'P':>2} {'system':10} {'epochs':>6} {'updates':>7}  {'train loss':>10} "
    f"{'test loss':>10} {'min':>10} {'max':>10}  {'to psg min, median, max':24} persistence; metrics"
)


def epoch_text(row: dict[str, Any]) -> str:
    start = f"{row['graph']:12} {row['model']:11} {row['ranks']:2} {row['system']:10}"
    if not row["built"]:
        return f"{start} not built"
    least, middle, most = row["epoch_s"]
    ratio = " ".join(f"{each:.2f}" for each in row["over_psg"])
    uneven = f"{row['imbalance'][1]:9.3f} {row['iteration_imbalance'][1]:6.3f}"
    schedule = f"{'-':>10} {'-':>9}  {'-':>8}"
    if "over_bound" in row:
        schedule = f"{row['over_bound']:10.3f} {row['prediction_error']:+9.1%}  {row['solve_s']:8.4f}"
    return (
        f"{start} {row['iterations']:4} {middle:8.4f} {least:8.4f} {most:8.4f} {row['clock']:4}  {ratio:16} {uneven}  "
        f"{schedule}  {row.get('notes', '')}"
    )


def _percent(value: float | None, width: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:{width}.1%}"


def summary_text(row: dict[str, Any]) -> str:
    reported = "-" if row["paper_imbalance"] is None else f"{row['paper_imbalance']:.2f}"
    return (
        f"{row['ranks']:2} {row['system']:10} {row['rows']:4}  {row['imbalance']:9.3f} {reported:>5} "
        f"{row['iteration_imbalance']:6.3f}  {_percent(row.get('saved_over_psg'), 12)} "
        f"{_percent(row.get('paper_saved_over_psg'), 6)}  {_percent(row.get('saved_over_blad'), 7)} "
        f"{_percent(row.get('paper_saved_over_blad'), 6)}"
    )


def profiling_text(row: dict[str, Any]) -> str:
    least, middle, most = row["throughput"]
    over = " ".join(f"{each:.3f}" for each in row["over_bound"])
    return (
        f"{row['graph']:12} {row['model']:11} {row['ranks']:2} {row['profile_epochs']:8}  {middle:9.1f} {least:9.1f} "
        f"{most:9.1f} {row['clock']:4}  {over:28} {row['error'][1]:+9.1%}"
    )


def accuracy_text(row: dict[str, Any]) -> str:
    least, middle, most = row["test_loss"]
    apart = " ".join(f"{each:+.1%}" for each in row["apart_from_psg"])
    metrics = " ".join(f"{name} {values[1]:.3f}" for name, values in row["metrics"].items())
    persistence = "-" if row["persistence_loss"] is None else f"{row['persistence_loss']:.4f}"
    return (
        f"{row['graph']:12} {row['model']:11} {row['parts']:2} {row['system']:10} {row['epochs']:6} "
        f"{row['updates']:7}  {row['train_loss'][1]:10.5f} {middle:10.5f} {least:10.5f} {most:10.5f}  {apart:24} "
        f"{persistence}; {metrics}"
    )
