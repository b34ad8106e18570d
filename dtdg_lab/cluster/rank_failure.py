"""The failure of a rank: its text and remedy, and the release of the memory that it holds."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Iterator

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import LabError, RunFailedError
from dtdg_lab.core.system_errors import error_text, is_lack_of_memory
from dtdg_lab.datasets.names import load_for
from dtdg_lab.systems.step_memory import lower_memory

OOM_SENTENCES = 3  # of torch's message; the others describe its allocator
# in errors that CUDA, NCCL, DGL and CUDA's libraries raise without torch's allocator
_NO_GPU_MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")


class RankFailedError(RunFailedError):
    """Raised when a rank failed.

    Attributes:
        rank: the rank that caused it.
        config: the settings at that time; None before the first step, and if another rank failed.
    """

    def __init__(self, message: str, rank: int, config: RunConfig | None = None) -> None:
        super().__init__(message)
        self.rank, self.config = rank, config


def explain_failure(error: BaseException, rank: int, step: int | None) -> str:
    """Return which rank failed, at which step, and why.

    Args:
        error: an error of torch or of the network.
        rank: the rank that raised it.
        step: the step it was in; None before the first step.
    """
    position = "" if step is None else f" at step {step}"
    text = str(error)
    if is_out_of_memory(error):
        text = ". ".join(text.split(". ")[:OOM_SENTENCES])
    return f"rank {rank} failed{position}: {type(error).__name__}: {text}".removesuffix(": ")  # MemoryError has no text


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if a device or the machine had no memory left, also as the cause of another error."""
    return any(is_lack_of_memory(one) or _is_lack_of_gpu_memory(one) for one in _chain(error))


def _is_lack_of_gpu_memory(error: BaseException) -> bool:
    from torch.cuda import OutOfMemoryError  # torch 2.4 does not have torch.OutOfMemoryError

    if isinstance(error, LabError):  # it may quote the error of another rank
        return False
    return isinstance(error, OutOfMemoryError) or any(text in str(error) for text in _NO_GPU_MEMORY)


def suggest_memory_remedy(config: RunConfig, *, in_session: bool = True) -> str:
    """Return which change of settings lowers the memory of a rank, and to how much, by the forecast.

    Args:
        config: settings of the run.
        in_session: whether a session trains the run, which can resume it.
    """
    try:
        remedy = lower_memory(config, load_for(config))
    except (LabError, MemoryError, OSError, RuntimeError) as error:  # the machine may have no memory for the data
        return f"The forecast cannot tell which setting lowers the memory: {error_text(error)}"
    if remedy is None:
        return "Use more ranks, a smaller hidden, or a device with more memory."
    settings = ", ".join(f"{name}={value!r}" for name, value in remedy.changes.items())
    call = f"lab.train(config.replace({settings}))"
    if in_session:
        call = f"run.resume({settings})" if remedy.is_live else f"session.train(run.config.replace({settings}))"
    return f"{remedy}: {call}."


def release_memory(error: BaseException) -> None:
    """Free the memory that the frames of an error hold, and give cached memory back to the GPU.

    IPython keeps the last traceback of an engine, and thus the model and all tensors of a step.
    """
    import torch

    for one in _chain(error):
        traceback.clear_frames(one.__traceback__)
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause or context, and so on."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
