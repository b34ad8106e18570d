import pytest

from dtdg_lab.reproduction.experiment import Claim, Experiment
from dtdg_lab.reproduction.listing import comparison_rows, decision_text, format_verdicts, gain_heading, measured_text
from dtdg_lab.reproduction.verdict import FAILS, PARTLY, ClaimComparison, ClaimVerdict


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
    assert lines[-1] == "1 claim of the papers: 1 cannot be tested here; 0 not established."
    ours_alone = experiment.model_copy(update={"claims": experiment.claims[1:]})
    assert "claims of the papers" not in format_verdicts([ours_alone])


@pytest.mark.parametrize(
    ("rule", "gain", "low", "high", "text"),
    [
        ("less", 0.1, -0.1, 0.3, "holds partly, not established"),
        ("less", 0.1, 0.01, 0.3, "holds partly"),
        ("less", 0.1, None, None, "holds partly"),  # one seed
        ("times", 1.1, 0.9, 1.3, "holds partly, not established"),
        ("times", 0.1, 0.0, 0.3, "holds partly"),  # every seed is slower
        ("times", 1.0, 1.0, 1.0, "holds partly, not established"),
        ("equal", 1.0, -1.0, 3.0, "holds partly, not established"),
        ("equal", 0.0, -1.0, 1.0, "holds partly"),  # within the tolerance; a comparison is not
        ("at_most", 1.9, 1.0, 2.8, "holds partly, not established"),
    ],
)
def test_a_verdict_is_not_established_if_its_interval_includes_what_decides(rule, gain, low, high, text):
    rival = {} if rule == "at_most" else {"side": "b"}
    paper = {"size": 0.5 if rule == "less" else 2, "text": ""}
    claim = Claim(name="a", text="a", rule=rule, value="v", ours={"side": "a"}, rival=rival, paper=paper)
    assert decision_text(ClaimVerdict(claim, PARTLY, "", (), gain, low, high, 3)) == text


@pytest.mark.parametrize(
    ("second", "text"),
    [((1.9, 1.95, 2.0), "holds partly, not established"), ((2.2, 2.3, 2.25), "holds partly")],
)
def test_a_limit_that_no_comparison_is_beyond_for_certain_is_not_established(second, text):
    claim = Claim(name="a", text="a", rule="at_most", value="v", ours={"side": "a"}, paper={"size": 2, "text": ""})
    comparisons = tuple(ClaimComparison({}, {}, gains=gains) for gains in ((0.1, 0.11, 0.12), second))
    assert decision_text(ClaimVerdict(claim, PARTLY, "", comparisons, 1.1, 1.0, 1.2, 3)) == text


@pytest.mark.parametrize(
    ("rule", "value", "heading"),
    [
        ("at_most", "wait_s", "wait_s, at most 20.0 ms"),
        ("equal", "test_loss", "difference (test_loss), within 2.0%"),
        ("no_more", "test_loss", "difference (test_loss), at most 2.0%"),
        ("less", "joules", "gain (joules)"),
    ],
)
def test_the_last_column_says_what_must_be_kept(rule, value, heading):
    rival = {} if rule == "at_most" else {"side": "b"}
    paper = {"size": 0.02, "text": ""}
    claim = Claim(name="a", text="a", rule=rule, value=value, ours={"side": "a"}, rival=rival, paper=paper)
    assert gain_heading(claim) == heading


def test_comparisons_are_listed_with_the_numbers_of_both_sides_or_why_they_do_not_count():
    claim = Claim(
        name="a",
        text="a",
        rule="times",
        value="near_s",
        ours={"side": "a"},
        rival={"side": "b"},
        paper={"size": 2, "text": ""},
    )
    counted = ClaimComparison({"dataset": "one"}, {}, (1.0, 2.0), (3.0, 3.0), (3.0, 1.5), 2.121, censored=True)
    verdict = ClaimVerdict(claim, PARTLY, "", (counted, ClaimComparison({"dataset": "two"}, {}, left_out="too large")))
    assert comparison_rows(verdict) == [
        ("one", "1.5 (1 to 2)", "3", "2.12 times (a bound)"),
        ("two", "-", "-", "left out: too large"),
    ]


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
