"""RapidGNN in the simulator: one cache for each epoch, shared out evenly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.cache_views import CacheViews
from dtdg_lab.core.feature_path import CacheActions


class EpochHot:
    """Rebuilds where an epoch begins.

    Only simulated: live it is a mode of the feature path and decides nothing. Its window, the steps of an epoch, is
    none of an action's; the simulator numbers it after them (:class:`dtdg_lab.control.cache_tables.CacheTables`).

    What it costs is the law of every window, read at the epoch's length: as in our pipeline, the cache of the next epoch
    is fetched while this one trains, its bytes spread over all steps of the epoch. An epoch of 25 steps then costs
    nearly what W = 16 does. The authors' own campaign measured RapidGNN at 5 to 35 % more joules than W = 16, although
    there steps at W = 32 take within 1 % of those at W = 16: what makes up the difference is in no calibrated cost, and
    the campaign does not tell it. Left out here are:

    - time and joules in which training stands still between epochs, for the next epoch's cache to be fetched at once;
    - sampling a whole epoch ahead and counting it, and the memory and disk that this takes;
    - a first cache, which no policy pays for;
    - its own server, client and loader: constants are those of GreenDyGNN's pipeline, at all windows.

    So a policy is better than RapidGNN by less here than where the real one ran.

    Args:
        actions: what may be chosen.

    References: GreenDyGNN section VI-A ("RapidGNN").
    """

    name = "epoch_hot"

    def __init__(self, actions: CacheActions) -> None:
        self.first = len(actions)

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """(B,) the window of an epoch for every run."""
        return np.full(len(views.steps), self.first)
