"""Temporal networks of Network Repository (networkrepository.com), whose files come from nrvis.com.

The addresses of rec-amazon-ratings, soc-flickr-growth, soc-youtube-growth, fb-forum and ia-enron-employees stand in
public programs that use them; the others follow the same pattern and were not seen. Of KONECT's copies, which hold the
same edges, all addresses were seen, and only some servers of KONECT speak TLS: a file from there is known by its
published counts, and by the hash recorded when it is first used. No archived copy was seen.
"""

from __future__ import annotations

from types import MappingProxyType

from dtdg_lab.datasets.published import Form, Published, PublishedFile, archived

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
        name=f"{name}.edges.gz", also=(f"{name}.edges", f"{name}/{name}.edges"), sha256=sha256,
        sha256_content=sha256_content,
    )  # fmt: skip
    return Form(files=(file,), format="network_repository"), _zipped(name)


def konect(name: str) -> Form:
    """The archive of KONECT; the addresses were seen, the first of the two only for other networks of KONECT."""
    file = f"download.tsv.{name}.tar.bz2"
    urls = (f"https://konect.cc/files/{file}", f"http://konect.cc/files/{file}")
    return Form(
        files=(PublishedFile(name=file, also=(f"out.{name}", f"{name}/out.{name}"), urls=urls, member="out.*"),),
        format="konect",
        # Network Repository numbers users and items alike from 1, and the papers count its vertices
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
