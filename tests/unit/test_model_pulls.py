"""The table of what models pull, against the models themselves as they run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dtdg_lab.core import catalogue
from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.core.message_passing import Pull, directions, hops, pulls
from dtdg_lab.testing.contracts import DenseView

FEATURES, HIDDEN = 3, 4
SETTINGS = [
    *((name, {}) for name in catalogue.names("models")),
    ("tgcn", {"gc_layers": 2}),
    ("gatlstm", {"heads": 4}),
    ("dcrnn", {"diffusion_steps": 1}),
]
WAYS = {"gcn": "in", "mean": "in", "diffusion-in": "in", "attention": "in", "diffusion-out": "out"}


class Recorder(DenseView):
    """A snapshot that notes what is asked of it, for the layer that asks."""

    def __init__(self, adjacency):
        super().__init__(adjacency)
        self.now, self.asked = -1, []

    def layer(self, number):
        self.now = number
        return self

    def pull(self, x, kind, scores=None):
        sent = [x] if scores is None else [x, scores[0]]
        self.note(WAYS[kind], sent)
        return super().pull(x, kind, scores)

    def top(self, x, scores, k):
        self.note("top", [x, scores.unsqueeze(1)])
        return super().top(x, scores, k)

    def note(self, way, sent):
        width = sum(rows.shape[1] for rows in sent)
        self.asked.append(Pull(self.now, way, width, any(rows.requires_grad for rows in sent)))


def asked_of(model, snapshots=2):
    """What a model asks of each of some snapshots."""
    space = Recorder((torch.rand(6, 6, generator=torch.Generator().manual_seed(0)) < 0.4).float())
    state, found = model.initial_state(6), []
    for t in range(snapshots):
        space.asked = []
        _, state = model.snapshot(space, torch.ones(6, FEATURES) * (t + 1), state)
        found.append(tuple(space.asked))
    return found


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("name", "options"), SETTINGS, ids=str)
def test_the_table_says_what_models_do(name, options, layers):
    model = catalogue.entry("models", name).load()(FEATURES, HIDDEN, layers, **options)
    reach = model.hops_per_layer * layers
    first, later = asked_of(model)
    described = pulls(name, FEATURES, HIDDEN, layers, **options)
    assert later == tuple(replace(pull, at_first=True) for pull in described)
    assert first == tuple(replace(pull, learned=pull.learned and pull.at_first, at_first=True) for pull in described)
    assert hops(name, layers, **options) == reach
    assert directions(name) == (("in", "out") if name == "dcrnn" else ("in",))


def test_dcrnn_by_hand():
    x, h = [Pull(0, way, 3, False) for way in ("out", "in")], [Pull(0, way, 4, True) for way in ("out", "in")]
    state = [replace(pull, at_first=False) for pull in h]
    assert pulls("dcrnn", 3, 4, 1, diffusion_steps=1) == (*x, *state, *h)


def test_what_is_not_allowed():
    with pytest.raises(UnknownNameError, match="Did you mean 'tgcn'"):
        pulls("tgcnn", 3, 4, 1)
    with pytest.raises(ConfigError, match="layers=0 must be at least 1"):
        pulls("tgcn", 3, 4, 0)
    with pytest.raises(ConfigError, match="gc_layers=3 is out of range"):
        hops("tgcn", 1, gc_layers=3)
    with pytest.raises(ConfigError, match="hidden=5 must be divisible by heads=2"):
        pulls("gatlstm", 3, 5, 1)
