"""A model's view of the neighbours of nodes."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError

# kind of a pull -> the edges along which rows are received
DIRECTION_OF = {"gcn": "in", "mean": "in", "diffusion-in": "in", "diffusion-out": "out", "attention": "in"}
REDUCTIONS = ("sum", "mean", "amax")  # of messages


def check_pull(kind: str, scores: object) -> None:
    """Check a model's call of :meth:`GraphView.pull`.

    Raises:
        UnsupportedError: there is no such kind, or scores are given where the kind has none, or are missing.
    """
    if kind not in DIRECTION_OF:
        raise UnsupportedError(f"the model pulls {kind!r}: a view offers {', '.join(DIRECTION_OF)}.")
    if (scores is None) == (kind == "attention"):
        raise UnsupportedError(f"a pull of {kind!r} with scores {scores is not None}: attention alone takes them.")


class GraphView:
    """A model's view of neighbours, which a strategy implements.

    A view may stand for S snapshots stacked block-diagonally (rows s n .. (s + 1) n - 1 are snapshot s); its methods
    then work on all of them at once, and a model cannot tell. A model calls :meth:`gcn`, :meth:`mean`,
    :meth:`attention`, :meth:`messages` and :meth:`top`; a strategy's view defines :meth:`pull`, :meth:`columns`,
    :meth:`edges` and ``top``, and where they differ from the default :meth:`num_targets` and :meth:`drawn_share`.
    """

    @property
    def num_rows(self) -> int:
        """Nodes whose rows the model computes (own rows first)."""
        raise NotImplementedError

    def layer(self, number: int) -> GraphView:
        """Return the view of one layer: a strategy may count, or lay out, layers apart."""
        return self

    def gcn(self, x: Tensor) -> Tensor:
        """Return Ã x, symmetrically normalised, with self loops: (n, F) -> (n, F)."""
        return self.pull(x, "gcn")

    def mean(self, x: Tensor, edges: str = "in") -> Tensor:
        """Return the weighted mean over in- or out-neighbours (``edges``), 0 where there are none: (n, F) -> (n, F)."""
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
        """Return any message of every edge, reduced by the node that receives it: (n, F) -> (n, C).

        Args:
            x: (n, F) rows that are sent.
            message: ``message(x_source, x_target, weight)``: (E, F), (E, F) and (E, 1), or None where edges carry no
                weight -> (E, C).
            edges: ``in`` receives along edges, ``out`` against them.
            reduce: ``sum``, ``mean`` or ``amax``; a node without such edges gets 0. Where neighbours are sampled, a sum
                is divided by the share that was drawn.

        Raises:
            UnsupportedError: there is no such way to reduce, the view cannot send messages along such edges, or the
                message fails where edges carry no weight.
        """
        if reduce not in REDUCTIONS:
            raise UnsupportedError(f"reduce={reduce!r}: messages are reduced by {', '.join(REDUCTIONS)}. Choose one.")
        if edges not in ("in", "out"):
            raise UnsupportedError(f"edges={edges!r}: messages are received along 'in'- or 'out'-edges. Choose one.")
        sources = self.columns(x, edges)
        source, target, weight = self.edges(edges)
        try:
            sent = message(sources.index_select(0, source), x.index_select(0, target), weight)
        except TypeError as error:
            if weight is not None:
                raise
            raise UnsupportedError(
                f"graph.messages: the message raised {error}. Edges of this graph carry no weights, so its third "
                "argument is None: write it for None too, or choose a graph with weights."
            ) from error
        received = sent.new_zeros(self.num_targets(x, edges), *sent.shape[1:])
        if reduce == "sum":
            total, share = received.index_add(0, target, sent), self.drawn_share(edges)
            return total if share is None else total / share.view(-1, *(1,) * (sent.ndim - 1)).to(sent.dtype)
        index = target.view(-1, *(1,) * (sent.ndim - 1)).expand_as(sent)
        return received.scatter_reduce(0, index, sent, reduce, include_self=False)

    def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the rows of the k nodes of the snapshot with the largest scores, largest first, and these scores.

        Ties go to the lower node; fewer than k nodes give all of them. Differentiable in both.

        Args:
            x: (n, F).
            scores: (n,).
            k: how many.

        Returns:
            (min(k, N), F) rows and (min(k, N),) scores; the same for every part of the snapshot.
        """
        raise NotImplementedError

    def pull(self, x: Tensor, kind: str, scores: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return one hop of neighbours' rows combined, (n, F) -> (n, F).

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
        """Return of every edge the column it comes from, the row it goes to, (E,) each, and its weight, (E, 1)."""
        raise NotImplementedError

    def num_targets(self, x: Tensor, direction: str) -> int:
        """Return the number of rows that receive along a direction: of x, the first ones."""
        return len(x)

    def drawn_share(self, direction: str) -> Tensor | None:
        """Return the share of each row's neighbours that were drawn, (n,); None where all are here."""
        return None
