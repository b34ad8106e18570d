"""Output of IBM's simulator of bank transactions, AMLSim."""

from __future__ import annotations

from dtdg_lab.datasets.published import Form, Published, PublishedFile

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
