"""JupyterLab opens without a question about news and without nbgrader, until a teacher's commands switch it on."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jupyter_server.services.config.manager import ConfigManager

ROOT = Path(__file__).resolve().parents[2]
OWN = "etc/jupyter/jupyter_server_config.d/nbgrader.json"  # what nbgrader installs
# a program of Jupyter's in an environment that lies elsewhere
IN = "import sys; sys.prefix, *sys.argv = sys.argv[1:]; "
PROGRAMS = {
    "labextension": "from jupyterlab.labextensions import main; main()",
    "server": "from jupyter_server.serverapp import main; main()",
}
STATE = """
import json
from jupyter_core.paths import jupyter_config_path
from jupyter_server.extension.config import ExtensionConfigManager
from jupyterlab_server.config import get_page_config
loaded = ExtensionConfigManager(read_config_path=jupyter_config_path()).get_jpserver_extensions()
print(json.dumps({
    "server": [on for name, on in loaded.items() if name.startswith("nbgrader")],
    "page": "@jupyter/nbgrader" not in get_page_config([])["disabledExtensions"],
}))
"""


def run(code: str, prefix: Path, *arguments: str) -> str:
    environment = {**os.environ, "JUPYTER_CONFIG_DIR": str(prefix / "user")}
    command = [sys.executable, "-c", IN + code, str(prefix), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The settings of an environment in which nbgrader is installed, after ``make env``."""
    shutil.copytree(ROOT / "etc", tmp_path / "etc")
    shutil.copy(Path(sys.prefix) / OWN, tmp_path / OWN)
    return tmp_path


def test_nbgrader_is_off_until_the_commands_for_teachers_switch_it_on(environment: Path) -> None:
    assert json.loads(run(STATE, environment)) == {"server": [False] * 4, "page": False}
    text = (ROOT / "docs" / "instructor.md").read_text()
    lines = [shlex.split(line) for line in re.findall(r"^\.venv/bin/jupyter (.*)$", text, flags=re.M)]
    assert [program for program, *_ in lines] == ["labextension", "server"]
    for program, *words in lines:
        run(PROGRAMS[program], environment, program, *words)
    assert json.loads(run(STATE, environment)) == {"server": [True] * 4, "page": True}


def test_the_question_about_news_is_answered() -> None:
    manager = ConfigManager(read_config_path=[str(ROOT / "etc" / "jupyter" / "labconfig")])
    settings = manager.get("default_setting_overrides")["@jupyterlab/apputils-extension:notification"]
    assert settings == {"fetchNews": "false", "checkForUpdates": False}
    file = Path(sys.prefix) / "share/jupyter/lab/schemas/@jupyterlab/apputils-extension/notification.json"
    schema = json.loads(file.read_text())["properties"]
    assert set(settings) <= set(schema), "JupyterLab knows these settings"
    assert "false" in json.dumps(schema["fetchNews"])
