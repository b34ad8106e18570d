"""Descriptions of registered code, and names that only a run's folder knows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import System
from dtdg_lab.config.extensions import (
    Extension,
    add_absent,
    check_registered,
    extension_of,
    extensions_of,
    register_from,
    register_statements,
    target_of,
)
from dtdg_lab.config.options import OPTIONS, Option, option
from dtdg_lab.config.registration import REGISTERED, register
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.models.tgcn import TGCN
from dtdg_lab.systems.base import SystemFamily
from dtdg_lab.systems.snapshot_groups.schedulers.base import scheduler
from tests.registrations import registered_apart

PACE = Option(name="pace", owner="models", kind=float, default=1.0, low=0.0, high=2.0, meaning="Scale of inputs.")


class Paced(TGCN):
    """A model of a test."""

    def __init__(self, *sizes: int, pace: float = 1.0, **named: Any) -> None:
        super().__init__(*sizes, **named)
        self.pace = pace

    def scale(self) -> float:
        """Scale of inputs."""
        return 1.0


class Spare(SystemFamily):
    """A family of a test."""

    name = "spare"
    systems = (
        System(
            name="psg-spare", family="spare", parts={"parallel": "snapshot_group"}, summary="Spare.", source="this test"
        ),
    )


SPARE = Spare()


@scheduler
def backwards(problem: Any) -> None:
    """The last group first."""


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    with registered_apart():
        yield


def described_elsewhere() -> list[Extension]:
    """What a folder describes after all of it was registered, in a process that has registered none."""
    with registered_apart():
        register(Paced, "model", "paced", options=[PACE])
        register(backwards, "scheduler")
        register(SPARE)
        return [Extension.from_dict(extension_of(one).to_dict()) for one in REGISTERED]


def test_a_config_names_what_a_folder_describes() -> None:
    with pytest.raises(UnknownNameError):
        RunConfig(model="paced")
    add_absent(described_elsewhere())
    config = RunConfig(system="psg-spare", model="paced", pace=0.5)
    assert config["pace"] == 0.5 and config.replace(epochs=2).flat["pace"] == 0.5
    assert RunConfig(system="psg", scheduler="backwards")["scheduler"] == "backwards"
    with pytest.raises(ConfigError, match=r"pace=3.0 is out of range"):
        config.replace(pace=3.0)
    for kind, name in (("models", "paced"), ("scheduling", "backwards"), ("systems", "psg-spare")):
        assert name not in catalogue.names(kind)
    assert "backwards" not in option("scheduler").choices and "spare" not in catalogue.FAMILIES


def test_training_with_it_is_refused_with_what_to_register() -> None:
    add_absent(described_elsewhere())
    plain = RunConfig(system="psg")
    check_registered(plain)
    call = (
        rf'lab.register\("{__name__}:Paced", "model", "paced", options=\[Option\(name="pace", owner="models", '
        r'kind=float, default=1.0, meaning="Scale of inputs.", low=0.0, high=2.0\)\]\)'
    )
    with pytest.raises(ConfigError, match=f"model 'paced' is not registered here. Register it first: {call}"):
        check_registered(plain.replace(model="paced"))
    with pytest.raises(ConfigError, match="scheduler 'backwards' is not registered here"):
        check_registered(plain.replace(scheduler="backwards"))
    with pytest.raises(ConfigError, match="scheduler 'backwards' is not registered here"):
        check_registered(texts={"backwards"})
    with pytest.raises(ConfigError, match=f"--register {__name__}:SPARE"):
        check_registered(plain.replace(system="psg-spare"))
    for load in (catalogue.entry("models", "paced").load, lambda: catalogue.family("spare").build(None)):
        with pytest.raises(ConfigError, match="is not registered here"):
            load()


def test_what_is_registered_later_is_no_longer_absent() -> None:
    add_absent(described_elsewhere())
    register(Paced, "model", "paced", options=[PACE])
    register(SPARE)
    check_registered(RunConfig(system="psg-spare", model="paced"))
    assert catalogue.entry("models", "paced").load() is Paced and option("pace") is PACE
    assert list(catalogue.ABSENT) == [("scheduling", "backwards")] and not catalogue.ABSENT_OPTIONS


def test_what_is_registered_stays_where_a_folder_describes_it() -> None:
    register(Paced, "model", "paced", options=[PACE])
    before = dict(OPTIONS)
    add_absent(described_elsewhere()[:1])
    assert catalogue.ABSENT == {} and before == OPTIONS


def test_a_folder_changes_no_option_that_an_entry_reads() -> None:
    add_absent(described_elsewhere()[:1])
    catalogue.ENTRIES.append(replace(catalogue.entry("models", "tgcn"), name="reader", options=("pace",)))
    other = described_elsewhere()[0]
    add_absent([replace(other, declared=({**other.declared[0], "default": 2.0},))])
    assert option("pace").default == 1.0


def test_a_lambda_on_a_line_of_a_call_has_no_defining_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for number, line in enumerate(("lambda graph, parts: None,", "what=lambda graph, parts: None,")):
        text = f"register(\n    {line}\n    kind='partitioner', name='of_lambda{number}')\n"
        cell = tmp_path / f"cell{number}.py"
        cell.write_text(text)
        exec(compile(text, str(cell), "exec"), {"__name__": "__main__", "register": register})
        extension = extension_of(REGISTERED[-1])
        assert extension.code == extension.qualname == "" and "raise NotImplementedError" in extension.statements


def test_a_config_uses_only_some_registrations() -> None:
    register(Paced, "model", "paced", options=[PACE])
    register(backwards, "scheduler")
    config = RunConfig(system="psg")
    assert extensions_of(config) == ()
    assert [one.name for one in extensions_of(config, config.replace(model="paced"))] == ["paced"]
    assert [one.name for one in extensions_of(config.replace(scheduler="backwards"))] == ["backwards"]
    assert [one.name for one in extensions_of(texts=["paced"])] == ["paced"]


def test_code_of_main_has_no_target(monkeypatch: pytest.MonkeyPatch) -> None:
    assert target_of(Paced) == f"{__name__}:Paced" and target_of(SPARE) == f"{__name__}:SPARE"
    assert target_of("a.module:name") == "a.module:name" and target_of("__main__:Name") == ""
    monkeypatch.setattr(Paced, "__module__", "__main__")
    assert target_of(Paced) == ""
    register(Paced, "model", "paced")
    (extension,) = extensions_of(RunConfig(model="paced"))
    assert (extension.target, extension.qualname) == ("", "Paced") and "class Paced(TGCN):" in extension.code
    assert "in a cell that defines Paced as the run had it; its source is in" in extension.remedy
    assert extension.argument == "FILE.py"


def test_statements_register_again() -> None:
    register(Paced, "model", "paced", options=[PACE])
    text = register_statements(extensions_of(RunConfig(model="paced")))
    assert text.startswith("from dtdg_lab.config.options import Option\n\n# ") and text.endswith("\n\n")
    with registered_apart():
        REGISTERED[-1].remove()
        import dtdg_lab as lab

        exec(text, {"lab": lab})
        assert catalogue.entry("models", "paced").load() is Paced and option("pace") == PACE
    lost = Extension(kind="datasets", name="ring")
    assert "raise NotImplementedError(" in register_statements([lost]) and register_statements([]) == ""


FILE = 'import dtdg_lab as lab\nlab.register("{module}:backwards", "scheduler", "of_file")\n'


def test_a_file_registers_as_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "file_of_a_test.py").write_text(FILE.format(module=__name__))
    register_from(str(tmp_path / "file_of_a_test.py"))
    assert "of_file" in catalogue.names("scheduling") and sys.path[-1] == str(tmp_path)
    register_from(f"{__name__}:SPARE")
    assert catalogue.system("psg-spare") is Spare.systems[0]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("nowhere.py", None, "there is no such file"),
        ("failing_of_a_test.py", "1 / 0", "the file raised ZeroDivisionError: division by zero"),
        ("empty_of_a_test.py", "", "the file registers nothing"),
        ("json.py", "", r"a module 'json' is already imported from .*json/__init__.py. Rename the file"),
    ],
)
def test_a_file_that_cannot_register_is_refused(
    name: str, text: str | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=f"--register .*{name}: {why}"):
        register_from(str(tmp_path / name))
