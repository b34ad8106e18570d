"""The data sets of the catalogue: published files, static graphs made dynamic, and generators."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.entry import Entry

_EDGES = (
    "cut",
    "cut_by",
    "interval",
    "edge_life",
    "smoothing_window",
    "drop_first",
    "drop_partial",
    "min_edges",
    "features",
)
_STEPS = ("edge_life", "smoothing_window", "features")
_STATIC = ("generated_snapshots", "growth", "growth_curve", "edge_life", "smoothing_window", "features")
_LINKS = ("regression", "link")
_GIVEN_VALUES = ("regression",)  # where the file says what to predict, no next snapshot is counted
_ALL_TASKS = ("regression", "link", "classification")


def _published(
    name: str, family: str, summary: str, source: str, *, options: tuple[str, ...] = _EDGES,
    tasks: tuple[str, ...] = _LINKS, **defaults: Any,
) -> Entry:  # fmt: skip
    constant = name.upper().replace("-", "_")
    return Entry(
        name=name, room="datasets", target=f"dtdg_lab.datasets.definitions.{family}:{constant}", summary=summary,
        source=source, options=options, tasks=tasks, defaults=MappingProxyType(defaults),
    )  # fmt: skip


def _papers(cut: int, lags: int) -> Mapping[str, Any]:
    """How DynaHB and FlareDTDG cut a set: equal intervals, edges that live ``lags`` more, sparse snapshots dropped."""
    return {"cut": cut, "edge_life": lags + 1, "drop_first": True, "min_edges": 51}


_TEMPORAL: tuple[Entry, ...] = (
    _published("collegemsg", "snap", "Private messages of a college network, 193 days, cut every 2.2 days.",
               "Panzarasa, Opsahl, Carley 2009; SNAP CollegeMsg; window of EvolveGCN"),
    _published("email-eu", "snap", "E-mail of a European research institution, 803 days, cut every week.",
               "Paranjape, Benson, Leskovec 2017; SNAP email-Eu-core-temporal"),
    _published("mathoverflow", "snap", "Answers and comments on MathOverflow, 2350 days, cut every 30 days.",
               "Paranjape, Benson, Leskovec 2017; SNAP sx-mathoverflow"),
    _published("bitcoin-otc", "snap", "Who trusts whom on Bitcoin OTC, five years, cut every 13.9 days.",
               "Kumar et al. 2016, 2018; SNAP soc-sign-bitcoin-otc; window of EvolveGCN"),
    _published("bitcoin-alpha", "snap", "Who trusts whom on Bitcoin Alpha, five years, cut every 13.9 days.",
               "Kumar et al. 2016, 2018; SNAP soc-sign-bitcoin-alpha; window of EvolveGCN"),
    _published("fb-forum", "network_repository", "Posts in a student forum, 164 days, cut every day.",
               "Rossi, Ahmed 2015; Network Repository fb-forum"),
    _published("enron-employees", "network_repository", "E-mail among Enron's employees, three years, cut every week.",
               "Rossi, Ahmed 2015; Network Repository ia-enron-employees"),
    _published("wikipedia", "jodie", "Edits of 1,000 Wikipedia pages by 8,227 users, 31 days, cut every day.",
               "Kumar, Zhang, Leskovec 2019 (JODIE)"),
    _published("slashdot", "network_repository", "Replies on Slashdot; cut as DynaHB and FlareDTDG do.",
               "Network Repository ia-slashdot-reply-dir; DynaHB table 1", **_papers(200, 30)),
    _published("stackexch", "network_repository", "Interactions on Stack Exchange; cut as DynaHB and FlareDTDG do.",
               "Network Repository ia-stackexch; DynaHB table 1", **_papers(200, 30)),
    _published("amazon-ratings", "network_repository", "Ratings on Amazon; cut as DynaHB and FlareDTDG do.",
               "Network Repository rec-amazon-ratings; DynaHB table 1", **_papers(100, 30)),
    _published("flickr", "network_repository", "Growth of Flickr's contacts; cut as DynaHB and FlareDTDG do.",
               "Network Repository soc-flickr-growth; DynaHB table 1", **_papers(100, 30)),
    _published("youtube", "network_repository", "Growth of YouTube's contacts; cut as DynaHB and FlareDTDG do.",
               "Network Repository soc-youtube-growth; DynaHB table 1", **_papers(100, 20)),
    _published("soc-bitcoin", "network_repository", "Bitcoin transactions; cut as DynaHB and FlareDTDG do.",
               "Network Repository soc-bitcoin; DynaHB table 1", **_papers(100, 10)),
    _published("epinions", "konect", "Ratings of reviews on Epinions.",
               "Network Repository rec-epinions-user-ratings; ESDG table 1", cut=501),
    _published("askubuntu", "snap", "Answers and comments on Ask Ubuntu, cut every 30 days.",
               "Paranjape, Benson, Leskovec 2017; SNAP sx-askubuntu"),
    _published("stackoverflow", "snap", "Answers and comments on Stack Overflow, 50 intervals.",
               "Paranjape, Benson, Leskovec 2017; SNAP sx-stackoverflow; DyGNeX section 5.1", cut=51),
    _published("reddit-hyperlinks", "snap", "Links between communities of Reddit, cut every week.",
               "Kumar et al. 2018 (WWW); SNAP soc-RedditHyperlinks; window of EvolveGCN"),
    _published("amlsim", "amlsim", "Simulated bank transactions with laundering patterns.",
               "Weber et al. 2018 (AMLSim); ESDG table 1", cut=200),
)  # fmt: skip

_STEPPED: tuple[Entry, ...] = (
    _published("chickenpox", "pyg_temporal", "Weekly chickenpox cases of Hungary's 20 counties.",
               "Rozemberczki et al. 2021 (PyTorch Geometric Temporal)", options=_STEPS, tasks=_GIVEN_VALUES,
               features="given"),
    _published("england-covid", "pyg_temporal", "Daily COVID-19 cases and movements between 129 regions of England.",
               "Panagopoulos et al. 2021; PyTorch Geometric Temporal", options=_STEPS, tasks=_GIVEN_VALUES,
               features="given"),
    _published("twitter-tennis", "pyg_temporal", "Mentions on Twitter around a tennis tournament, hourly.",
               "Beres et al. 2018; PyTorch Geometric Temporal", options=_STEPS, tasks=_GIVEN_VALUES,
               features="given"),
    _published("elliptic", "elliptic", "Bitcoin transactions of 49 fortnights, some known as licit or illicit.",
               "Weber et al. 2019 (Elliptic)", options=_STEPS, tasks=_ALL_TASKS, features="given",
               task="classification"),
)  # fmt: skip

_GROWN: tuple[Entry, ...] = tuple(
    _published(name, family, f"{what}, made dynamic by deleting edges along a growth curve.", source,
               options=_STATIC, tasks=_ALL_TASKS, features=features, task="classification",
               generated_snapshots=51)
    for name, family, what, source, features in (
        ("cora-t", "planetoid", "Citations among 2,708 papers", "Sen et al. 2008; Planetoid; DynaHB table 1", "given"),
        ("pubmed-t", "planetoid", "Citations among 19,717 papers", "Sen et al. 2008; Planetoid; DynaHB", "given"),
        ("ogbn-arxiv-t", "ogb", "Citations among arXiv papers", "Hu et al. 2020 (OGB); DyGNeX section 5.1", "given"),
        ("ogbn-products-t", "ogb", "Products bought together", "Hu et al. 2020 (OGB); DyGNeX section 5.1", "given"),
        # its own features take 57 GB; ask for them with features="given"
        ("ogbn-papers100m-t", "ogb", "Citations among 111 million papers", "Hu et al. 2020 (OGB)", "log_degrees"),
    )
)  # fmt: skip


def _generator(name: str, target: str, summary: str, source: str, *options: str, **more: Any) -> Entry:
    read = ("generated_nodes", "generated_edges", "generated_snapshots", *options,
            "edge_life", "smoothing_window", "features")  # fmt: skip
    return Entry(
        name=name, room="datasets", target=f"dtdg_lab.datasets.generators.{target}", summary=summary, source=source,
        options=read, tasks=more.pop("tasks", _LINKS), defaults=MappingProxyType(more),
    )  # fmt: skip


_GENERATED: tuple[Entry, ...] = (
    _generator("growing", "growing:GROWING",
               "Seeded generator: popular vertices, a growing number of edges, a tenth of them renewed.",
               "ours; for the simulations of DyGNeX section 5.4 (10,000 snapshots)", "growth", "growth_curve", "churn",
               "zipf"),
    _generator("uniform", "uniform:UNIFORM",
               "Seeded generator: random edges, every snapshot independent of the others.",
               "ESDG section 6.3 (weak scaling)", generated_edges=1800),
    _generator("powerlaw", "powerlaw:POWERLAW",
               "Seeded generator: popular targets, a constant number of edges, a share of them renewed.",
               "ours; the family of the benchmark workloads W1 and W2", "churn", "zipf"),
    _generator("sbm", "communities:COMMUNITIES",
               "Seeded generator: communities that vertices move between; the community is the class.",
               "Holland et al. 1983 (block model); Goyal et al. 2018; EvolveGCN's SBM", "communities", "drift",
               tasks=_ALL_TASKS),
    _generator("transactions", "transactions:TRANSACTIONS",
               "Seeded generator: payments among accounts with planted laundering patterns, in the manner of AMLSim.",
               "imitates AMLSim (Weber et al. 2018) and is not it", tasks=_ALL_TASKS),
)  # fmt: skip

DATASETS: tuple[Entry, ...] = (*_TEMPORAL, *_STEPPED, *_GROWN, *_GENERATED)
