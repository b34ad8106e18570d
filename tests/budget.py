"""Pytest plugin: seconds of each folder beside those of BUDGET.md, and why tests were skipped.

Seconds are those of tests in whichever process, divided by the number of processes. More than the budget is reported.
Machines differ: a run fails only at four times the sum, or where a folder takes twice as long as the others suggest.
`make check` chooses by the seconds of each file, which are stored here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

SLACK, SLACK_OF_SUM = 2.0, 4.0
TABLE = Path(__file__).with_name("BUDGET.md")
SECONDS = "budget/seconds_of_files"  # in pytest's cache


def read_budget(text: str) -> dict[str, float]:
    """Folder -> seconds, from the table of BUDGET.md."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines() if "|" in line]
    return {row[0]: float(row[1]) for row in rows if len(row) == 2 and row[1].replace(".", "", 1).isdigit()}


def overdrawn(spent_s: Mapping[str, float], budget_s: Mapping[str, float]) -> list[str]:
    """One line for each folder that took longer than its seconds, or that has none."""
    lines = []
    for folder, seconds in sorted(spent_s.items()):
        if folder not in budget_s:
            lines.append(f"tests/{folder} has no line in tests/BUDGET.md (it took {seconds:.1f} s)")
        elif seconds > budget_s[folder]:
            lines.append(f"tests/{folder} took {seconds:.1f} s of {budget_s[folder]:g} s (tests/BUDGET.md)")
    return lines


def failures(spent_s: Mapping[str, float], budget_s: Mapping[str, float]) -> list[str]:
    """Why a run fails: a line for the sum, and for each folder that took too long beside the others that ran."""
    lines, whole_s, most_s = [], sum(spent_s.values()), SLACK_OF_SUM * sum(budget_s.values())
    if whole_s > most_s:
        lines.append(f"all tests took {whole_s:.1f} s, more than {most_s:g} s")
    for folder, seconds in sorted(spent_s.items()):
        others_s = sum(budget_s.get(name, 0.0) for name in spent_s if name != folder)
        slowness = max(1.0, (whole_s - seconds) / others_s) if others_s else 1.0
        allowed_s = SLACK * slowness * budget_s.get(folder, 0.0)
        if seconds > allowed_s:
            lines.append(f"tests/{folder} took {seconds:.1f} s, more than {allowed_s:.1f} s")
    return lines


class BudgetKeeper:
    """Sums the seconds of set-up, call and tear-down by file, and counts reasons of skipped tests."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.budget_s = read_budget(TABLE.read_text())
        self.enforce = not config.getoption("--no-budget")
        self.file_s: defaultdict[str, float] = defaultdict(float)
        self.skipped: Counter[str] = Counter()

    def spent_s(self) -> dict[str, float]:
        """Folder -> seconds, over all processes divided by their number."""
        processes = self.config.getoption("numprocesses", None) or 1
        folders: defaultdict[str, float] = defaultdict(float)
        for file, seconds in self.file_s.items():
            folders[Path(file).parts[1]] += seconds / processes
        return folders

    def _failures(self) -> list[str]:
        return failures(self.spent_s(), self.budget_s)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        if "slow" not in report.keywords and len(Path(file).parts) > 2 and file.startswith("tests/"):
            self.file_s[file] += report.duration
        if report.skipped and isinstance(report.longrepr, tuple):
            self.skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.enforce and exitstatus == pytest.ExitCode.OK and self._failures():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if hasattr(self.config, "cache") and self.config.cache is not None:
            self.config.cache.set(SECONDS, {**self.config.cache.get(SECONDS, {}), **self.file_s})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        spent_s = self.spent_s()
        terminalreporter.section("seconds by folder, of its budget")
        for folder, seconds in sorted(spent_s.items()):
            terminalreporter.line(f"{folder:<12} {seconds:6.1f} of {self.budget_s.get(folder, 0):g}")
        terminalreporter.line(f"{'sum':<12} {sum(spent_s.values()):6.1f} of {sum(self.budget_s.values()):g}")
        for line in overdrawn(spent_s, self.budget_s):
            terminalreporter.line(f"OVER BUDGET: {line}")
        for line in self._failures() if self.enforce else ():
            terminalreporter.line(f"FAILED BY BUDGET: {line}", red=True)
        if self.skipped:
            terminalreporter.section("skipped tests by reason")
        for reason, count in self.skipped.most_common():
            terminalreporter.line(f"{count:>4}  {reason}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-budget", action="store_true", help="do not fail when tests take longer than tests/BUDGET.md")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a process of pytest-xdist: the first process gets its reports
        config.pluginmanager.register(BudgetKeeper(config), "budget-keeper")
