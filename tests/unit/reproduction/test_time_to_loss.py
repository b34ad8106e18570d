from dtdg_lab.reproduction.rows import MeasuredRow
from dtdg_lab.reproduction.time_to_loss import near_costs


def row_of(key, curve, seed=0, persistence=1.0):
    return MeasuredRow(
        key=key,
        labels={},
        seed=seed,
        values={"validation_persistence_loss": persistence},
        seconds=1,
        rules=(),
        commit="",
        date="",
        device="cpu",
        machine={},
        curve=curve,
    )


FAST = row_of("fast", ((1.0, 10.0, 0.5), (2.0, 20.0, 0.41), (3.0, 30.0, 0.40)))
SLOW = row_of("slow", ((2.0, 5.0, 0.6), (9.0, 50.0, 0.5)))


def test_a_loss_within_five_percent_of_the_best_is_near():
    near = near_costs([FAST, SLOW], "near_s")
    assert near.costs == {"fast": 2.0, "slow": 9.0}  # 0.41 is below 0.42; the slow one's whole time is a lower bound
    assert near.unreached == {"slow"}
    assert near_costs([FAST, SLOW], "near_j").costs == {"fast": 20.0, "slow": 50.0}


def test_each_seed_has_its_own_target():
    other = row_of("other", ((1.0, None, 0.9), (4.0, None, 0.8)), seed=1)
    near = near_costs([FAST, other], "near_s")
    assert near.costs["other"] == 4.0
    assert near.unreached == frozenset()
    assert near_costs([FAST, other], "near_j").costs["other"] is None


def test_a_target_that_persistence_reaches_is_marked():
    assert near_costs([FAST, SLOW], "near_s").below_persistence
    assert not near_costs([row_of("weak", FAST.curve, persistence=0.3), SLOW], "near_s").below_persistence
