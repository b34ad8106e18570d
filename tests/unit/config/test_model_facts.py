"""Facts of models by name, against counts by hand."""

from __future__ import annotations

import pytest

from dtdg_lab.config.model_facts import Pull, SpatialOutput, memory, model_facts
from dtdg_lab.core.errors import ConfigError, UnknownNameError


def test_dcrnn_by_hand() -> None:
    x = [Pull(0, way, 3, False, True, "diffusion-out" if way == "out" else "mean", True) for way in ("out", "in")]
    state, gated = (
        [Pull(0, way, 4, True, first, "diffusion-out" if way == "out" else "mean") for way in ("out", "in")]
        for first in (False, True)
    )
    facts = model_facts("dcrnn", 3, 4, 1, diffusion_steps=1)
    assert facts.pulls == (*x, *state, *gated)
    assert (facts.hops, facts.directions, facts.memory) == (2, ("in", "out"), "neighbourhood")


def test_mpnn_lstm_by_hand() -> None:
    facts = model_facts("mpnn-lstm", 3, 4, 2)
    first = [Pull(0, "in", 3, False, of_features=True), Pull(0, "in", 4, True)]
    assert facts.pulls == (*first, *[Pull(1, "in", 4, True)] * 2)
    assert facts.spatial == (SpatialOutput(8, True), SpatialOutput(8, True))
    assert (facts.layer_hops, facts.hops, facts.memory) == ((2, 2), 4, "per_vertex")


def test_evolvegcn_h_by_hand() -> None:
    facts = model_facts("evolvegcn-h", 3, 4, 1)
    assert facts.pulls == (Pull(0, "top", 4, True, kind="top"), Pull(0, "in", 3, False, of_features=True))
    assert facts.along_edges == facts.pulls[1:]
    assert (facts.hops, facts.memory) == (1, "weights_from_data")


def test_sizes_and_options_out_of_bounds_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'tgcn'"):
        model_facts("tgcnn", 3, 4, 1)
    with pytest.raises(ConfigError, match="layers=0 must be at least 1"):
        model_facts("tgcn", 3, 4, 0)
    with pytest.raises(ConfigError, match="gc_layers=3 is out of range"):
        memory("tgcn", gc_layers=3)
    with pytest.raises(ConfigError, match="hidden=5 must be divisible by heads=2"):
        model_facts("gatlstm", 3, 5, 1)
