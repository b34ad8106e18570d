"""Tables and columns of records."""

from __future__ import annotations

import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.config import record_tables as records


def test_a_table_is_declared_once() -> None:
    declared = [table for each in catalogue.DECLARED.values() for table in each.get("tables", {})]
    assert sorted(declared) == sorted(records.TABLES)


@pytest.mark.parametrize("table", records.TABLES)
def test_tables_have_unique_columns(table: str) -> None:
    columns = records.TABLES[table]
    assert columns
    assert len(set(columns)) == len(columns)
    assert not {"rank", "attempt", "seq"} & set(columns)  # they hold for a whole line


def test_steps_have_a_column_for_every_phase() -> None:
    assert len(set(records.PHASES)) == len(records.PHASES)
    assert {f"{phase}_s" for phase in records.PHASES} <= set(records.STEPS)
    assert not set(records.PHASES) & set(records.BETWEEN_STEPS)


def test_meanings_are_of_columns() -> None:
    columns = {column for table in records.TABLES.values() for column in table}
    assert set(records.MEANINGS) <= columns
