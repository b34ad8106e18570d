"""A model's view of a graph, and its dense reference implementation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError

# kind of a pull -> direction of its edges
DIRECTION_OF = {"gcn": "in", "mean": "in", "diffusion-in": "in", "diffusion-out": "out", "attention": "in"}
REDUCTIONS = ("sum", "mean", "amax")  # reductions of messages


def check_pull(kind: str, scores: object) -> None:
    """Check a model's call of :meth:`GraphView.pull`.

    Raises:
        UnsupportedError: there is no such kind, or scores are missing for ``attention`` or given for another kind.
    """
    if kind not in DIRECTION_OF:
        raise UnsupportedError(f"the model pulls {kind!r}, but a view offers only {', '.join(DIRECTION_OF)}.")
    if (scores is None) == (kind == "attention"):
        given = "without scores" if scores is None else "with scores"
        raise UnsupportedError(f"a pull of {kind!r} {given}: only attention takes scores, and it needs them.")


class GraphView:
    """A model's view of nodes and their neighbours, implemented by the engine.

    A view may have S snapshots, stacked block-diagonally (rows s n .. (s + 1) n - 1 are snapshot s). Its methods then
    work on all of them at once, transparently to the model. A model calls :meth:`gcn`, :meth:`mean`,
    :meth:`attention`, :meth:`messages` and :meth:`top`. A subclass defines :meth:`pull`, :meth:`columns`,
    :meth:`edges` and ``top``, and optionally :meth:`num_targets` and :meth:`sampled_share`.
    """

    @property
    def num_rows(self) -> int:
        """Number of rows that the model computes (own rows first)."""
        raise NotImplementedError

    def layer(self, number: int) -> GraphView:
        """Return the view of one layer; layers may have different rows or records."""
        return self

    def gcn(self, x: Tensor) -> Tensor:
        """Return Ã x, symmetrically normalised, with self-loops: (n, F) -> (n, F)."""
        return self.pull(x, "gcn")

    def mean(self, x: Tensor, edges: str = "in") -> Tensor:
        """Return the weighted mean over in- or out-neighbours (``edges``), 0 without any: (n, F) -> (n, F)."""
        return self.pull(x, "diffusion-out" if edges == "out" else "mean")

    def attention(self, x: Tensor, scores_from: Tensor, scores_to: Tensor) -> Tensor:
        """Return softmax attention over in-neighbours and the node itself.

        Args:
            x: (n, heads d), the heads side by side.
            scores_from: (n, heads).
            scores_to: (n, heads): node v weighs u by the softmax over u of LeakyReLU(from[u] + to[v]), slope 0.2.
        """
        return self.pull(x, "attention", (scores_from, scores_to))

    def messages(
        self,
        x: Tensor,
        message: Callable[[Tensor, Tensor, Tensor | None], Tensor],
        edges: str = "in",
        reduce: str = "sum",
    ) -> Tensor:
        """Compute a message for every edge, and reduce them by receiving node: (n, F) -> (n, C).

        Args:
            x: (n, F) rows to send.
            message: ``message(x_source, x_target, weight)``: (E, F), (E, F) and (E, 1), or None without edge weights,
                -> (E, C).
            edges: ``in`` receives along edges, ``out`` against them.
            reduce: ``sum``, ``mean`` or ``amax``; a node without such edges gets 0. A sum over sampled neighbours is
                divided by the sampled share.

        Raises:
            UnsupportedError: ``reduce`` or ``edges`` is unknown or not supported, or the message fails without weights.
        """
        if reduce not in REDUCTIONS:
            raise UnsupportedError(f"reduce={reduce!r} is unknown. Choose one of {', '.join(REDUCTIONS)}.")
        if edges not in ("in", "out"):
            raise UnsupportedError(f"edges={edges!r} is unknown. Choose 'in' or 'out'.")
        sources = self.columns(x, edges)
        source, target, weight = self.edges(edges)
        try:
            sent = message(sources.index_select(0, source), x.index_select(0, target), weight)
        except TypeError as error:
            if weight is not None:
                raise
            raise UnsupportedError(
                f"graph.messages: the message raised {error}. Edges of this graph carry no weights, so its third "
                "argument is None. Handle None in the message, or choose a graph with weights."
            ) from error
        received = sent.new_zeros(self.num_targets(x, edges), *sent.shape[1:])
        if reduce == "sum":
            total, share = received.index_add(0, target, sent), self.sampled_share(edges)
            return total if share is None else total / share.view(-1, *(1,) * (sent.ndim - 1)).to(sent.dtype)
        index = target.view(-1, *(1,) * (sent.ndim - 1)).expand_as(sent)
        return received.scatter_reduce(0, index, sent, reduce, include_self=False)

    def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the rows and scores of the k nodes of the snapshot with the largest scores, largest first.

        Ties go to the lower node. Differentiable in both.

        Args:
            x: (n, F).
            scores: (n,).
            k: number of nodes.

        Returns:
            (min(k, N), F) rows and (min(k, N),) scores; the same for every part of the snapshot.
        """
        raise NotImplementedError

    def pull(self, x: Tensor, kind: str, scores: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Combine the neighbours' rows over one hop, (n, F) -> (n, F).

        Args:
            x: (n, F) rows; for ``attention`` (n, heads d).
            kind: ``gcn``, ``mean`` and ``diffusion-in`` (weighted mean over in-neighbours), ``diffusion-out`` or
                ``attention``.
            scores: for ``attention``, (from, to), each (n, heads).
        """
        raise NotImplementedError

    def columns(self, x: Tensor, direction: str) -> Tensor:
        """Return the rows that own rows receive from, own rows first: (n, F) -> (M, F), differentiable."""
        raise NotImplementedError

    def edges(self, direction: str) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the source column and target row of every edge, (E,) each, and its weight, (E, 1) or None."""
        raise NotImplementedError

    def num_targets(self, x: Tensor, direction: str) -> int:
        """Return the number of rows that receive along a direction; they are the first rows of x."""
        return len(x)

    def sampled_share(self, direction: str) -> Tensor | None:
        """Return the sampled share of each row's neighbours, (n,); None without sampling."""
        return None


class DenseView(GraphView):
    """A view of a dense (N, N) matrix: a snapshot, or several stacked with ``torch.block_diag``.

    Args:
        adjacency: (N, N); row v has the weights of the edges into v.
    """

    def __init__(self, adjacency: Tensor) -> None:
        self.adjacency = adjacency

    def layer(self, number: int) -> DenseView:
        """Return this view: all layers are alike."""
        return self

    @property
    def num_rows(self) -> int:
        """Number of nodes, N."""
        return len(self.adjacency)

    def pull(self, x: Tensor, kind: str, scores: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Combine the neighbours' rows over one hop, (N, F) -> (N, F)."""
        check_pull(kind, scores)
        if scores is not None:
            return _attention(self.adjacency, x, *scores)
        if kind == "gcn":
            return dense_gcn(self.adjacency) @ x
        return _row_mean(self.adjacency.T if kind == "diffusion-out" else self.adjacency) @ x

    def columns(self, x: Tensor, direction: str) -> Tensor:
        """Return x: it has the rows of all nodes."""
        return x

    def edges(self, direction: str) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return source, target and weight of every edge."""
        received = self.adjacency if direction == "in" else self.adjacency.T
        target, source = received.nonzero(as_tuple=True)
        return source, target, received[target, source].unsqueeze(1)

    def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k largest scores and their rows, ties to the lower node."""
        if scores.shape != x.shape[:1]:
            raise UnsupportedError(
                f"graph.top got scores of shape {tuple(scores.shape)} for {len(x)} nodes. Give shape ({len(x)},)."
            )
        top_rows = torch.sort(scores, descending=True, stable=True).indices[:k]
        return x[top_rows], scores[top_rows]


def dense_gcn(adjacency: Tensor) -> Tensor:
    """Return the dense matrix D^-1/2 (A + I) D^-1/2 with D = 1 + weighted in-degree, (N, N)."""
    scale = (1.0 + adjacency.sum(dim=1)).pow(-0.5)
    return scale[:, None] * (adjacency + torch.eye(len(adjacency), dtype=adjacency.dtype)) * scale[None, :]


def _row_mean(weights: Tensor) -> Tensor:
    total = weights.sum(dim=1, keepdim=True)
    return torch.where(total != 0, weights / torch.where(total != 0, total, 1.0), 0.0)


def _attention(adjacency: Tensor, x: Tensor, from_score: Tensor, to_score: Tensor) -> Tensor:
    received = (adjacency != 0) | torch.eye(len(adjacency), dtype=torch.bool)
    scores = torch.nn.functional.leaky_relu(to_score[:, None] + from_score[None], 0.2)  # (N to, N from, heads)
    shares = torch.softmax(scores.masked_fill(~received[..., None], -torch.inf), dim=1)
    return torch.einsum("vuh,uhd->vhd", shares, x.unflatten(1, (from_score.shape[1], -1))).flatten(1)
