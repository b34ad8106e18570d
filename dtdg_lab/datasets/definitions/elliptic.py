"""The transactions that the company Elliptic published on Kaggle, which asks for a login."""

from __future__ import annotations

from dtdg_lab.datasets.published import Form, Published, PublishedFile

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
