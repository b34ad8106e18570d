"""Networks that are read as KONECT (konect.cc) publishes them, or as Network Repository does."""

from __future__ import annotations

from dtdg_lab.datasets.definitions.network_repository import DAY_S, edges_in_zip, konect
from dtdg_lab.datasets.published import Published

EPINIONS = Published(
    name="epinions",
    forms=(edges_in_zip("rec-epinions-user-ratings"), konect("epinions-rating")),
    kind="edges",
    page="http://konect.cc/networks/epinions-rating/",
    licence="not stated; cite the collection",
    cite="Massa, Avesani 2005; KONECT epinions-rating, Network Repository rec-epinions-user-ratings; ESDG table 1",
    summary="Ratings of reviews on Epinions, 1 to 5, which are the weights.",
    interval=DAY_S,  # ESDG has 501 snapshots, and the ratings span as many days
    rows=13_668_320,
    nodes=755_760,
)
