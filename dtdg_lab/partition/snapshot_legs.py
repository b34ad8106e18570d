"""What a step of ESDG sends between the spatial and the temporal parts of layers, leg by leg, beside the paper's count.

Every leg sends a row for each vertex and snapshot once. The paper counts six legs a layer: to vertices and back to
snapshots, in forward, in the rerun and in backward. Ours are fewer, or of other widths, where :attr:`Leg.why` says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dtdg_lab.core import catalogue
from dtdg_lab.core.model_pulls import Seam, seams

WAYS = ("forward", "rerun", "backward")
RERUN_MEMORIES = ("per_vertex", "weights_from_data", "neighbourhood")  # others need no block before to run one
_NARROW = (
    "what goes is Ã x, before its product with the layer's weights: {ours} numbers a row; the paper sends the "
    "product, of {paper}"
)
_BLOCK = "there is one block: nothing is computed again"
_LAST = "the loss is a sum over vertices, and computed where they are"
_READOUT = "pairs are scored from the readout, of {ours} numbers a row; the paper sends the embedding, of {paper}"
_SCORED_ONCE = "forward scores the last block alone: the others are scored in their rerun"
_CONSTANT = "Ã x of the data holds no parameter: nobody needs its gradient"
_KEPT = "Ã x of the data is the same in every step: it was sent in the first, and kept"
_SUMMARIES = "the paper has EvolveGCN-O only; -H reads the data, and every rank needs every snapshot's summary"


@dataclass(frozen=True, slots=True)
class Leg:
    """One redistribution of a step, or none where the paper has one.

    Attributes:
        layer: of the model, from 0.
        way: ``forward``, ``rerun`` (the same again, in all blocks but the last) or ``backward``.
        leg: ``to_vertices``, ``to_snapshots`` or ``summaries``.
        width: numbers in a row; 0 where there is no such leg.
        paper: the same as the paper counts it; 0 where it has no such leg.
        why: the reason of a difference; empty where there is none.
        only_last: whether the last block alone has it, of forward.
    """

    layer: int
    way: str
    leg: str
    width: int
    paper: int
    why: str = ""
    only_last: bool = False


def legs(
    model: str, features: int, hidden: int, layers: int, *, pairs: int = 0, blocks: int = 1, reuse: bool = False,
    **options: Any,
) -> tuple[Leg, ...]:  # fmt: skip
    """The legs of a step in their order, those that are not sent included.

    Args:
        model: name in the catalogue.
        features: F.
        hidden: H.
        layers: of the model.
        pairs: numbers of a vertex that pairs are scored from, where the task is of pairs (link prediction); 0 where the
            loss is a sum over vertices.
        blocks: nb; where there is one, nothing is computed again.
        reuse: whether Ã x of the data is kept from an earlier step (option ``halo_reuse``): it is not sent again.
        options: of the model.

    Raises:
        UnknownNameError: there is no such model.
        UnsupportedError: its memory does not run through time vertex by vertex.
        ConfigError: a size is below 1, or an option's value is not allowed.

    References: ESDG sections 4.2 (two redistributions a layer, mirrored by backward) and 3.1 (rerun).
    """
    catalogue.check_memory(model, "snapshot")
    between = seams(model, features, hidden, layers, **options)
    widths = [features, *[hidden] * (layers - 1)]
    if catalogue.entry("models", model).memory == "weights_from_data":
        return tuple(_summaries(widths, hidden, blocks))
    if not between:
        return ()
    counted = _Counted(model, tuple(widths), hidden, between, pairs, blocks, reuse)
    return tuple(leg for way in WAYS for leg in counted.of(way))


def sent(all_legs: tuple[Leg, ...]) -> tuple[Leg, ...]:
    """The legs that are sent."""
    return tuple(leg for leg in all_legs if leg.width)


def _summaries(widths: list[int], hidden: int, blocks: int) -> Iterator[Leg]:
    """A width x H summary of every snapshot and layer, to all ranks; gradients come back to the rank that made it."""
    for way in ("forward", *(["rerun"] if blocks > 1 else []), "backward"):
        layers = range(len(widths))
        for layer in reversed(layers) if way == "backward" else layers:
            yield Leg(layer, way, "summaries", widths[layer] * hidden, 0, _SUMMARIES)


@dataclass(frozen=True, slots=True)
class _Counted:
    """Both counts of a model whose vertices run through time; names as the arguments of :func:`legs`."""

    model: str
    widths: tuple[int, ...]
    hidden: int
    between: tuple[Seam, ...]
    pairs: int
    blocks: int
    reuse: bool

    def of(self, way: str) -> Iterator[Leg]:
        if way == "backward":
            yield from self._backward()
        elif way == "rerun" and self.blocks == 1:
            for leg in self._forward(way):
                yield Leg(leg.layer, way, leg.leg, 0, leg.paper, _BLOCK)
        else:
            yield from self._forward(way)

    @property
    def _last(self) -> int:
        return len(self.between) - 1

    def _input(self, layer: int) -> int:
        """Width of what the paper sends to vertices: the input of its RNN."""
        own = self.widths[layer] if self.model == "cdgcn" else 0
        return own + (2 if self.model == "mpnn-lstm" else 1) * self.hidden

    def _forward(self, way: str) -> Iterator[Leg]:
        for layer, seam in enumerate(self.between):
            paper = self._input(layer)
            if layer == 0 and self.reuse and not seam.learned:
                yield Leg(layer, way, "to_vertices", 0, paper, _KEPT)
            else:
                yield Leg(layer, way, "to_vertices", seam.width, paper, _unlike(_NARROW, seam.width, paper))
            if layer < self._last:
                yield Leg(layer, way, "to_snapshots", self.hidden, self.hidden)
        yield self._readout(way, "to_snapshots")

    def _backward(self) -> Iterator[Leg]:
        yield self._readout("backward", "to_vertices")
        for layer in range(self._last, -1, -1):
            seam, paper = self.between[layer], self._input(layer)
            width = seam.width if seam.learned else 0
            why = _unlike(_NARROW, seam.width, paper) if seam.learned else _CONSTANT
            yield Leg(layer, "backward", "to_snapshots", width, paper, why)
            if layer:  # the gradient of a layer's input, which the layer before gives
                yield Leg(layer, "backward", "to_vertices", self.hidden, self.hidden)

    def _readout(self, way: str, leg: str) -> Leg:
        """After the last layer: embeddings to snapshots in the paper, and their gradients back."""
        why = _unlike(_READOUT, self.pairs, self.hidden) if self.pairs else _LAST
        only_last = bool(self.pairs) and way == "forward" and self.blocks > 1
        if only_last:
            why = f"{why}; {_SCORED_ONCE}" if why else _SCORED_ONCE
        return Leg(self._last, way, leg, self.pairs, self.hidden, why, only_last)


def _unlike(words: str, ours: int, paper: int) -> str:
    return words.format(ours=ours, paper=paper) if ours != paper else ""
