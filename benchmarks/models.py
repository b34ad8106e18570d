"""Seconds and memory of a full-batch training epoch: this lab, PyG-Temporal and plain ports of the papers.

    python benchmarks/models.py [--quick] [--json FILE] [--keep] [--only NAME ...] [--workloads W1 W2] [--threads N]
        [--alone] [--device cuda]

One epoch is forward and backward over all snapshots and one Adam step; hidden width 32. Each contender runs in its
own process with the same parameters. Epochs alternate, so that other load affects all, and the ratio is the peer's
time over the lab's, pair by pair (above 1: the lab is faster). The floor is the epoch's matrix products alone
(:mod:`peers.floor`), and ``over_floor`` the lab's time over theirs. Memory is the peak of resident memory, on a GPU
of its allocator, beyond that after import and loading. Losses are compared before each step. Not yet run on a GPU.
``--alone`` leaves out the peers; its rows are kept as part ``alone``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WARM_UPS = 2
EPOCHS = {"W0": 7, "W1": 5, "W2": 3}
LOSS_TOLERANCE = 2e-4  # relative, over a few steps of Adam in single precision


# in a child: one contender


def resident_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}; this benchmark reads memory on Linux only")


def memory_bytes(device: str, *, peak: bool) -> int:
    """Bytes that this process holds, or has held at most: resident ones, or those of a GPU's allocator."""
    if device == "cpu":
        return resident_bytes("VmHWM" if peak else "VmRSS")
    import torch

    return torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()


def serve(contender: str, case_name: str, workload_name: str, folder: str, *, threads: int, device: str) -> None:
    """Load, say so, then run an epoch whenever a line comes in; the end of lines ends it."""
    import importlib

    import torch
    from peers.case import CASES
    from peers.workload import Workload
    from result_files import finish

    torch.set_num_threads(threads)
    case = next(case for case in CASES if case.name == case_name)
    name, *options = contender.split(":")
    module = importlib.import_module(f"peers.{name.replace('-', '_')}")
    data = module.load(Workload.load(workload_name, Path(folder)))
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to what is held now
    held = memory_bytes(device, peak=False)
    epoch = module.prepare(case, data, *options, device=device)
    for _ in sys.stdin:
        began = time.perf_counter()
        loss = epoch()
        finish(device)
        seconds = time.perf_counter() - began
        peak_bytes = memory_bytes(device, peak=True) - held
        answer = {"seconds": seconds, "loss": loss, "peak_bytes": peak_bytes, "held_bytes": held}
        print(json.dumps(answer), flush=True)


# in the parent: the comparison


class Contender:
    """A child process that runs an epoch on request.

    Args:
        name: of a module of peers, and after a colon what its ``prepare`` is given more.
        case: of ``CASES``.
        workload: its name.
        folder: where it lies.
        threads: of torch.
        device: ``cpu`` or ``cuda``.
    """

    def __init__(self, name: str, case: str, workload: str, folder: Path, *, threads: int, device: str = "cpu") -> None:
        command = [sys.executable, __file__, "--serve", name, case, workload, str(folder), str(threads), device]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.epochs: list[dict[str, float]] = []

    def run(self) -> bool:
        """One more epoch; False where the process has died (out of memory, most likely)."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write("epoch\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return False
        line = self._process.stdout.readline()
        if line:
            self.epochs.append(json.loads(line))
        return bool(line)

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


def compare(
    case: Any, workload: str, folder: Path, *, threads: int, alone: bool = False, device: str = "cpu"
) -> dict[str, Any]:
    """Times, ratios, losses and memory of a row, without the peer if alone; ``failed`` names a contender that died."""
    row: dict[str, Any] = {"case": case.name, "workload": workload}
    if not alone:
        row |= {"peer": case.peer, "target": case.target.get(workload)}
    contenders = {
        name: Contender(name, case.name, workload, folder, threads=threads, device=device)
        for name in ("lab", "floor", *(() if alone else (case.peer,)))
    }
    try:
        for _ in range(WARM_UPS + EPOCHS[workload]):
            for name, contender in contenders.items():
                if not contender.run():
                    return {**row, "failed": f"{name} died (out of memory?)"}
    finally:
        for contender in contenders.values():
            contender.close()
    lab, floor, *peers = (contender.epochs for contender in contenders.values())
    lab_s, floor_s = ([epoch["seconds"] for epoch in epochs[WARM_UPS:]] for epochs in (lab, floor))
    row |= {
        "lab_s": statistics.median(lab_s),
        "floor_s": statistics.median(floor_s),
        "over_floor": spread_of_ratios(lab_s, floor_s),
        "lab_bytes": lab[-1]["peak_bytes"],
        "lab_held_bytes": lab[-1]["held_bytes"],
        "loss_first": lab[0]["loss"],
        "epochs": len(lab_s),
    }
    return row | _beside(lab, peers[0]) if peers else row


def _beside(lab: Sequence[dict[str, float]], peer: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Return what a row says of the peer."""
    lab_s, peer_s = ([epoch["seconds"] for epoch in epochs[WARM_UPS:]] for epochs in (lab, peer))
    apart = max(abs(a["loss"] - b["loss"]) / abs(b["loss"]) for a, b in zip(lab, peer, strict=True))
    return {
        "peer_s": statistics.median(peer_s),
        "ratio": spread_of_ratios(peer_s, lab_s),
        "peer_bytes": peer[-1]["peak_bytes"],
        "peer_held_bytes": peer[-1]["held_bytes"],
        "loss_apart": apart,
        "equal_losses": apart <= LOSS_TOLERANCE,
    }


def spread_of_ratios(over: Sequence[float], under: Sequence[float]) -> tuple[float, float, float]:
    """Minimum, median and maximum of the ratios, epoch by epoch."""
    ratios = sorted(a / b for a, b in zip(over, under, strict=True))
    return ratios[0], statistics.median(ratios), ratios[-1]


HEAD = (
    f"{'graph':5} {'model':12} {'peer':13} {'lab s':>8} {'peer s':>8}  {'ratio min, median, max':23} {'target':>6}  "
    f"{'floor s':>8} {'over':>5}  "
    f"{'lab MB':>7} {'peer MB':>8} {'share':>6}  equal losses"
)


def as_text(row: dict[str, Any]) -> str:
    begin = f"{row['workload']:5} {row['case']:12} {row.get('peer', 'alone'):13} "
    if "failed" in row:
        return begin + row["failed"]
    floor = f"{row['floor_s']:8.3f} {row['over_floor'][1]:5.2f}"
    if "peer" not in row:
        return f"{begin}{row['lab_s']:8.3f} {'-':>8}  {'-':23} {'-':>6}  {floor}  {row['lab_bytes'] / 1e6:7.0f}"
    ratios = " ".join(f"{ratio:.1f}" for ratio in row["ratio"])
    memory = f"{row['lab_bytes'] / 1e6:7.0f} {row['peer_bytes'] / 1e6:8.0f} {row['lab_bytes'] / row['peer_bytes']:6.2f}"
    same = f"{'yes' if row['equal_losses'] else 'NO'} ({row['loss_apart']:.0e})"
    target = f"{row['target']:.1f}" if row["target"] else "-"
    return f"{begin}{row['lab_s']:8.3f} {row['peer_s']:8.3f}  {ratios:23} {target:>6}  {floor}  {memory}  {same}"


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    import result_files

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the small graph W0 only: under a minute")
    result_files.add_arguments(parser)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="rows to run, by model")
    parser.add_argument(
        "--workloads", nargs="+", default=["W1", "W2"], metavar="NAME", help="W0, W1, W2 (default W1 W2)"
    )
    parser.add_argument("--alone", action="store_true", help="this lab and the floor, without peers")
    parser.add_argument("--threads", type=int, default=2, help="threads of each contender (default 2)")
    chosen = parser.parse_args(given)
    result_files.parts_on(parser, chosen.device, on_gpu=("rows",))
    return chosen


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:6], threads=int(sys.argv[6]), device=sys.argv[7])
        return 0
    import result_files
    from peers import pyg_temporal
    from peers.case import CASES
    from peers.workload import make

    given = arguments()
    names = given.only or [case.name for case in CASES]
    unknown = set(names) - {case.name for case in CASES}
    if unknown:
        print(f"no row is called {', '.join(sorted(unknown))}; rows: {', '.join(case.name for case in CASES)}")
        return 2
    machine = result_files.machine(threads=given.threads)
    print(f"seconds per full-batch epoch, {result_files.device_name(given.device)}, float32; {machine}\n{HEAD}")
    rows = []
    for name in ["W0"] if given.quick else given.workloads:
        with tempfile.TemporaryDirectory() as folder:
            make(name).save(Path(folder))
            for case in (case for case in CASES if case.name in names):
                if case.peer == "pyg-temporal" and not (given.alone or pyg_temporal.is_installed()):
                    rows.append({"case": case.name, "workload": name, "peer": case.peer, "failed": "not installed"})
                else:
                    options = {"threads": given.threads, "alone": given.alone, "device": given.device}
                    rows.append(compare(case, name, Path(folder), **options))
                print(as_text(rows[-1]), flush=True)
    result_files.write(given, machine, {"alone" if given.alone else "rows": rows})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
