"""The partitioners of the catalogue: rules that say which part owns each vertex."""

from __future__ import annotations

from dtdg_lab.core.entry import Entry


def _partitioner(name: str, module: str, summary: str, source: str) -> Entry:
    # all name the same options: a partitioner is changed in the middle of a run, and ignores what it does not read
    return Entry(
        name=name, room="partition", target=f"dtdg_lab.partition.{module}:assign", summary=summary, source=source,
        options=("partitioner", "dealing", "imbalance", "partition_file"),
    )  # fmt: skip


PARTITIONERS: tuple[Entry, ...] = (
    _partitioner("hash", "hash", "A pseudo-random part for each vertex: no structure is looked at.", "common practice"),
    _partitioner(
        "round_robin", "round_robin", "Vertex v goes to part v mod P.",
        "DynaHB figure 4, which calls it hash",
    ),
    _partitioner(
        "metis", "metis", "Few cut edges of the union of all snapshots, with edges and labelled vertices balanced.",
        "Karypis, Kumar 1998 (METIS); on the union graph as FlareDTDG section 4",
    ),
    _partitioner(
        "load_aware", "load_aware", "Vertices sorted by the length of their computation graphs, and dealt to parts.",
        "DynaHB section 5, algorithm 1",
    ),
    _partitioner(
        "hypergraph", "hypergraph", "The fewest rows sent, counted exactly: one net for each vertex and snapshot.",
        "ESDG section 6 (hypergraph vertex partition); Mt-KaHyPar, Gottesbueren et al. 2024",
    ),
    _partitioner("file", "from_file", "A partition saved before, for the same graph.", "ours"),
)  # fmt: skip
