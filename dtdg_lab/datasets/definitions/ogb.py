"""Node classification graphs of the Open Graph Benchmark (ogb.stanford.edu), static. Their addresses were all seen."""

from __future__ import annotations

from types import MappingProxyType

from dtdg_lab.datasets.published import Form, Published, PublishedFile

_URL = "snap.stanford.edu/ogb/data/nodeproppred/"
_PAGE = "https://ogb.stanford.edu/docs/nodeprop/"
_CITE = "Hu et al. 2020 (NeurIPS, OGB)"


def _zip(name: str, **options: bool) -> tuple[Form, ...]:
    file = PublishedFile(name=f"{name}.zip", urls=(f"https://{_URL}{name}.zip", f"http://{_URL}{name}.zip"))
    return (
        Form(
            files=(file,), format="ogb", by_name=True, options=MappingProxyType(options),
            without_features=MappingProxyType({"features": False}),
        ),
    )  # fmt: skip


OGBN_ARXIV_T = Published(
    name="ogbn-arxiv-t",
    forms=_zip("arxiv"),
    kind="static",
    page=f"{_PAGE}#ogbn-arxiv",
    licence="ODC-BY",
    cite=f"{_CITE} ogbn-arxiv",
    summary="Citations among arXiv papers on computer science, made dynamic.",
    rows=1_166_243,
    nodes=169_343,
    bytes=84_000_000,
)
OGBN_PRODUCTS_T = Published(
    name="ogbn-products-t",
    forms=_zip("products", both_directions=True),  # each is stored once
    kind="static",
    page=f"{_PAGE}#ogbn-products",
    licence="Amazon license",
    cite=f"{_CITE} ogbn-products",
    summary="Products bought together on Amazon, made dynamic.",
    rows=61_859_140,
    nodes=2_449_029,
    bytes=1_480_000_000,
)
OGBN_PAPERS100M_T = Published(
    name="ogbn-papers100m-t",
    forms=_zip("papers100M-bin"),
    kind="static",
    page=f"{_PAGE}#ogbn-papers100M",
    licence="ODC-BY",
    cite=f"{_CITE} ogbn-papers100M",
    summary="Citations among 111 million papers, made dynamic.",
    rows=1_615_685_872,
    nodes=111_059_956,
    bytes=60_300_000_000,
)
