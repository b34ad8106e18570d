import pytest

from dtdg_lab.reproduction.experiment import Claim, Experiment
from dtdg_lab.reproduction.listing import format_verdicts, measured_text
from dtdg_lab.reproduction.verdict import FAILS, ClaimComparison, ClaimVerdict


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
    assert [line.endswith("too large (not counted)") for line in lines if "too large" in line] == [False, True]
    assert lines[-1] == "1 claim of the papers: 1 cannot be tested here."
    ours_alone = experiment.model_copy(update={"claims": experiment.claims[1:]})
    assert "claims of the papers" not in format_verdicts([ours_alone])


@pytest.mark.parametrize(
    ("rule", "value", "gain", "ends", "text"),
    [
        ("times", "near_s", 2.5, (2.0, 3.0), "2.5 times (2 to 3)"),
        ("times", "near_s", 0.4, (0.25, 0.5), "2.5 times as long (2 to 4)"),
        ("times", "seconds_per_edge", 0.4, (0.25, 0.5), "2.5 times as long (2 to 4)"),
        ("times", "over_best", 0.5, (0.25, 2.0), "2 times as much (0.5 to 4)"),
        ("less", "epoch_s", -0.2, (-0.3, 0.1), "20.0% more (-10.0% to 30.0%)"),
        ("less", "epoch_s", 0.2, (0.1, 0.3), "20.0% less (10.0% to 30.0%)"),
        ("at_most", "wait_share", 0.2, (0.1, 0.3), "20.00% (10.00% to 30.00%)"),
    ],
)
def test_a_loss_and_its_interval_are_told_as_one(rule, value, gain, ends, text):
    claim = Claim(
        name="a",
        text="a",
        rule=rule,
        value=value,
        ours={"side": "a"},
        rival={} if rule == "at_most" else {"side": "b"},
        paper={"size": 2.0 if rule == "times" else 0.1, "text": "-"},
    )
    verdict = ClaimVerdict(claim, FAILS, "", (ClaimComparison({}, {}),), gain, *ends, 3)
    assert measured_text(verdict) == f"{text}, 1 comparison"
    assert measured_text(ClaimVerdict(claim, FAILS, "", (), gain, *ends, 3, is_modelled=True)).startswith(
        f"{text}, of modelled joules"
    )
