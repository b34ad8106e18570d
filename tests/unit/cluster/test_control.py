"""Who changes settings from a process: a notebook, a program, or a name that is given."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dtdg_lab.cluster.control import requester
from dtdg_lab.core.errors import ConfigError


def test_a_given_name_is_taken() -> None:
    assert requester("sweep.py") == "sweep.py"


@pytest.mark.parametrize("by", ["", "two\nlines", "x" * 81, 7])
def test_other_names_are_refused(by: Any) -> None:
    with pytest.raises(ConfigError, match="give a name in one line"):
        requester(by)


@pytest.mark.parametrize(
    ("file", "module", "name"),
    [("/home/me/sweep.py", None, "sweep.py"), (None, None, "python"), ("x.py", "my_tools.__main__", "my_tools")],
    ids=["script", "interpreter", "module"],
)
def test_a_program_has_the_name_of_its_file_or_module(
    file: str | None, module: str | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = ModuleType("__main__")
    main.__file__ = file
    main.__spec__ = None if module is None else SimpleNamespace(name=module)  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert requester() == name


@pytest.mark.parametrize(("shell", "name"), [(SimpleNamespace(kernel=1), "notebook"), (None, "python")])
def test_a_kernel_is_a_notebook(shell: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: shell)
    assert requester() == name
