"""Sentences under the charts of ADGNN-T, its hypergraph variant and PyGT-Dist; each says what is seen now."""

MOST_WORK = "{cut} of the edges join two parts, and part {part} has the most work: {times} times the mean."
EVEN_WORK = "{cut} of the edges join two parts, and all parts have about the same work."
ONE_PART = "One part owns all nodes, so that no edge is cut and no row is received."
