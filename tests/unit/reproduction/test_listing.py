from dtdg_lab.reproduction.experiment import Experiment
from dtdg_lab.reproduction.listing import format_verdicts


def test_claims_of_the_lab_are_listed_and_not_counted(tmp_path):
    claims = [
        {"name": name, "text": name, "paper": {"text": "-"}, "untestable": "too large", "of_lab": name == "ours"}
        for name in ("theirs", "ours")
    ]
    experiment = Experiment(
        paper="paper",
        name="table1",
        folder=tmp_path,
        title="",
        source="",
        question="",
        protocol="",
        cell_s=1,
        claims=claims,
    )
    lines = format_verdicts([experiment]).splitlines()
    assert sum("too large" in line for line in lines) == 2
    assert lines[-1] == "1 claim of the papers: 1 cannot be tested here."
