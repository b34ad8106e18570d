"""What benchmarks measured: benchmarks/results/NAME.json, from which the documentation makes its tables.

A file has the benchmark's parts. Each part says how its rows came to be (command, date, commit, machine, source). A run
of one part leaves the others as they were. A row has a case, such as a graph and a model, and what was measured there,
with minimum, median and maximum as far as they are known.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import timeit
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

FOLDER = Path(__file__).resolve().parent / "results"
# whole numbers that say which case a row is, and not what was measured there
COUNTS = frozenset(
    {
        "asked",
        "blocks",
        "cores",
        "epochs",
        "features",
        "fraction",
        "full_snapshots",
        "groups",
        "layers",
        "parts",
        "ranks",
        "seeds",
        "threads",
        "window",
    }
)
TEXTS = frozenset({"unit", "reference", "note", "notes"})  # of a row: how its numbers are read
SERIES = frozenset({"best", "counted", "losses"})  # lists that are no repetitions
UNITS = {"_s": "s", "_ms": "ms", "_ns": "ns", "_j": "J", "_bytes": "bytes", "_share": "share"}


class CleanKeep(argparse.Action):
    """``--keep``, which a checkout with uncommitted changes refuses: rows could not say what ran."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        if commit().endswith("-dirty"):
            parser.error("--keep: files differ from the last commit, so rows could not say what ran. Commit them.")
        setattr(namespace, self.dest, True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What every benchmark can do with its rows, and the device that it measures on (:func:`parts_on`)."""
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="device to measure on (default cpu)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows and the machine there")
    parser.add_argument(
        "--keep",
        action=CleanKeep,
        nargs=0,
        default=False,
        help=f"keep them in {FOLDER.name}/, where the docs read them",
    )


def parts_on(
    parser: argparse.ArgumentParser, device: str, named: Sequence[str] = (), *, on_gpu: Sequence[str] = ()
) -> list[str]:
    """The parts to measure on a device: those that were named, else on a GPU all that can be measured there.

    Ends the program with a message where a part cannot, or there is no GPU.

    Args:
        parser: of the command line.
        device: ``cpu`` or ``cuda``.
        named: parts on the command line; empty for all.
        on_gpu: parts that can be measured on a GPU.
    """
    if device == "cpu":
        return list(named)
    import torch

    if not on_gpu:
        parser.error(
            "--device cuda: this benchmark measures on the CPU only: plans, files or pages, or ranks by the clocks of "
            "their processors. Leave --device out."
        )
    if unfit := [part for part in named if part not in on_gpu]:
        parser.error(f"--device cuda: {', '.join(unfit)} is measured on the CPU only. Parts: {', '.join(on_gpu)}.")
    if not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no GPU here. `dtdg-lab env` says what is missing.")
    return list(named or on_gpu)


def device_name(device: str) -> str:
    """The device as rows have it: ``cpu``, or ``cuda`` and the name of the GPU."""
    if device == "cpu":
        return device
    import torch

    return f"{device} {torch.cuda.get_device_name()}"


def finish(device: str) -> None:
    """Wait until a GPU has done all that it was given, before a clock is read."""
    if device != "cpu":
        import torch

        torch.cuda.synchronize()


def machine(*packages: str, **more: Any) -> dict[str, Any]:
    """This machine in words, with the versions of torch and other packages, and how long a loop in Python takes."""
    found = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "loop_ms": _loop_ms(),
    }
    for package in ("torch", *packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return {**found, **more}


def _loop_ms() -> float:
    """Least milliseconds of a loop in Python, of some: shared machines change their speed."""
    loop = "sum(number * number for number in range(100_000))"
    return round(1e3 * min(timeit.repeat(loop, number=1, repeat=9)), 2)


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def write(given: argparse.Namespace, where: Mapping[str, Any], parts: Mapping[str, Any], **plan: Any) -> None:
    """Write what was measured to the files that the arguments name.

    Args:
        given: arguments of the command line.
        where: the machine.
        parts: by name, rows, or a mapping that has ``rows``; anything else is in FILE only. Rows get the device.
        plan: what else FILE has.
    """
    device = device_name(given.device)
    parts = {part: _with_device(found, device) for part, found in parts.items()}
    if given.json:
        given.json.write_text(json.dumps({"machine": where, **plan, **parts}, indent=2, default=_plain) + "\n")
    if given.keep:
        keep(stored_name(Path(sys.argv[0]).stem, given.device), where, parts)


def stored_name(name: str, device: str) -> str:
    """The name of a benchmark's stored rows on a device: those of GPUs lie beside the others."""
    return name if device == "cpu" else f"{name}-{device}"


def _with_device(found: Any, device: str) -> Any:
    """A part whose rows have the device."""
    if isinstance(found, Mapping):
        return {**found, "rows": _with_device(found["rows"], device)} if "rows" in found else found
    if isinstance(found, list) and all(isinstance(row, Mapping) for row in found):
        return [{**row, "device": device} for row in found]
    return found


def _plain(value: Any) -> Any:
    """What JSON has for a mapping that is no ``dict``, and for a number of NumPy."""
    return value.item() if isinstance(value, np.generic) else dict(value)


def keep(
    name: str, where: Mapping[str, Any], parts: Mapping[str, Any], *, folder: Path | None = None, ran: str = ""
) -> Path:
    """Replace the stored parts of a benchmark by these; a reference (a paper's number, a limit) stays with its case.

    Args:
        name: of the benchmark.
        where: the machine.
        parts: by name, rows, or a mapping that has ``rows``; anything else is left out.
        folder: in place of ``FOLDER``.
        ran: the command, in place of this one.
    """
    file = (folder or FOLDER) / f"{name}.json"
    stored = json.loads(file.read_text()) if file.exists() else {}
    for part, rows in parts_of(parts).items():
        before = stored.get(part, {}).get("rows", ())
        references = {key(row): row["reference"] for row in before if "reference" in row}
        for row in rows:
            if key(row) in references:
                row.setdefault("reference", references[key(row)])
        about = {"source": "measured", "command": ran or command(), "date": date.today().isoformat()}
        stored[part] = {**about, "commit": commit(), "machine": dict(where), "rows": rows}
    file.parent.mkdir(exist_ok=True)
    file.write_text(as_text(stored))
    return file


def parts_of(found: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each part in the form in which they are stored; what has no rows is left out."""
    raw = {part: of.get("rows") if isinstance(of, Mapping) else of for part, of in found.items()}
    return {
        part: [row for row in map(as_row, rows) if row["measured"]]
        for part, rows in raw.items()
        if isinstance(rows, list) and all(isinstance(row, Mapping) for row in rows)
    }


def as_text(stored: Mapping[str, Any]) -> str:
    """JSON with a line for each row, so that changes are seen."""
    parts = []
    for part, found in stored.items():
        about = json.dumps({name: of for name, of in found.items() if name != "rows"}, ensure_ascii=False)
        rows = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in found["rows"])
        parts.append(f' {json.dumps(part)}: {about[:-1]}, "rows": [\n{rows}\n ]}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def key(row: Mapping[str, Any]) -> str:
    """The case of a row, as text; rows without a device are older, and of the CPU."""
    return json.dumps({"device": "cpu", **row["case"]}, sort_keys=True)


def command() -> str:
    """The command line, without where its rows went."""
    words = iter(sys.argv[1:])
    kept = []
    for word in words:
        if word == "--json":
            next(words)
        elif word != "--keep":
            kept.append(word)
    return " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *kept])


def commit() -> str:
    """The commit that ran, with ``-dirty`` where files differ from it, apart from results, which do not run."""
    git = ["git", "-C", str(FOLDER.parent)]
    describe = [*git, "describe", "--always", "--exclude=*"]
    status = [*git, "status", "--porcelain", "--untracked-files=no", "--", ":/", ":!results"]
    name, changes = (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for command in (describe, status)
    )
    return name.strip() + "-dirty" * bool(changes)


def as_row(found: Mapping[str, Any]) -> dict[str, Any]:
    """A benchmark's row, as it is stored: its case, and minimum, median and maximum of what was measured."""
    case, measured = {}, {}
    for name, value in found.items():
        if name in TEXTS:
            continue
        if isinstance(value, str) or (name in COUNTS and isinstance(value, int | float)):
            case[name] = value
        else:
            for what, values in numbers(name, value):
                unit = found.get("unit") or next((UNITS[end] for end in UNITS if what.endswith(end)), None)
                spread = zip(("min", "median", "max"), values, strict=True)
                measured[what] = {name: float(f"{one:.6g}") for name, one in spread if one is not None}
                measured[what] |= {"unit": unit} if unit else {}
    texts = {name: found[name] for name in ("reference", "note") if found.get(name) is not None}
    return {"case": case, "measured": measured, **texts}


def numbers(name: str, value: Any) -> Iterator[tuple[str, tuple[float | None, float, float | None]]]:
    """Measured quantities: a number, three of a spread, one a seed, or several by name; anything else is none."""
    if isinstance(value, Mapping):
        for inner, of in value.items():
            yield from numbers(f"{name} {inner}", of)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, (None, float(value), None)
    elif isinstance(value, list) and name not in SERIES and all(isinstance(one, int | float | None) for one in value):
        if reached := [one for one in value if one is not None and isfinite(one)]:
            yield name, (min(reached), median(reached), max(reached))
    elif isinstance(value, tuple) and len(value) == 3 and all(isinstance(one, int | float | None) for one in value):
        least, middle, most = value
        if middle is not None:
            yield name, (least, float(middle), most)
