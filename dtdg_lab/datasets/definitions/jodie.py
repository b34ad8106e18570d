"""Interactions of users with items, as the authors of JODIE publish them (snap.stanford.edu/jodie)."""

from __future__ import annotations

from dtdg_lab.datasets.published import Form, Published, PublishedFile, archived

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
    summary="Edits of Wikipedia pages by users; a page is vertex users + its number.",
    interval=86_400,
    rows=157_474,
    nodes=9_227,
    exact=True,
    bytes=559_000_000,  # with the features
)
