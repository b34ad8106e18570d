"""Temporal networks of SNAP (snap.stanford.edu/data).

Addresses are those of SNAP's pages. Of the archived copies only those with a full date were seen to exist; the others
are tried and may be missing. Hashes of the files that stand here were computed from copies whose counts are the
published ones.
"""

from __future__ import annotations

from dtdg_lab.datasets.published import Form, Published, PublishedFile, archived

DAY_S = 86_400
_SNAP = "https://snap.stanford.edu/data/"
_NOT_STATED = "not stated; cite the paper"
_PARANJAPE = "Paranjape, Benson, Leskovec 2017 (WSDM)"


def _text(name: str, *, when: str = "2022", sha256: str = "", sha256_content: str = "") -> tuple[Form, ...]:
    """The one form of a gzipped text of ``source target unixtime``."""
    url = f"{_SNAP}{name}.txt.gz"
    file = PublishedFile(
        name=f"{name}.txt.gz", also=(f"{name}.txt",), urls=(url, archived(url, when)), sha256=sha256,
        sha256_content=sha256_content,
    )  # fmt: skip
    return (Form(files=(file,), format="snap_text"),)


def _signed(name: str, *, sha256: str, sha256_content: str) -> tuple[Form, ...]:
    """The one form of a gzipped csv of ``source,target,rating,time``."""
    url = f"{_SNAP}{name}.csv.gz"
    file = PublishedFile(
        name=f"{name}.csv.gz", also=(f"{name}.csv",), urls=(url, archived(url)), sha256=sha256,
        sha256_content=sha256_content,
    )  # fmt: skip
    return (Form(files=(file,), format="snap_csv"),)


COLLEGEMSG = Published(
    name="collegemsg",
    forms=_text(
        "CollegeMsg",
        when="20230309171508",
        sha256="50ae2d98ed3bad9ddb18dbd495a89e5e10cfb8f7e86932827db29fc41b41f9fa",
        sha256_content="e00ba2415373dee52c00616065bcceaa4750e78de60d1855c76470600f10740f",
    ),
    kind="edges",
    page=f"{_SNAP}CollegeMsg.html",
    licence=_NOT_STATED,
    cite="Panzarasa, Opsahl, Carley 2009 (JASIST 60(5)); SNAP CollegeMsg",
    summary="Private messages of a college network.",
    interval=190_080,  # 2.2 days, as in the experiments of EvolveGCN
    rows=59_835,
    nodes=1_899,
    exact=True,
    bytes=345_339,
)
EMAIL_EU = Published(
    name="email-eu",
    forms=_text(
        "email-Eu-core-temporal",
        sha256="f6cc93249978e59d1aba111b55ea10ec553917419a3be1210012b5db3580efa6",
        sha256_content="1835c94dc6685dcf2a614a1b6a0275b323dd4002f7aa111fbe9f76db8864391f",
    ),
    kind="edges",
    page=f"{_SNAP}email-Eu-core-temporal.html",
    licence=_NOT_STATED,
    cite=f"{_PARANJAPE}; SNAP email-Eu-core-temporal",
    summary="E-mail of a European research institution.",
    interval=7 * DAY_S,
    rows=332_334,
    nodes=986,
    exact=True,
    bytes=1_683_428,
)
MATHOVERFLOW = Published(
    name="mathoverflow",
    forms=_text(
        "sx-mathoverflow",
        sha256="cdc635fda76dab06ab02ca242563fa333bb83d096571342ef0326d85ff0c04da",
        sha256_content="2bf52f784cdba69730f912633aa1414b381059406ded2c38bc37658ead5b0773",
    ),
    kind="edges",
    page=f"{_SNAP}sx-mathoverflow.html",
    licence=_NOT_STATED,
    cite=f"{_PARANJAPE}; SNAP sx-mathoverflow",
    summary="Answers and comments on MathOverflow.",
    interval=30 * DAY_S,
    rows=506_550,
    nodes=24_818,
    exact=True,
    bytes=3_616_495,
)
ASKUBUNTU = Published(
    name="askubuntu",
    forms=_text("sx-askubuntu"),
    kind="edges",
    page=f"{_SNAP}sx-askubuntu.html",
    licence=_NOT_STATED,
    cite=f"{_PARANJAPE}; SNAP sx-askubuntu",
    summary="Answers and comments on Ask Ubuntu.",
    interval=30 * DAY_S,
    rows=964_437,
    nodes=159_316,
)
STACKOVERFLOW = Published(
    name="stackoverflow",
    forms=_text("sx-stackoverflow"),
    kind="edges",
    page=f"{_SNAP}sx-stackoverflow.html",
    licence=_NOT_STATED,
    cite=f"{_PARANJAPE}; SNAP sx-stackoverflow",
    summary="Answers and comments on Stack Overflow.",
    interval=30 * DAY_S,
    rows=63_497_050,
    nodes=2_601_977,
)
# the packed hashes are those of copies packed anew, without a header that one mirror had added; a file as SNAP packs
# it is known by its content
BITCOIN_OTC = Published(
    name="bitcoin-otc",
    forms=_signed(
        "soc-sign-bitcoinotc",
        sha256="f720dba83ba2d3846327f677f8c8719b65388fca7e4a778c9f74dfb867819bc0",
        sha256_content="76bd9d8f1d3ff9a1813d9fc8e6902a0ee4d0a2f8c1003842dbc9ec79149ab60c",
    ),
    kind="edges",
    page=f"{_SNAP}soc-sign-bitcoin-otc.html",
    licence=_NOT_STATED,
    cite="Kumar et al. 2016 (ICDM), 2018 (WSDM); SNAP soc-sign-bitcoin-otc",
    summary="Who trusts whom on Bitcoin OTC; the ratings, -10 to 10, are left out.",
    interval=1_200_000,  # 13.9 days, as in the experiments of EvolveGCN
    rows=35_592,
    nodes=5_881,
    exact=True,
    bytes=397_152,
    weights="drop",
)
BITCOIN_ALPHA = Published(
    name="bitcoin-alpha",
    forms=_signed(
        "soc-sign-bitcoinalpha",
        sha256="3e7a9111b8dccd993cfedf304fa4a6c85c9441ef40412581a368bea6fd14efa9",
        sha256_content="1b2a970f327d0ceba0c57bd5919670257cbe4cc0704e2ddac09abc4b08e2ca4d",
    ),
    kind="edges",
    page=f"{_SNAP}soc-sign-bitcoin-alpha.html",
    licence=_NOT_STATED,
    cite="Kumar et al. 2016 (ICDM), 2018 (WSDM); SNAP soc-sign-bitcoin-alpha",
    summary="Who trusts whom on Bitcoin Alpha; the ratings, -10 to 10, are left out.",
    interval=1_200_000,
    rows=24_186,
    nodes=3_783,
    exact=True,
    bytes=147_439,
    weights="drop",
)


def _reddit(name: str, when: str) -> PublishedFile:
    url = f"{_SNAP}{name}.tsv"
    return PublishedFile(name=f"{name}.tsv", also=(f"{name}.tsv.gz",), urls=(url, archived(url, when)))


REDDIT_HYPERLINKS = Published(
    name="reddit-hyperlinks",
    forms=(
        Form(
            files=(
                _reddit("soc-redditHyperlinks-title", "20201107005944"),
                _reddit("soc-redditHyperlinks-body", "20201114221409"),
            ),
            format="reddit_hyperlinks",
            by_name=True,
        ),
    ),
    kind="edges",
    page=f"{_SNAP}soc-RedditHyperlinks.html",
    licence=_NOT_STATED,
    cite="Kumar, Hamilton, Leskovec, Jurafsky 2018 (WWW); SNAP soc-RedditHyperlinks",
    summary="Posts of one community of Reddit that link to another; the sentiment, -1 or 1, is left out.",
    interval=7 * DAY_S,
    rows=858_490,
    nodes=55_863,
    weights="drop",
)
