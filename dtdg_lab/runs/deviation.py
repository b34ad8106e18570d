"""How far the loss that a vertex layout trains on is from that of the whole graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def loss_deviation(steps: pd.DataFrame, evaluations: pd.DataFrame, *, first: int) -> float | None:
    """The largest relative difference of a step's loss from the evaluation of the same parameters; None without any.

    Evaluations of the training part see all vertices and all their neighbours. A step of a full-batch layout computes
    the same number where the layout is exact, and another one where it cuts off state or takes its own best vertices
    (``evolvegcn-h`` and ``dcrnn`` on ``cached_vertex``).

    Args:
        steps: table ``steps``.
        evaluations: table ``evaluations``.
        first: the first step of the layout.
    """
    exact = evaluations.loc[evaluations["split"] == "train"].drop_duplicates("step", keep="last").set_index("step")
    trained = steps.drop_duplicates("step", keep="last").set_index("step")["global_loss"]
    both = trained[trained.index >= first].to_frame().join(exact["loss"], how="inner").dropna()
    both = both[both["loss"] > 0]
    if both.empty:
        return None
    return float(((both["global_loss"] - both["loss"]).abs() / both["loss"]).max())
