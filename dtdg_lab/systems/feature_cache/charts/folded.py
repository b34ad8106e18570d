"""."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.systems.feature_cache.charts.decisions import (
    _decisions_caption,
    _decisions_figure,
    _values_caption,
    _values_figure,
)
from dtdg_lab.systems.feature_cache.charts.run_facts import (
    fetches_features,
)
from dtdg_lab.systems.feature_cache.charts.traffic import (
    _asked_caption,
    _asked_figure,
    _bytes_caption,
    _bytes_figure,
    _links_caption,
    _links_figure,
)
from dtdg_lab.visualization.chart import Chart

if TYPE_CHECKING:
    pass


FOLDED = (
    Chart(
        name="links",
        title="Links now",
        figure=_links_figure,
        caption=_links_caption,
        place="folded",
        shown=fetches_features,
        help="Rows reply, columns ask. Gradients are sent on other links, which are not slowed down.",
    ),
    Chart(
        name="rows_by_owner",
        title="Rows asked by owner",
        figure=_asked_figure,
        caption=_asked_caption,
        place="folded",
        shown=fetches_features,
        help="Rows of the last 50 steps. The owner that is slowest to reply decides how long a batch waits.",
    ),
    Chart(
        name="feature_bytes",
        title="Bytes moved",
        figure=_bytes_figure,
        caption=_bytes_caption,
        place="folded",
        shown=fetches_features,
        help="Training may wait for bytes of batches; bytes of caches are fetched beside it.",
    ),
    Chart(
        name="cache_decisions",
        title="Decisions",
        figure=_decisions_figure,
        caption=_decisions_caption,
        place="folded",
        shown=fetches_features,
        help="Each point is a window chosen by a part, in the colour of the owner that gets most of the cache.",
    ),
    Chart(
        name="action_values",
        title="Value of each action",
        figure=_values_figure,
        caption=_values_caption,
        place="folded",
        shown=fetches_features,
        help="Value less that of the best action. Where two cells differ little, either action will do.",
    ),
)
