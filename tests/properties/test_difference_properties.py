"""Any sequence of snapshots comes back from its payload bit for bit, on the host and as tensors."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dtdg_lab.graphs.delta import COO64, CSR32, FORMATS, changed, decode, encode, replaced
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.device_snapshot import replaced as replaced_tensors
from dtdg_lab.kernels.device_snapshot import unpack, unpack_pairs

KEYS = st.lists(st.integers(0, 2**62), unique=True, max_size=25).map(lambda keys: np.array(sorted(keys), np.int64))
FEW = st.lists(st.integers(0, 12), unique=True, max_size=12).map(lambda keys: np.array(sorted(keys), np.int64))
# every float that a snapshot may hold: also -0, denormal ones and the largest
WEIGHTS = st.floats(0, width=32, allow_nan=False, allow_infinity=False) | st.just(-0.0)


@st.composite
def sequences(draw):
    """Snapshots over up to 7 nodes, any share of the pairs in each, some equal to the one before."""
    nodes, weighted = draw(st.integers(1, 7)), draw(st.booleans())
    found: list[Snapshot] = []
    for _ in range(draw(st.integers(1, 6))):
        if found and draw(st.booleans()):
            flips = draw(arrays.arrays(bool, (nodes, nodes), fill=st.just(False)))
            edges = edges ^ flips  # noqa: F821
        else:
            edges = draw(arrays.arrays(bool, (nodes, nodes)))
        count = int(edges.sum())
        weights = draw(arrays.arrays(np.float32, count, elements=WEIGHTS)) if weighted else None
        indptr = np.concatenate([[0], np.cumsum(edges.sum(axis=1))]).astype(np.int64)
        found.append(Snapshot(indptr, np.nonzero(edges)[1].astype(np.int32), weights))
    return found


def bits(array):
    return None if array is None else (np.asarray(array).dtype, np.asarray(array).tobytes())


@given(sequences(), st.sampled_from(list(FORMATS.values())), st.booleans())
def test_a_payload_gives_its_snapshots_back(snapshots, form, difference):
    payload = encode(snapshots, form, difference=difference)
    found = decode(payload)
    assert len(found) == len(snapshots)
    for one, other in zip(found, snapshots, strict=True):
        for name in ("indptr", "indices", "weights"):
            assert bits(getattr(one, name)) == bits(getattr(other, name))
    whole = encode(snapshots, form, difference=False)
    assert payload.nbytes <= whole.nbytes
    assert (whole.values is None) == (payload.values is None)


@given(sequences())
def test_tensors_hold_the_same(snapshots):
    ours, paper = encode(snapshots), encode(snapshots, COO64)
    values = None if ours.values is None else torch.tensor(ours.values)
    for one, other in zip(unpack(ours.contents, torch.tensor(ours.numbers), values), snapshots, strict=True):
        assert one.indptr.tolist() == other.indptr.tolist()
        assert one.indices.tolist() == other.indices.tolist()
        assert (one.weights is None) == (other.weights is None)
        assert one.weights is None or bits(one.weights.numpy()) == bits(other.weights)
    for (targets, sources), other in zip(
        unpack_pairs(paper.contents, torch.tensor(paper.numbers)), snapshots, strict=True
    ):
        assert targets.tolist() == other.rows().tolist()
        assert sources.tolist() == other.indices.tolist()


@given(st.one_of(st.tuples(KEYS, KEYS), st.tuples(FEW, FEW)))
def test_changes_are_those_of_sets_and_lead_from_one_to_the_other(both):
    before, after = both
    leaving, arriving = changed(before, after)
    assert before[leaving].tolist() == sorted({*before.tolist()} - {*after.tolist()})
    assert after[arriving].tolist() == sorted({*after.tolist()} - {*before.tolist()})
    assert replaced(before, leaving, after[arriving]).tolist() == after.tolist()
    tensors = (torch.tensor(before), torch.tensor(leaving), torch.tensor(after[arriving]))
    assert replaced_tensors(*tensors).tolist() == after.tolist()


@given(sequences())
def test_a_difference_is_never_the_larger(snapshots):
    for part in encode(snapshots).contents.parts:
        if not part.is_whole:
            nodes = snapshots[0].num_nodes
            assert CSR32.difference_numbers(part.leaving, part.arriving) < CSR32.whole_numbers(nodes, part.edges)
