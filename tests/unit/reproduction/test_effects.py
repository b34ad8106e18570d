import pytest

from dtdg_lab.reproduction.effects import claim_effects, comparison_text, relative
from dtdg_lab.reproduction.experiment import Claim
from dtdg_lab.reproduction.listing import measured_text
from dtdg_lab.reproduction.verdict import FAILS, HOLDS, MISSING, ClaimComparison, ClaimVerdict

LESS = Claim(
    name="less",
    text="less error",
    rule="less",
    value="test_loss",
    ours={"system": "a"},
    rival={"system": "b"},
    paper={"size": 0.2, "text": "20 %"},
)
TIMES = LESS.model_copy(update={"rule": "times", "paper": LESS.paper.model_copy(update={"size": 4.0})})
BESIDE = ClaimComparison({"dataset": "collegemsg"}, {"system": "b"}, (0.9,), (1.0,), (0.1,), 0.1)


class _Experiment:
    source = "Table 6"


def test_an_effect_is_the_gain_over_the_papers():
    assert relative(ClaimVerdict(LESS, HOLDS), 0.1) == pytest.approx(0.5)
    assert relative(ClaimVerdict(TIMES, HOLDS), 2.0) == pytest.approx(0.5)  # a half in logarithms
    assert relative(ClaimVerdict(TIMES, FAILS), 0.25) == pytest.approx(-1.0)


def test_claims_without_an_effect_are_left_out():
    limit = Claim(name="limit", text="", rule="at_most", value="share", ours={"a": 1}, paper={"size": 1, "text": ""})
    direction = LESS.model_copy(update={"paper": LESS.paper.model_copy(update={"size": 0.0})})
    verdicts = [
        ClaimVerdict(direction, HOLDS, gain=0.1),
        ClaimVerdict(LESS, HOLDS, comparisons=(BESIDE,), gain=0.1, low=0.05, high=0.15, seeds=3),
        ClaimVerdict(LESS, MISSING),
        ClaimVerdict(limit, HOLDS, gain=0.5),
    ]
    (effect,) = claim_effects([(_Experiment, verdict) for verdict in verdicts])
    assert effect.label == "Table 6: less error"
    assert effect.comparisons == {"collegemsg beside b": pytest.approx(0.5)}
    assert (effect.low, effect.high) == (pytest.approx(0.25), pytest.approx(0.75))


def test_the_text_of_a_verdict_has_interval_and_comparisons():
    verdict = ClaimVerdict(LESS, HOLDS, comparisons=(BESIDE,), gain=0.1, low=0.05, high=0.15, seeds=3)
    assert measured_text(verdict) == "10.0% less (5.0% to 15.0%), 1 comparison"
    worse = ClaimVerdict(LESS, FAILS, comparisons=(BESIDE,), gain=-0.02, low=-0.05, high=0.01, seeds=3)
    assert measured_text(worse) == "2.0% more (-1.0% to 5.0%), 1 comparison"
    assert measured_text(ClaimVerdict(LESS, MISSING, "2 of 6 cells")) == "2 of 6 cells"
    assert comparison_text(ClaimComparison({}, {"system": "b"})) == "beside b"


@pytest.mark.parametrize(
    ("value", "gain", "text"),
    [
        ("solve_s", 12.9, "12.9 s"),
        ("episode_ms", 4.0, "4.00 ms"),
        ("pays_below_bytes_s", 1.33e9, "1.33 GB/s"),
        ("chunking_share", 0.0042, "0.42%"),
        ("mean_percent", 2.5, "2.50%"),
        ("crossover_rows", 1250.0, "1,250"),
    ],
)
def test_a_value_with_a_limit_has_its_unit(value, gain, text):
    limit = Claim(name="limit", text="", rule="at_most", value=value, ours={"a": 1}, paper={"size": 1, "text": ""})
    assert measured_text(ClaimVerdict(limit, HOLDS, gain=gain)) == f"{text}, 0 comparisons"
