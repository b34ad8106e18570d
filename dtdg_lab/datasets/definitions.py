"""Published datasets as plain data: files, hashes, licences, citations and parsers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dtdg_lab.datasets.registry import Form, Published, PublishedFile, archived

# Output of IBM's simulator of bank transactions, AMLSim.


# the example of version 2.1: 20,000 accounts over 720 days. The address was seen as others quote it from the
# simulator's wiki; the folder is zipped whenever it is asked for, so the hash of the whole may change with time
_EXAMPLE = "https://www.dropbox.com/sh/l3grpumqfgbxqak/AAAj0fIjtJI6n9fdIBy2V7Lia/banks/v2.1?dl=1"

AMLSIM = Published(
    name="amlsim",
    forms=(
        Form(  # what the simulator wrote on this machine
            files=(PublishedFile(name="amlsim/transactions.csv", also=("amlsim/transactions.csv.gz",)),),
            format="amlsim",
        ),
        Form(
            files=(
                PublishedFile(name="amlsim-v2.1.zip", urls=(_EXAMPLE,), member="data/bank_mixed/transactions.csv.gz"),
            ),
            format="amlsim",
        ),
    ),
    kind="edges",
    page="https://github.com/IBM/AMLSim",
    licence="none stated for the example; Apache-2.0, the simulator",
    cite="Weber et al. 2018 (AMLSim); ESDG table 1",
    summary="Simulated bank transactions with laundering patterns; amounts are the weights.",
    interval=86_400,
)


# The transactions that the company Elliptic published on Kaggle, which asks for a login.


_PARTS = ("elliptic_txs_features.csv", "elliptic_txs_edgelist.csv", "elliptic_txs_classes.csv")
_KAGGLE_FOLDER = "elliptic_bitcoin_dataset/"
# the copy that PyTorch Geometric keeps, each file zipped; the address was seen in it and in other public programs
_PYG = "https://data.pyg.org/datasets/elliptic/"

ELLIPTIC = Published(
    name="elliptic",
    forms=(
        Form(
            files=tuple(
                PublishedFile(
                    name=f"{part}.zip", also=(part, _KAGGLE_FOLDER + part), urls=(f"{_PYG}{part}.zip",), member=part
                )
                for part in _PARTS
            ),
            format="elliptic",
            by_name=True,
        ),
        Form(
            files=(PublishedFile(name="elliptic-data-set.zip", also=("archive.zip",)),),  # as Kaggle packs all three
            format="elliptic",
            by_name=True,
        ),
    ),
    kind="steps",
    page="https://www.kaggle.com/datasets/ellipticco/elliptic-data-set",
    licence="CC BY-NC-ND 4.0, as its page is quoted",
    cite="Weber et al. 2019 (KDD workshop on anomaly detection in finance); Elliptic",
    summary="Bitcoin transactions in 49 steps of about two weeks, some known as licit or illicit.",
    rows=234_355,
    nodes=203_769,
)


# Interactions of users with items, as the authors of JODIE publish them (snap.stanford.edu/jodie).


_URL = "http://snap.stanford.edu/jodie/wikipedia.csv"
_TLS = "https://snap.stanford.edu/jodie/wikipedia.csv"

WIKIPEDIA = Published(
    name="wikipedia",
    forms=(
        Form(
            files=(
                PublishedFile(  # without the 172 features of the edits, which no model here reads
                    name="jodie-wikipedia-nofeatures.csv.gz",
                    also=("jodie-wikipedia-nofeatures.csv",),
                    sha256="ccceba413ee1fae2f1c72466d08fabb5013e7edd7840b80b7808aac1816e5e70",
                    sha256_content="2554c060a366880fa1d9a3ba9f45afac34e2fc4cfef58cbc2542bf03e1a02211",
                ),
            ),
            format="jodie",
        ),
        Form(files=(PublishedFile(name="wikipedia.csv", urls=(_TLS, archived(_URL))),), format="jodie"),
    ),
    kind="edges",
    page="https://snap.stanford.edu/jodie/",
    licence="not stated; cite the paper",
    cite="Kumar, Zhang, Leskovec 2019 (KDD); JODIE wikipedia",
    summary="Edits of Wikipedia pages by users; a page is node users + its number.",
    interval=86_400,
    rows=157_474,
    nodes=9_227,
    exact=True,
    bytes=559_000_000,  # with the features
)


# Temporal networks of Network Repository (networkrepository.com), whose files come from nrvis.com.
#
# The addresses of rec-amazon-ratings, soc-flickr-growth, soc-youtube-growth, fb-forum and ia-enron-employees stand in
# public programs that use them; the others follow the same pattern and were not seen. Of KONECT's copies, which hold
# the
# same edges, all addresses were seen, and only some servers of KONECT speak TLS: a file from there is known by its
# published counts, and by the hash recorded when it is first used. No archived copy was seen.


DAY_S = 86_400
_PAGE = "https://networkrepository.com/"
_DYNAMIC = "https://nrvis.com/download/data/dynamic/"
_LICENCE = "terms of networkrepository.com; cite the paper"
_CITE = "Rossi, Ahmed 2015 (AAAI); Network Repository "
_DYNAHB = "; as cut by DynaHB and FlareDTDG"


def edges_in_zip(name: str) -> Form:
    """The zip archive as published, or the ``.edges`` that was in it."""
    return _zipped(name, also=(f"{name}.edges", f"{name}.edges.gz", f"{name}/{name}.edges", f"{name}.mtx"))


def _zipped(name: str, also: tuple[str, ...] = ()) -> Form:
    url = f"{_DYNAMIC}{name}.zip"
    file = PublishedFile(name=f"{name}.zip", also=also, urls=(url, archived(url)), member="*.edges|*.mtx")
    return Form(files=(file,), format="network_repository")


def _known(name: str, sha256: str, sha256_content: str) -> tuple[Form, Form]:
    """The ``.edges`` on its own, whose hash is known though it is not published so; and the zip archive."""
    file = PublishedFile(
        name=f"{name}.edges.gz",
        also=(f"{name}.edges", f"{name}/{name}.edges"),
        sha256=sha256,
        sha256_content=sha256_content,
    )
    return Form(files=(file,), format="network_repository"), _zipped(name)


def konect(name: str) -> Form:
    """The archive of KONECT; the addresses were seen, the first of the two only for other networks of KONECT."""
    file = f"download.tsv.{name}.tar.bz2"
    urls = (f"https://konect.cc/files/{file}", f"http://konect.cc/files/{file}")
    return Form(
        files=(PublishedFile(name=file, also=(f"out.{name}", f"{name}/out.{name}"), urls=urls, member="out.*"),),
        format="konect",
        # Network Repository numbers users and items alike from 1, and the papers count its nodes
        options=MappingProxyType({"bipartite": False}),
    )


FB_FORUM = Published(
    name="fb-forum",
    forms=_known(
        "fb-forum",
        "062fb53ffc1658a5b095e8f19e5d8ad98a424e084042d3bba5a9b23045822826",
        "4aa6ba14f2440e582e1cec3357ef9a4ac8020fe72ec6b31a7ff746e291356088",
    ),
    kind="edges",
    page=f"{_PAGE}fb-forum.php",
    licence=_LICENCE,
    cite=f"{_CITE}fb-forum",
    summary="Posts in a forum of students.",
    interval=DAY_S,
    rows=33_720,
    nodes=899,
    exact=True,
)
ENRON_EMPLOYEES = Published(
    name="enron-employees",
    forms=_known(
        "ia-enron-employees",
        "65c1e3497e21d84192c25bb26ad7ae6437da51664815e9c7673966c6fbf5ff31",
        "550a509fdbbfa31dba52a7de85bc42ade8937bb1134c83bf5a3d8391061aeb34",
    ),
    kind="edges",
    page=f"{_PAGE}ia-enron-employees.php",
    licence=_LICENCE,
    cite=f"{_CITE}ia-enron-employees",
    summary="E-mail among employees of Enron; a weight is the number of mails.",
    interval=7 * DAY_S,
    rows=50_572,
    nodes=151,
    exact=True,
)
SLASHDOT = Published(
    name="slashdot",
    forms=(edges_in_zip("ia-slashdot-reply-dir"), konect("slashdot-threads")),
    kind="edges",
    page=f"{_PAGE}ia-slashdot-reply-dir.php",
    licence=_LICENCE,
    cite=f"{_CITE}ia-slashdot-reply-dir{_DYNAHB}",
    summary="Replies on Slashdot.",
    interval=7 * DAY_S,
    rows=140_778,
    nodes=51_083,
)
STACKEXCH = Published(
    name="stackexch",
    forms=(edges_in_zip("ia-stackexch-user-marks-post-und"), konect("stackexchange-stackoverflow")),
    kind="edges",
    page=f"{_PAGE}ia-stackexch-user-marks-post-und.php",
    licence=_LICENCE,
    cite=f"{_CITE}ia-stackexch-user-marks-post-und{_DYNAHB}",
    summary="Posts of Stack Overflow that users mark.",
    interval=30 * DAY_S,
    rows=1_301_942,
    nodes=545_196,
)
AMAZON_RATINGS = Published(
    name="amazon-ratings",
    forms=(edges_in_zip("rec-amazon-ratings"), konect("amazon-ratings")),
    kind="edges",
    page=f"{_PAGE}rec-amazon-ratings.php",
    licence=_LICENCE,
    cite=f"{_CITE}rec-amazon-ratings{_DYNAHB}",
    summary="Ratings of products on Amazon, 1 to 5, which are the weights.",
    interval=30 * DAY_S,
    rows=5_838_041,
    nodes=2_146_057,
)
FLICKR = Published(
    name="flickr",
    forms=(edges_in_zip("soc-flickr-growth"), konect("flickr-growth")),
    kind="edges",
    page=f"{_PAGE}soc-flickr-growth.php",
    licence=_LICENCE,
    cite=f"{_CITE}soc-flickr-growth{_DYNAHB}",
    summary="New contacts on Flickr.",
    interval=DAY_S,
    rows=33_140_017,
    nodes=2_302_925,
)
YOUTUBE = Published(
    name="youtube",
    forms=(edges_in_zip("soc-youtube-growth"),),
    kind="edges",
    page=f"{_PAGE}soc-youtube-growth.php",
    licence=_LICENCE,
    cite=f"{_CITE}soc-youtube-growth{_DYNAHB}",
    summary="New contacts on YouTube.",
    interval=DAY_S,
    rows=12_223_774,
    nodes=3_223_589,
)
SOC_BITCOIN = Published(
    name="soc-bitcoin",
    forms=(edges_in_zip("soc-bitcoin"),),
    kind="edges",
    page=f"{_PAGE}soc-bitcoin.php",
    licence=_LICENCE,
    cite=f"{_CITE}soc-bitcoin{_DYNAHB}",
    summary="Payments between Bitcoin addresses.",
    interval=30 * DAY_S,
    rows=122_948_162,
    nodes=24_575_382,
)


# Networks that are read as KONECT (konect.cc) publishes them, or as Network Repository does.


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


# Node classification graphs of the Open Graph Benchmark (ogb.stanford.edu), static. Their addresses were all seen.


_OGB_URL = "snap.stanford.edu/ogb/data/nodeproppred/"
_OGB_PAGE = "https://ogb.stanford.edu/docs/nodeprop/"
_OGB_CITE = "Hu et al. 2020 (NeurIPS, OGB)"


def _zip(name: str, **options: bool) -> tuple[Form, ...]:
    file = PublishedFile(name=f"{name}.zip", urls=(f"https://{_OGB_URL}{name}.zip", f"http://{_OGB_URL}{name}.zip"))
    return (
        Form(
            files=(file,),
            format="ogb",
            by_name=True,
            options=MappingProxyType(options),
            without_features=MappingProxyType({"features": False}),
        ),
    )


OGBN_ARXIV_T = Published(
    name="ogbn-arxiv-t",
    forms=_zip("arxiv"),
    kind="static",
    page=f"{_OGB_PAGE}#ogbn-arxiv",
    licence="ODC-BY",
    cite=f"{_OGB_CITE} ogbn-arxiv",
    summary="Citations among arXiv papers on computer science, made dynamic.",
    rows=1_166_243,
    nodes=169_343,
    bytes=84_000_000,
)
OGBN_PRODUCTS_T = Published(
    name="ogbn-products-t",
    forms=_zip("products", both_directions=True),  # each is stored once
    kind="static",
    page=f"{_OGB_PAGE}#ogbn-products",
    licence="Amazon license",
    cite=f"{_OGB_CITE} ogbn-products",
    summary="Products bought together on Amazon, made dynamic.",
    rows=61_859_140,
    nodes=2_449_029,
    bytes=1_480_000_000,
)
OGBN_PAPERS100M_T = Published(
    name="ogbn-papers100m-t",
    forms=_zip("papers100M-bin"),
    kind="static",
    page=f"{_OGB_PAGE}#ogbn-papers100M",
    licence="ODC-BY",
    cite=f"{_OGB_CITE} ogbn-papers100M",
    summary="Citations among 111 million papers, made dynamic.",
    rows=1_615_685_872,
    nodes=111_059_956,
    bytes=60_300_000_000,
)


# Citation graphs of the Planetoid repository, static, with features, classes and a fixed split of the nodes.


_RAW = "https://github.com/kimiyoung/planetoid/raw/master/data/"
_MIRROR = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/"
_PLANETOID_PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
_PLANETOID_LICENCE = "MIT, the repository; none stated for the LINQS data itself"
_PLANETOID_PAGE = "https://github.com/kimiyoung/planetoid"
_NO_HASHES: Mapping[str, str] = MappingProxyType({})


def _eight_files(name: str, hashes: Mapping[str, str] = _NO_HASHES) -> Form:
    """The files as published, one for each part. The addresses were seen in public programs."""
    names = [f"ind.{name}.{part}" for part in _PLANETOID_PARTS]
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
    page=_PLANETOID_PAGE,
    licence=_PLANETOID_LICENCE,
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
    page=_PLANETOID_PAGE,
    licence=_PLANETOID_LICENCE,
    cite="Sen et al. 2008 (AI Magazine); Yang, Cohen, Salakhutdinov 2016 (ICML, Planetoid)",
    summary="Citations among papers on diabetes, made dynamic.",
    rows=44_324,
    nodes=19_717,
)


# Sequences that PyTorch Geometric Temporal publishes, already cut to steps. Their addresses were all seen.


_PYG_TEMPORAL_RAW = "https://raw.githubusercontent.com/benedekrozemberczki/pytorch_geometric_temporal/master/dataset/"
_BLOB = "https://github.com/benedekrozemberczki/pytorch_geometric_temporal/raw/master/dataset/"
_PYG_TEMPORAL_PAGE = "https://pytorch-geometric-temporal.readthedocs.io/en/latest/modules/dataset.html"
_PYG_TEMPORAL_LICENCE = "MIT, the library that publishes it"


def _json(name: str, variant: str, sha256: str, sha256_content: str) -> tuple[Form, ...]:
    """The one form of a JSON file; ``sha256`` is that of a gzipped copy, as it is published plain."""
    file = PublishedFile(
        name=f"{name}.json",
        also=(f"{name}.json.gz",),
        urls=(f"{_PYG_TEMPORAL_RAW}{name}.json", f"{_BLOB}{name}.json"),
        sha256=sha256,
        sha256_content=sha256_content,
    )
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
    page=_PYG_TEMPORAL_PAGE,
    licence=_PYG_TEMPORAL_LICENCE,
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
    page=_PYG_TEMPORAL_PAGE,
    licence=_PYG_TEMPORAL_LICENCE,
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
    page=_PYG_TEMPORAL_PAGE,
    licence=_PYG_TEMPORAL_LICENCE,
    cite="Beres et al. 2018 (Applied Network Science); Rozemberczki et al. 2021 (CIKM, PyTorch Geometric Temporal)",
    summary="Mentions on Twitter around the Roland-Garros tournament of 2017, hour by hour.",
    rows=40_839,
    nodes=1_000,
    exact=True,
    bytes=1_982_751,
)


# Temporal networks of SNAP (snap.stanford.edu/data).
#
# Addresses are those of SNAP's pages. Of the archived copies only those with a full date were seen to exist; the
# others
# are tried and may be missing. Hashes of the files that stand here were computed from copies whose counts are the
# published ones.


_SNAP = "https://snap.stanford.edu/data/"
_NOT_STATED = "not stated; cite the paper"
_PARANJAPE = "Paranjape, Benson, Leskovec 2017 (WSDM)"


def _text(name: str, *, when: str = "2022", sha256: str = "", sha256_content: str = "") -> tuple[Form, ...]:
    """The one form of a gzipped text of ``source target unixtime``."""
    url = f"{_SNAP}{name}.txt.gz"
    file = PublishedFile(
        name=f"{name}.txt.gz",
        also=(f"{name}.txt",),
        urls=(url, archived(url, when)),
        sha256=sha256,
        sha256_content=sha256_content,
    )
    return (Form(files=(file,), format="snap_text"),)


def _signed(name: str, *, sha256: str, sha256_content: str) -> tuple[Form, ...]:
    """The one form of a gzipped csv of ``source,target,rating,time``."""
    url = f"{_SNAP}{name}.csv.gz"
    file = PublishedFile(
        name=f"{name}.csv.gz",
        also=(f"{name}.csv",),
        urls=(url, archived(url)),
        sha256=sha256,
        sha256_content=sha256_content,
    )
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
