"""A run computes under torch's factory settings, whatever the process that starts it has set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import dtdg_lab as lab
from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.kernels.torch_defaults import share_cores, torch_defaults
from dtdg_lab.lessons.experiments import exactness
from dtdg_lab.runs.stored_run import open_run
from dtdg_lab.systems.feature_cache.simulation.training import PolicyTraining, train_policy
from dtdg_lab.training.block_memory import block_cost
from tests.factories import SMALL
from tests.thinning import thinned

CLASSES = {**SMALL, "dataset": "sbm", "generated_nodes": 40}
FAMILIES = {
    name: next(system.name for system in catalogue.SYSTEMS if system.family == name) for name in catalogue.FAMILIES
}
FIRST = next(iter(FAMILIES))


class Doubles(TorchFunctionMode):
    """Doubles the result of every matrix product."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return 2 * result if func in (torch.matmul, torch.Tensor.matmul, torch.nn.functional.linear) else result


class Rounds(TorchDispatchMode):
    """Rounds the result of every matrix product."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result.round(decimals=1) if func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default) else result


@contextmanager
def changed(write: Callable[[Any], object], value: Any, factory: Any) -> Iterator[None]:
    write(value)
    try:
        yield
    finally:
        write(factory)


def _conv_precision(value: str) -> None:
    torch.backends.mkldnn.matmul.fp32_precision = value


def _fill(value: bool) -> None:
    torch.utils.deterministic.fill_uninitialized_memory = value


def _mkldnn(value: bool) -> None:
    torch._C._set_mkldnn_enabled(value)


# name -> what a user may have done before the run, and what torch says of it
CHANGED: dict[str, tuple[Callable[[], AbstractContextManager[Any]], Callable[[], Any]]] = {
    "set_grad_enabled": (lambda: changed(torch.set_grad_enabled, False, True), torch.is_grad_enabled),
    "no_grad": (torch.no_grad, torch.is_grad_enabled),
    "inference_mode": (torch.inference_mode, torch.is_inference_mode_enabled),
    "float64": (lambda: changed(torch.set_default_dtype, torch.float64, torch.float32), torch.get_default_dtype),
    "bfloat16": (lambda: changed(torch.set_default_dtype, torch.bfloat16, torch.float32), torch.get_default_dtype),
    "default_device": (lambda: changed(torch.set_default_device, "meta", None), torch.get_default_device),
    "with_device": (lambda: torch.device("meta"), torch.get_default_device),
    "autocast": (lambda: torch.autocast("cpu"), lambda: torch.is_autocast_enabled("cpu")),
    "autocast_cuda": (
        lambda: changed(lambda on: torch.set_autocast_enabled("cuda", on), True, False),
        lambda: torch.is_autocast_enabled("cuda"),
    ),
    "deterministic": (
        lambda: changed(torch.use_deterministic_algorithms, True, False),
        torch.are_deterministic_algorithms_enabled,
    ),
    "fill_memory": (
        lambda: changed(_fill, False, True),
        lambda: torch.utils.deterministic.fill_uninitialized_memory,
    ),
    "threads": (lambda: changed(torch.set_num_threads, 3, torch.get_num_threads()), torch.get_num_threads),
    "matmul_precision": (
        lambda: changed(torch.set_float32_matmul_precision, "medium", "highest"),
        torch.get_float32_matmul_precision,
    ),
    "fp32_precision": (
        lambda: changed(_conv_precision, "bf16", "none"),
        lambda: torch.backends.mkldnn.matmul.fp32_precision,
    ),
    "mkldnn": (lambda: changed(_mkldnn, False, True), torch._C._get_mkldnn_enabled),
    "flush_denormal": (
        lambda: changed(torch.set_flush_denormal, True, False),
        lambda: sys.float_info.min / 2 == 0.0,
    ),
    "anomaly": (lambda: torch.autograd.detect_anomaly(check_nan=False), torch.is_anomaly_enabled),
    "function_mode": (Doubles, torch.overrides._len_torch_function_stack),
    "dispatch_mode": (Rounds, torch._C._len_torch_dispatch_stack),
    "saved_tensors": (
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda tensor: 0 * tensor, lambda tensor: tensor),
        lambda: torch._C._autograd._top_saved_tensors_default_hooks(True) is None,
    ),
}
TOGETHER = [
    name for name in CHANGED if name not in ("no_grad", "set_grad_enabled", "bfloat16", "with_device", "fp32_precision")
]


CONFIGS = {
    **{family: RunConfig(system=system, epochs=2, **SMALL) for family, system in FAMILIES.items()},
    "link": RunConfig(system="psg", epochs=2, task="link", link_share=0.5, ranking_negatives=6, **SMALL),
    "classification": RunConfig(system="psg", epochs=2, task="classification", communities=2, **CLASSES),
}


def losses_of(run: Any) -> dict[str, list[float]]:
    scores = run.table("evaluations")
    return {
        "steps": run.table("steps").global_loss.tolist(),
        **{split: scores[scores.split == split].loss.tolist() for split in ("train", "validation", "test")},
    }


CLEAN = """
import json, sys
import dtdg_lab as lab
from tests.unit.kernels.test_torch_defaults import CONFIGS, losses_of
if __name__ == "__main__":
    print(json.dumps({
        name: losses_of(lab.train(config, runs_dir=sys.argv[1], progress=False)) for name, config in CONFIGS.items()
    }))
"""


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[float]]]:
    """Losses by family and by task, trained in a process that has set nothing."""
    folder = tmp_path_factory.mktemp("clean")
    script = folder / "clean.py"
    script.write_text(CLEAN)
    tests = Path(__file__).parents[2]
    path = os.pathsep.join([str(tests.parent), str(tests)])
    run = subprocess.run(
        [sys.executable, str(script), str(folder / "runs")],
        env={**os.environ, "PYTHONPATH": path, "DTDG_LAB_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    losses: dict[str, dict[str, list[float]]] = json.loads(run.stdout)
    assert all(len(of["steps"]) > 1 for of in losses.values())
    return losses


CASES = [(name, family) for family in FAMILIES for name in CHANGED]


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
@pytest.mark.parametrize(
    ("name", "family"),
    thinned(CASES, [place for place, (name, family) in enumerate(CASES) if family == FIRST or name == "no_grad"]),
)
def test_a_run_is_that_of_a_clean_process(clean: dict[str, Any], tmp_path: Path, name: str, family: str) -> None:
    change, state = CHANGED[name]
    with change():
        before = state()
        run = lab.train(CONFIGS[family], runs_dir=tmp_path, progress=False)
        assert state() == before, "the caller's own holds again"
    assert losses_of(run) == clean[family]
    assert len(set(clean[family]["steps"])) == len(clean[family]["steps"]), "it trains"


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
@pytest.mark.parametrize("case", CONFIGS)
def test_all_at_once_change_nothing(clean: dict[str, Any], tmp_path: Path, case: str) -> None:
    with ExitStack() as stack:
        for name in TOGETHER:
            stack.enter_context(CHANGED[name][0]())
        before = [CHANGED[name][1]() for name in TOGETHER]
        run = lab.train(CONFIGS[case], runs_dir=tmp_path, progress=False)
        assert [CHANGED[name][1]() for name in TOGETHER] == before
    assert losses_of(run) == clean[case]


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
@pytest.mark.parametrize("name", CHANGED)
def test_the_caller_s_setting_holds_again_after_an_error(name: str) -> None:
    change, state = CHANGED[name]
    with torch_defaults():
        factory = state()
    with change():
        before = state()
        with pytest.raises(ZeroDivisionError), torch_defaults():
            assert state() == factory != before
            raise ZeroDivisionError
        assert state() == before


def test_a_run_that_is_refused_leaves_the_caller_s_settings(tmp_path: Path) -> None:
    config = CONFIGS["snapshot_groups"].replace(group_window=20)
    with torch.inference_mode(), changed(torch.set_default_dtype, torch.float64, torch.float32):
        with pytest.raises(DataError):
            lab.train(config, runs_dir=tmp_path, progress=False)
        assert torch.is_inference_mode_enabled() and torch.get_default_dtype() == torch.float64


def _forked(run: Any, folder: Path) -> Any:
    return losses_of(lab.runs.fork(run, at="epoch-00001", runs_dir=folder, progress=False))


def _replayed(run: Any, folder: Path) -> Any:
    return losses_of(lab.runs.replay(run, runs_dir=folder))


def _inspected(run: Any, folder: Path) -> Any:
    return lab.inspect.activations(run).outputs.tolist()


def _perturbed(run: Any, folder: Path) -> Any:
    return lab.inspect.perturb(run, node=3, snapshot=5).change.tolist()


def _measured(run: Any, folder: Path) -> Any:
    config = RunConfig(system="esdg", ranks=1, blocks=2, **SMALL)
    cost = block_cost(config, load_for(config), steps=1)
    return [cost.loss, *cost.gradient.tolist()]


def _compared(run: Any, folder: Path) -> Any:
    config = RunConfig(system="dbov", **SMALL)
    found = exactness(config, load_for(config))
    return [found.of_batch, found.on_the_whole, found.gradient_off]


def _learned(run: Any, folder: Path) -> Any:
    training = PolicyTraining(episodes=32, lanes=32, explored=8, decisions=32, hidden=(4,))
    return train_policy(3, training).parameters.tolist()


@pytest.mark.parametrize("compute", [_forked, _replayed, _inspected, _perturbed, _measured, _compared, _learned])
def test_whatever_else_computes_in_this_process(tmp_path: Path, compute: Callable[[Any, Path], Any]) -> None:
    run = lab.train(CONFIGS[FIRST].replace(keep_every=1), runs_dir=tmp_path, progress=False)
    plain = compute(open_run(run.path), tmp_path / "plain")
    with ExitStack() as stack:
        for name in TOGETHER:
            if name != "anomaly":
                stack.enter_context(CHANGED[name][0]())
        assert compute(open_run(run.path), tmp_path / "changed") == plain


# threads


@pytest.mark.parametrize(
    ("threads", "variable", "expected"),
    [(5, "", 5), (5, "2", 5), (0, "3", 3), (0, "4,2", 4), (0, "", None), (0, "many", None), (0, "0", None)],
)
def test_threads_are_the_config_s_or_the_environment_s_or_a_share_of_the_cores(
    monkeypatch: pytest.MonkeyPatch, threads: int, variable: str, expected: int | None
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    cores = len(os.sched_getaffinity(0))
    assert share_cores(threads, 1) == (expected or cores)
    assert share_cores(threads, 2 * cores) == (expected or 1)
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert share_cores(0, 1) == cores
