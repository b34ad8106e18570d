"""Sequences that PyTorch Geometric Temporal publishes, already cut to steps. Their addresses were all seen."""

from __future__ import annotations

from types import MappingProxyType

from dtdg_lab.datasets.published import Form, Published, PublishedFile

_RAW = "https://raw.githubusercontent.com/benedekrozemberczki/pytorch_geometric_temporal/master/dataset/"
_BLOB = "https://github.com/benedekrozemberczki/pytorch_geometric_temporal/raw/master/dataset/"
_PAGE = "https://pytorch-geometric-temporal.readthedocs.io/en/latest/modules/dataset.html"
_LICENCE = "MIT, the library that publishes it"


def _json(name: str, variant: str, sha256: str, sha256_content: str) -> tuple[Form, ...]:
    """The one form of a JSON file; ``sha256`` is that of a gzipped copy, as it is published plain."""
    file = PublishedFile(
        name=f"{name}.json", also=(f"{name}.json.gz",), urls=(f"{_RAW}{name}.json", f"{_BLOB}{name}.json"),
        sha256=sha256, sha256_content=sha256_content,
    )  # fmt: skip
    return (Form(files=(file,), format="pygt_json", options=MappingProxyType({"variant": variant})),)


CHICKENPOX = Published(
    name="chickenpox",
    forms=_json(
        "chickenpox",
        "chickenpox",
        "9c42fe4d795a7c049c4f397dc420ec3fda31edcbb0e2bf47065a31055beda9c9",
        "724b48cfb274b2ecbb855bdb99b970b5ef9dd3671694fa477435dc1e08293735",
    ),
    kind="steps",
    page=_PAGE,
    licence=_LICENCE,
    cite="Rozemberczki et al. 2021 (CIKM, PyTorch Geometric Temporal)",
    summary="Weekly cases of chickenpox in Hungary's counties, on a graph that does not change.",
    rows=102,
    nodes=20,
    exact=True,
    bytes=220_340,
)
ENGLAND_COVID = Published(
    name="england-covid",
    forms=_json(
        "england_covid",
        "covid",
        "aec797a02782161580dd73d97334cd18604e4fd861e43dd36e1398c13b23d7bf",
        "497056cc4585b58951fd5cd17554fe0c535f68ea0c907a5b5727ae30e3913450",
    ),
    kind="steps",
    page=_PAGE,
    licence=_LICENCE,
    cite="Panagopoulos et al. 2021 (AAAI); Rozemberczki et al. 2021 (CIKM, PyTorch Geometric Temporal)",
    summary="Daily cases of COVID-19 in regions of England, and movements between them.",
    rows=82_529,
    nodes=129,
    exact=True,
    bytes=1_436_945,
)
TWITTER_TENNIS = Published(
    name="twitter-tennis",
    forms=_json(
        "twitter_tennis_rg17",
        "twitter-tennis",
        "d13f2960f90706e188c983ebb10d5421861fe958a583e100c04587c7da940b2f",
        "1f9c3501a96881bbc26c899483c3fce73f36081f2df29d91fcd33c6dc4edf9c8",
    ),
    kind="steps",
    page=_PAGE,
    licence=_LICENCE,
    cite="Beres et al. 2018 (Applied Network Science); Rozemberczki et al. 2021 (CIKM, PyTorch Geometric Temporal)",
    summary="Mentions on Twitter around the Roland-Garros tournament of 2017, hour by hour.",
    rows=40_839,
    nodes=1_000,
    exact=True,
    bytes=1_982_751,
)
