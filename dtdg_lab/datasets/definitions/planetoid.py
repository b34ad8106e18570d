"""Citation graphs of the Planetoid repository, static, with features, classes and a fixed split of the vertices."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dtdg_lab.datasets.published import Form, Published, PublishedFile

_RAW = "https://github.com/kimiyoung/planetoid/raw/master/data/"
_MIRROR = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/"
_PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
_LICENCE = "MIT, the repository; none stated for the LINQS data itself"
_PAGE = "https://github.com/kimiyoung/planetoid"
_NO_HASHES: Mapping[str, str] = MappingProxyType({})


def _eight_files(name: str, hashes: Mapping[str, str] = _NO_HASHES) -> Form:
    """The files as published, one for each part. The addresses were seen in public programs."""
    names = [f"ind.{name}.{part}" for part in _PARTS]
    files = tuple(
        PublishedFile(name=file, urls=(_RAW + file, _MIRROR + file), sha256=hashes.get(file, "")) for file in names
    )
    return Form(files=files, format="planetoid", by_name=True)


CORA_T = Published(
    name="cora-t",
    forms=(
        Form(
            files=(
                PublishedFile(
                    name="planetoid-cora.zip",
                    sha256="64d0d059c03d2a06f1f21fd6d951ea23946efb6583fabe38581b72f254c4e0b3",
                ),
            ),
            format="planetoid",
            by_name=True,
        ),
        Form(
            files=(
                PublishedFile(
                    name="cora-plain.zip", sha256="29498520fdc2676c14c9278fdb04030bfd18bcac6af9899f383fd47f4e2014fb"
                ),
            ),
            format="nodes_edges",
            by_name=True,
        ),
        _eight_files(
            "cora",
            {
                "ind.cora.x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
                "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
                "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
                "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
                "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
                "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
                "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
                "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
            },
        ),
    ),
    kind="static",
    page=_PAGE,
    licence=_LICENCE,
    cite="Sen et al. 2008 (AI Magazine); Yang, Cohen, Salakhutdinov 2016 (ICML, Planetoid)",
    summary="Citations among papers on machine learning, made dynamic.",
    rows=5_278,
    nodes=2_708,
    exact=True,
    bytes=572_444,
)
PUBMED_T = Published(
    name="pubmed-t",
    forms=(
        _eight_files("pubmed"),
        Form(
            files=(
                PublishedFile(
                    name="pubmed.zip",
                    also=("planetoid-pubmed.zip",),
                    urls=("https://data.dgl.ai/dataset/pubmed.zip",),
                ),
            ),
            format="planetoid",
            by_name=True,
        ),
    ),
    kind="static",
    page=_PAGE,
    licence=_LICENCE,
    cite="Sen et al. 2008 (AI Magazine); Yang, Cohen, Salakhutdinov 2016 (ICML, Planetoid)",
    summary="Citations among papers on diabetes, made dynamic.",
    rows=44_324,
    nodes=19_717,
)
