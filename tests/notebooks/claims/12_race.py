# Run after the lesson, in its kernel: what its text says, by its variables.
from dtdg_lab.studies.race_table import MEASURES

assert sum(measure.judged for measure in MEASURES) == 10, "ten columns are judged"
assert race.over and set(table.index) == set(systems)
winners = {table[measure].idxmin() for measure in ("total_time_s", "bytes", "validation_loss")}
assert len(winners) > 1, "the best depends on the measure"
steps = {run.label: run.open().summary["steps"] / run.open().summary["epochs"] for run in race.runs}
assert round(steps["psg"]) == 5, "psg updates the model five times in an epoch"
assert steps["dynahb"] > steps["psg"] > steps["dygnex-g"] > 1 == steps["esdg"] == steps["adgnn-t"]
assert "bytes" in table.best_in["dynahb"], "averaging models sends least"
by_chance = {seeds: 2 * lessons.called_better(seeds) for seeds in (1, 2, 3, 5)}
assert by_chance[1] == 0 and 8 < by_chance[3] < 12 and by_chance[5] < 3, "one bold number in ten columns by chance"
assert race.checks and all(check.ok for check in race.checks), "esdg and adgnn-t compute the same training"
assert skill.max() < 0 and (table.test_loss < table.mean_loss).all(), "better than the mean, worse than persistence"
page = lab.runs.export(race, race.folder / "race.html", overwrite=True)
assert set(lab.races.open(page).table.index) == set(systems) and page.stat().st_size < 10e6
