"""Settings of a feature path follow its policy and reject numbers out of range."""

from __future__ import annotations

import pytest

from dtdg_lab.systems.feature_cache.pipeline.feature_path import FeaturePath


@pytest.mark.parametrize(
    ("policy", "mode", "decides"),
    [
        ("on_demand", "on_demand", False),
        ("prefetch", "prefetch", False),
        ("epoch_hot", "epoch_hot", False),
        ("fixed", "windows", False),
        ("double_dqn", "windows", True),
    ],
)
def test_a_policy_names_its_mode(policy: str, mode: str, decides: bool) -> None:
    path = FeaturePath.of_policy(policy, window=4, bias=2, ahead=9, depth=7)
    assert (path.mode, path.policy, path.decides, path.depth) == (mode, policy, decides, 7)
    assert path.biased == (2 if policy == "fixed" else None)
    assert path.ahead == (9 if decides else 0)
