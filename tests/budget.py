"""Pytest plugin: each folder of tests has the seconds of BUDGET.md; longer is said, twice as long fails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

SLACK = 2.0  # a loaded machine is slower: over the budget is said, over twice the budget fails
TABLE = Path(__file__).with_name("BUDGET.md")


def read_budget(text: str) -> dict[str, float]:
    """Folder -> seconds, from the table of BUDGET.md."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines() if "|" in line]
    return {row[0]: float(row[1]) for row in rows if len(row) == 2 and row[1].replace(".", "", 1).isdigit()}


def overdrawn(took_s: Mapping[str, float], budget_s: Mapping[str, float]) -> list[str]:
    """One line for each folder that took longer than its seconds, or that has none."""
    lines = []
    for folder, seconds in sorted(took_s.items()):
        if folder not in budget_s:
            lines.append(f"tests/{folder} has no line in tests/BUDGET.md (it took {seconds:.1f} s)")
        elif seconds > budget_s[folder]:
            lines.append(f"tests/{folder} took {seconds:.1f} s of {budget_s[folder]:g} s (tests/BUDGET.md)")
    return lines


class BudgetKeeper:
    """Sums the seconds of set-up, call and tear-down by folder."""

    def __init__(self, budget_s: Mapping[str, float], *, enforce: bool) -> None:
        self.budget_s, self.enforce = budget_s, enforce
        self.took_s: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        parts = Path(report.nodeid.partition("::")[0]).parts
        if "slow" not in report.keywords and len(parts) > 2 and parts[0] == "tests":
            self.took_s[parts[1]] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        patience_s = {folder: SLACK * seconds for folder, seconds in self.budget_s.items()}
        if self.enforce and exitstatus == pytest.ExitCode.OK and overdrawn(self.took_s, patience_s):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("seconds by folder, of its budget")
        for folder, seconds in sorted(self.took_s.items()):
            terminalreporter.line(f"{folder:<12} {seconds:6.1f} of {self.budget_s.get(folder, 0):g}")
        for line in overdrawn(self.took_s, self.budget_s):
            terminalreporter.line(f"OVER BUDGET: {line}", red=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-budget", action="store_true", help="do not fail when tests take longer than tests/BUDGET.md")


def pytest_configure(config: pytest.Config) -> None:
    keeper = BudgetKeeper(read_budget(TABLE.read_text()), enforce=not config.getoption("--no-budget"))
    config.pluginmanager.register(keeper, "budget-keeper")
