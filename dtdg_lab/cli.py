"""The command line: ``dtdg-lab env | run | demo | dash | datasets | export | study | reproduce | sessions``."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import select
import signal
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.errors import ConfigError, DataError, LabError, RunFailedError, RunInterruptedError

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.config.run_config import RunConfig


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    The code is 0 on success, 1 if a run failed, 2 if the command could not be carried out (with one message on stderr),
    and 128 plus the signal's number if a signal interrupted a run, or Ctrl-C the command. It is also 0 if the reader of
    a pipe, such as ``head``, closes it early.
    """
    parsed = _parser().parse_args(arguments)
    try:
        _register(getattr(parsed, "register", []))
        code = int(parsed.execute(parsed))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        if not _reader_has_left():
            raise
        return 0
    except RunFailedError as error:
        print(f"dtdg_lab {parsed.command}: {error}", file=sys.stderr)
        name = error.signal if isinstance(error, RunInterruptedError) else ""
        return 128 + signal.Signals[name] if name else 1
    except LabError as error:
        print(f"dtdg_lab {parsed.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"dtdg_lab {parsed.command}: interrupted. What it had stored is kept.", file=sys.stderr)
        return 128 + signal.SIGINT


def _register(files: Sequence[str]) -> None:
    """Register code before a command uses it."""
    if files:
        from dtdg_lab.config.extensions import register_from

        for file in files:
            register_from(file)


def _reader_has_left() -> bool:
    """Return whether the reader has closed standard output; further output is then discarded."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if not any(state & (select.POLLERR | select.POLLHUP) for _, state in poll.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # needed since the interpreter flushes when it ends
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dtdg-lab", description="Run, steer and compare distributed training of dynamic graph neural networks."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    env = commands.add_parser("env", help="show what this machine can run and measure, with remedies")
    env.add_argument("--json", action="store_true", help="print the findings as JSON")
    env.add_argument(
        "--check",
        action="store_true",
        help="train every system with every model on every device, and check losses, exchanges, clock, energy and "
        "memory; the exit code is 1 if a row fails",
    )
    env.add_argument("--device", choices=("cpu", "cuda", "all"), help="devices of --check (default: all)")
    env.add_argument("--systems", nargs="+", default=[], metavar="NAME", help="systems of --check (default: all)")
    env.add_argument("--quick", action="store_true", help="--check with one model for each system but the first")
    env.set_defaults(execute=_env)

    run = commands.add_parser("run", help="train with the settings of a file or of --set")
    _add_settings(run, default="the defaults")
    run.add_argument("--json", action="store_true", help="print the whole summary as JSON")
    run.add_argument("--cluster", action="store_true", help="use a cluster even for one rank")
    run.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder for runs (default: runs)")
    run.set_defaults(execute=_run)

    demo = commands.add_parser("demo", help="a short run on real data, or on synthetic data if none is available")
    demo.add_argument("--json", action="store_true", help="print the whole summary as JSON")
    demo.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder for runs (default: runs)")
    demo.set_defaults(execute=_demo)

    dash = commands.add_parser("dash", help="serve the dashboard to a browser, without Jupyter")
    dash.add_argument("--port", type=_port, default=5006, help="port to listen on; 0 takes a free one (default: 5006)")
    dash.add_argument(
        "--address",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="interface to listen on, such as ::1 (default: 127.0.0.1)",
    )
    dash.add_argument("--prefix", default="", metavar="PATH", help="prefix of all paths, such as lab (default: none)")
    dash.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="HOST",
        help="host (with its port, if the browser shows one) under which a proxy shows the page; may be repeated",
    )
    dash.add_argument("--ranks", type=_positive, default=2, help="number of engines of the session (default: 2)")
    dash.add_argument("--token", help="token of at least 16 characters that opens it (default: a new one; '' for none)")
    dash.set_defaults(execute=_dash)

    data = commands.add_parser("datasets", help="list data sets and whether they are available locally")
    data.set_defaults(execute=_datasets)

    calibrated = _add_calibrate(commands)
    _add_train_policy(commands)
    exported = _add_export(commands)

    studied = commands.add_parser("study", help="run or resume a study")
    studied.add_argument("study", metavar="NAME|FILE.json", help="a shipped study, or a file of Sweep.to_json()")
    studied.add_argument("--quick", action="store_true", help="the short form of a shipped study")
    studied.add_argument("--name", metavar="NAME", default="", help="name of its folder (default: the study's name)")
    studied.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder for runs (default: runs)"
    )
    studied.set_defaults(execute=_study)
    for takes_names in (env, run, dash, data, exported, studied, calibrated):
        takes_names.add_argument(
            "--register",
            action="append",
            default=[],
            metavar="FILE.py",
            help="Python file that calls lab.register, or module:attribute of a family; may be repeated",
        )

    _add_reproduce(commands)

    sessions = commands.add_parser("sessions", help="list or end this user's clusters")
    which = sessions.add_mutually_exclusive_group()
    which.add_argument("--end", metavar="ID", help="end the session with this id")
    which.add_argument("--end-all", action="store_true", help="end all of them")
    sessions.set_defaults(execute=_sessions)
    return parser


def _add_settings(parser: argparse.ArgumentParser, *, default: str) -> None:
    """Add a file of settings and ``--set``; ``default`` says which settings hold without a file."""
    parser.add_argument(
        "config",
        type=Path,
        nargs="?",
        metavar="CONFIG.json",
        help=f"settings, as RunConfig(...).to_json() writes (default: {default})",
    )
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help=f"settings, beside those of the file or else {default}; may be repeated",
    )


def _add_calibrate(commands: Any) -> argparse.ArgumentParser:
    measured: argparse.ArgumentParser = commands.add_parser(
        "calibrate", help="measure fetches, steps and power of this machine, for train-policy --calibration"
    )
    measured.add_argument("folder", type=Path, metavar="FOLDER", help="folder for the measurements")
    _add_settings(measured, default="those of a small example")
    measured.add_argument("--quick", action="store_true", help="eight short runs in place of fourteen")
    measured.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder for runs")
    measured.set_defaults(execute=_calibrate)
    return measured


def _add_train_policy(commands: Any) -> None:
    learn = commands.add_parser("train-policy", help="train a cache policy in the simulator")
    learn.add_argument("--parts", type=_positive, default=4, help="number of partitions, at least 2 (default: 4)")
    learn.add_argument(
        "--name", default="double_dqn", choices=("double_dqn", "double_dqn_plus"), help="(default: double_dqn)"
    )
    learn.add_argument(
        "--paper",
        action="store_true",
        help="GreenDyGNN's protocol: 50,000 episodes, finite horizon, an update for each decision; half an hour",
    )
    learn.add_argument("--episodes", type=_positive, help="episodes of 30 epochs (default: as for the shipped policy)")
    learn.add_argument("--horizon", choices=("finite", "endless"), help="whether a run's end has no value, or a value")
    learn.add_argument(
        "--updates-per-decision", type=_share, metavar="U", help="1, or a fraction such as 1/16, of network updates"
    )
    learn.add_argument(
        "--calibration",
        type=Path,
        metavar="FOLDER",
        help="folder that `calibrate` wrote (default: the shipped constants of Products and Reddit)",
    )
    learn.add_argument("--resume", action="store_true", help="continue an unfinished training of FILE.npz, if any")
    learn.add_argument("--seed", type=int, default=0, help="seed of weights, sampling and episodes (default: 0)")
    learn.add_argument("--no-double", action="store_true", help="DQN instead of Double DQN")
    learn.add_argument("--out", type=Path, required=True, metavar="FILE.npz", help="output file")
    learn.set_defaults(execute=_train_policy)


def _add_reproduce(commands: Any) -> None:
    reproduced = commands.add_parser(
        "reproduce", help="list the papers' claims with their verdicts, or measure what is missing for them"
    )
    reproduced.add_argument("names", nargs="*", metavar="NAME", help="a paper, or one of its tables: dynahb/table2")
    reproduced.add_argument("--all", action="store_true", help="measure what is missing of all papers")
    reproduced.add_argument(
        "--list", action="store_true", help="only list what is missing, and the verdicts; of NAMEs also each comparison"
    )
    reproduced.add_argument("--again", action="store_true", help="measure failed cells again")
    reproduced.add_argument("--hours", type=float, help="start nothing that would probably end later")
    reproduced.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="(default: cpu)")
    reproduced.add_argument(
        "--folder", type=Path, metavar="DIR", help="folder of experiments (default: reproduce/ of this checkout)"
    )
    reproduced.set_defaults(execute=_reproduce)


def _add_export(commands: Any) -> argparse.ArgumentParser:
    exported: argparse.ArgumentParser = commands.add_parser("export", help="export a run or race to one file")
    exported.add_argument("run", metavar="RUN", help="folder of the run or race, or an HTML or Parquet export of a run")
    exported.add_argument("--kind", default="html", help="html, parquet, tensorboard, trace, script or notebook")
    exported.add_argument("--out", metavar="PATH", help="file, or an existing folder (default: the current folder)")
    exported.add_argument("--overwrite", action="store_true", help="overwrite an earlier export")
    exported.set_defaults(execute=_export)
    return exported


def _port(text: str) -> int:
    if not text.isdigit() or not 0 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a port. Give a whole number from 0 to 65535; 0 takes a free one"
        )
    return int(text)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count. Give a whole number of at least 1")
    return int(text)


def _share(text: str) -> int:
    """Return n of a share written as 1, 1/n or a decimal fraction."""
    try:
        share = Fraction(text)
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if share <= 0 or share.numerator != 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 or 1/n. Give 1 for the paper's, or such as 1/16")
    return share.denominator


def _env(parsed: argparse.Namespace) -> int:
    if parsed.check:
        return _check(parsed)
    if parsed.quick or parsed.device or parsed.systems:
        raise ConfigError("--device, --systems and --quick apply only to --check. Add --check, or leave them out.")
    from dtdg_lab.environment import environment_report, format_report

    findings = environment_report()
    if parsed.json:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    else:
        print(format_report(findings))
    return 0


def _check(parsed: argparse.Namespace) -> int:
    """Check every device, and return 1 if a row failed, otherwise 0."""
    from dtdg_lab.device_check.check import check_devices
    from dtdg_lab.device_check.report import check_json, format_check

    check = check_devices(parsed.device or "all", systems=parsed.systems, quick=parsed.quick, progress=True)
    print(check_json(check) if parsed.json else format_check(check))
    return 1 if check.failed else 0


def _run(parsed: argparse.Namespace) -> int:
    config = _config(parsed.config, parsed.settings)
    if config.ranks > 1 or parsed.cluster:
        return _report(_run_on_engines(config, parsed.runs), parsed.json)
    from dtdg_lab.cluster.local import train_here

    return _report(train_here(config, runs_dir=parsed.runs, progress=True, deliver=False), parsed.json)


def _config(file: Path | None, texts: Sequence[str]) -> RunConfig:
    """Return the settings of a file, or the defaults, with those of ``NAME=VALUE``."""
    from dtdg_lab.config.run_config import RunConfig

    if file is None and not texts:
        raise ConfigError("no settings are given. Give CONFIG.json, --set NAME=VALUE, or both.")
    settings = dict(_setting(text) for text in texts)
    if file is None:
        return RunConfig(**settings)
    config = RunConfig.load(file)
    return config.replace(**settings) if settings else config


def _setting(text: str) -> tuple[str, Any]:
    """Return name and value of ``NAME=VALUE``; a text that does not fit the option's type is checked later."""
    from dtdg_lab.config.options import OPTIONS

    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ConfigError(f"--set {text!r} is not NAME=VALUE, such as epochs=5. CONFIG.json goes before --set.")
    kind = OPTIONS[name].kind if name in OPTIONS else str
    if kind is bool:
        return name, {"true": True, "false": False}.get(value.lower(), value)
    for number in (int, float):
        if kind in (int, float):
            with contextlib.suppress(ValueError):
                return name, number(value)
    return name, value


def _run_on_engines(config: RunConfig, runs_dir: Path) -> Run:
    """Train on engines and return the run after its end; a signal to this process interrupts it."""
    from dtdg_lab.cluster.session import Session
    from dtdg_lab.cluster.stop_signals import StopSignals
    from dtdg_lab.runs.progress import show_progress

    with (
        StopSignals(
            lambda name: print(f"left the run to its engines after {name}", file=sys.stderr), deliver=False
        ) as signals,
        Session(ranks=config.ranks, runs_dir=runs_dir) as session,
    ):
        run = session.train(config)
        signals.request = run.stop_by
        show_progress(run)
        try:
            return run.wait()
        except RunInterruptedError as error:
            if signals.received is None:
                raise
            raise RunInterruptedError(str(error), signals.received.name) from error


def _demo(parsed: argparse.Namespace) -> int:
    from dtdg_lab.cluster.local import train_here
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.datasets.names import load_dataset

    dataset = "collegemsg"
    try:
        load_dataset(dataset)
    except DataError as error:
        print(f"The demo uses synthetic data because real data is not available: {error}", file=sys.stderr)
        dataset = "growing"
    config = RunConfig(system="psg", dataset=dataset, model="tgcn", parts=2, epochs=3, group_stride=4)
    return _report(train_here(config, runs_dir=parsed.runs, progress=True, deliver=False), parsed.json)


def _report(run: Any, as_json: bool) -> int:
    """Print the result of a run and the path of its report; return 1 if it failed, otherwise 0."""
    from dtdg_lab.core.units import format_joules

    summary, splits = run.summary, ("train", "validation", "test")
    if as_json:
        print(json.dumps(summary, indent=2, default=str))
    else:
        losses = {split: summary.get(f"{split}_loss") for split in splits}
        print(f"{summary['status']}: {summary['epochs']} epochs, {summary['steps']} steps")
        print("loss: " + ", ".join(f"{split} {loss:.4g}" for split, loss in losses.items() if loss is not None))
        losses = {name: summary.get(f"{name}_loss") for name in ("persistence", "mean")}
        if baselines := [f"{name} {loss:.4g}" for name, loss in losses.items() if loss is not None]:
            print(f"{summary['skill_split']} loss of baselines that learn nothing: {', '.join(baselines)}")
        if metrics := [
            f"{name} {value:.4g}" for name, value in (summary["metrics"] or {}).items() if value is not None
        ]:
            print(f"{summary['skill_split']} metrics: {', '.join(metrics)}")
        joules = [f"{format_joules(joules)} {source}" for source, joules in (summary.get("energy_j") or {}).items()]
        print(f"energy: {', '.join(joules) or 'unknown'}")
    print(f"report: {Path(run.path) / 'report.html'}")
    return 0 if summary["status"] in ("finished", "stopped") else 1


def _dash(parsed: argparse.Namespace) -> int:
    from dtdg_lab.cluster.session import Session
    from dtdg_lab.dashboard.server import Endpoint, serve

    served: dict[str, Any] = {"prefix": parsed.prefix, "allow_origin": parsed.allow_origin}
    Endpoint.open(parsed.port, parsed.address, **served)  # checked before engines are started
    with Session(ranks=parsed.ranks) as session:
        server = serve(session, parsed.port, parsed.address, token=parsed.token, **served)
        print(f"The dashboard is at {server.url} (Ctrl-C ends it).", flush=True)
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends the server
            server.wait()
    return 0


def _datasets(parsed: argparse.Namespace) -> int:
    from dtdg_lab.core.units import format_bytes
    from dtdg_lab.datasets.names import list_datasets

    rows = [("name", "here", "rows", "nodes", "size", "learns", "licence", "where")]
    for info in list_datasets():
        available, size = (
            "yes" if info.on_this_machine else "no",
            "-" if info.bytes is None else format_bytes(info.bytes),
        )
        learns, licence = ", ".join(info.tasks), info.licence.partition(";")[0]
        rows.append((info.name, available, _count(info.rows), _count(info.nodes), size, learns, licence, info.where))
    _print_table(rows)
    return 0


CALIBRATED = ("system=fixed-window", "dataset=growing", "model=tgcn", "parts=4")  # settings without a file
QUICK = {
    "windows": (1, 4, 16, 64),
    "conditions": ("c1_200mbit", "c1_50mbit", "c4_5ms", "c4_20ms"),
    "rows": (10, 100, 1_000),
    "repeats": 10,
    "steps": 20,
}


def _calibrate(parsed: argparse.Namespace) -> int:
    from dtdg_lab.cluster.calibrate_here import calibrate_here
    from dtdg_lab.cluster.session import Session
    from dtdg_lab.reproduction.timing_lock import BUSY_SHARE, busy_share
    from dtdg_lab.systems.feature_cache.calibration.report import judge_fit
    from dtdg_lab.systems.feature_cache.calibration.study import ABOUT

    if (parsed.folder / ABOUT).exists():
        raise ConfigError(f"{parsed.folder} has a calibration already. Name another folder, or delete it.")
    config = _config(parsed.config, [*(() if parsed.config else CALIBRATED), *parsed.settings])
    if (busy := busy_share()) > BUSY_SHARE:
        print(
            f"Other programs use {busy:.0%} of the processors, and what is measured includes them. Better: Ctrl-C, end "
            "them, and start again.",
            file=sys.stderr,
        )
    sizes: dict[str, Any] = {**(QUICK if parsed.quick else {}), "progress": sys.stderr.isatty()}
    if config.ranks > 1:
        with Session(ranks=config.ranks, runs_dir=parsed.runs) as session:
            study = calibrate_here(config, parsed.folder, session=session, **sizes)
    else:
        study = calibrate_here(config, parsed.folder, runs_dir=parsed.runs, **sizes)
    print(study.table())
    print(judge_fit(study.calibration.errors()))
    print(
        f"{parsed.folder}: train a policy with it by: dtdg-lab train-policy --calibration {parsed.folder} "
        f"--parts {config.parts} --out FILE.npz"
    )
    return 0


def _train_policy(parsed: argparse.Namespace) -> int:
    from dtdg_lab.systems.feature_cache.simulation.training import PAPER_TRAINING, shipped_training, train_policy

    if parsed.paper and parsed.name != PAPER_TRAINING.name:
        raise ConfigError(f"--paper trains {PAPER_TRAINING.name}, not {parsed.name}. Leave out one of the two options.")
    if parsed.out.exists() and not parsed.resume:
        raise ConfigError(f"{parsed.out} exists already. Name another file, or delete it.")
    changes = {
        "episodes": parsed.episodes,
        "horizon": parsed.horizon,
        "decisions": parsed.updates_per_decision,
        "seed": parsed.seed,
        "double": not parsed.no_double,
    }
    training = dataclasses.replace(
        PAPER_TRAINING if parsed.paper else shipped_training(parsed.name),
        **{name: value for name, value in changes.items() if value is not None},
    )
    costs = None
    if parsed.calibration is not None:
        from dtdg_lab.systems.feature_cache.calibration.calibration import calibrate

        calibration = calibrate(parsed.calibration)
        costs = [calibration.costs(name, parts=parsed.parts) for name in calibration.steps]
    policy = train_policy(
        parsed.parts, training, costs=costs, out=parsed.out, resume=parsed.resume, progress=sys.stderr.isatty()
    )
    print(f"{parsed.out}: policy {policy.name} for {policy.parts} partitions; {policy.protocol}")
    print(
        f'use it with: RunConfig(system="greendygnn", cache_policy="{policy.name}", parts={policy.parts}, '
        f'policy_file="{parsed.out}", ...)'
    )
    return 0


def _export(parsed: argparse.Namespace) -> int:
    from dtdg_lab.export.export import export

    print(export(parsed.run, parsed.out, parsed.kind, overwrite=parsed.overwrite))
    return 0


def _study(parsed: argparse.Namespace) -> int:
    from dtdg_lab.studies.preset import preset
    from dtdg_lab.studies.run_study import study_at_command
    from dtdg_lab.studies.sweep import Sweep, preset_sweep

    if parsed.study.endswith(".json"):
        if parsed.quick:
            raise ConfigError("--quick applies only to shipped studies; a sweep file defines its own runs.")
        sweep, name = Sweep.load(parsed.study), parsed.name or Path(parsed.study).stem
    else:
        sweep = preset_sweep(preset(parsed.study), None, quick=parsed.quick)
        name = parsed.name or parsed.study + ("-quick" if parsed.quick else "")
    study = study_at_command(sweep, name, parsed.runs)
    print(study)
    for _, caption in study.analysis().values():
        print(f"- {caption}")
    print(f"{study.path}: look at it with lab.open({str(study.path)!r})")
    return 0 if study.is_complete else 1


def _reproduce(parsed: argparse.Namespace) -> int:
    from dtdg_lab.cluster.devices import choose_devices, report_devices
    from dtdg_lab.reproduction.experiment import read_experiments
    from dtdg_lab.reproduction.listing import EXPERIMENTS, format_verdicts, format_work
    from dtdg_lab.reproduction.runner import list_work, run_experiments

    if parsed.hours is not None and not parsed.hours > 0:
        raise ConfigError(f"--hours {parsed.hours:g} is not above 0. Give hours such as 2 or 0.5.")
    if parsed.names and parsed.all:
        raise ConfigError(f"--all stands beside {', '.join(parsed.names)}. Leave one of them out.")
    measures = (parsed.names or parsed.all) and not parsed.list
    if not measures and (parsed.hours is not None or parsed.again):
        raise ConfigError("--hours and --again need what is measured: give a paper, one of its tables, or --all.")
    experiments = read_experiments(parsed.folder or EXPERIMENTS, tuple(parsed.names))
    works = list_work(experiments, parsed.device, again=parsed.again)
    print(format_work(works))
    if skipped := [experiment.id for experiment in experiments if parsed.device not in experiment.devices]:
        print(f"Not measured with --device {parsed.device}: {', '.join(skipped)}.")
    if measures:
        if parsed.device != "cpu":
            choose_devices(parsed.device, [report_devices()])  # raises here in place of once for each cell
        for ending in (signal.SIGTERM, signal.SIGHUP):  # so that engines end, too: they would disturb the next start
            signal.signal(ending, lambda number, _: sys.exit(128 + number))
        run_experiments(works, hours=parsed.hours, say=lambda line: print(line, flush=True))
    print(format_verdicts(experiments, parsed.device, details=parsed.list and bool(parsed.names)))
    return 0


def _sessions(parsed: argparse.Namespace) -> int:
    from dtdg_lab.cluster.session_files import end_session, list_sessions
    from dtdg_lab.core.units import format_seconds

    if parsed.end:
        print(f"ended {parsed.end}: {end_session(parsed.end)} processes")
        return 0
    sessions = list_sessions()
    if parsed.end_all:
        for session in sessions:
            print(f"ended {session.id}: {end_session(session.id)} processes")
    elif sessions:
        rows = [("id", "name", "ranks", "processes", "idle", "last run")]
        for session in sessions:
            last, idle = str(session.last_run or "none"), format_seconds(session.idle_s)
            rows.append((session.id, session.name, str(session.ranks), str(session.processes), idle, last))
        _print_table(rows)
    if not sessions:
        print("no sessions")
    return 0


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
