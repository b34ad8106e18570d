"""Graphs from lists of snapshots of other libraries, what is wrong with such lists, and lists of them from a graph."""

from __future__ import annotations

import itertools
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch

import dtdg_lab as lab
from dtdg_lab.core.errors import ConfigError, DataError, NotAvailableError
from dtdg_lab.datasets.snapshot_lists import from_dgl, from_snapshots
from dtdg_lab.graphs.snapshot import repeats
from tests.factories import edges_by_snapshot


class Data:
    """What PyG's Data answers, and no more."""

    def __init__(self, **stored: Any) -> None:
        self.__dict__.update({"edge_index": None, **stored})
        self._stored = stored

    def to_dict(self) -> dict[str, Any]:
        return dict(self._stored)


class HeteroData:
    """What PyG's HeteroData answers."""

    node_types = property(lambda _: ["a", "b"])
    edge_types = property(lambda _: [("a", "to", "b")])


@pytest.fixture(params=["installed", "stand-in"])
def pyg(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type:
    """The class of PyG's Data; where PyG is not installed, a stand-in alone."""
    if request.param == "stand-in":
        modules = {
            "torch_geometric": types.ModuleType("torch_geometric"),
            "torch_geometric.data": types.SimpleNamespace(Data=Data),
        }
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)
        return Data
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit.script.* is deprecated", category=DeprecationWarning)
        return pytest.importorskip("torch_geometric.data").Data


def index(*edges: tuple[int, int]) -> torch.Tensor:
    return torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T


EDGES = ([(0, 1), (1, 2)], [(2, 0)], [], [(0, 2)])
PLAIN = [[(source, target, 1) for source, target in edges] for edges in EDGES]


# PyG


def test_pyg_data_with_features_and_float_targets(pyg: type) -> None:
    draws = torch.Generator().manual_seed(0)
    x, y = torch.rand(4, 3, 2, generator=draws), torch.rand(4, 3, generator=draws)
    data = [pyg(x=x[t], edge_index=index(*edges), y=y[t]) for t, edges in enumerate(EDGES)]
    graph = from_snapshots(data)
    assert edges_by_snapshot(graph) == PLAIN
    np.testing.assert_array_equal(graph.features, x)
    np.testing.assert_array_equal(graph.targets, y)
    np.testing.assert_array_equal(graph.persistence[1:], y[:-1])
    assert graph.source == "4 PyG Data (4 edges, features from x, targets from y)"
    degrees = from_snapshots(data, None, targets=None)
    assert degrees.num_snapshots == 3 and degrees.features.shape == (3, 3, 2)
    np.testing.assert_allclose(degrees.targets[0], np.log1p([1, 0, 0]), rtol=1e-6)


def test_whole_numbers_in_y_are_classes_and_may_be_targets_by_name(pyg: type) -> None:
    data = [pyg(edge_index=index(*edges), y=torch.tensor([[0], [1], [1]]), num_nodes=3) for edges in EDGES]
    graph = from_snapshots(data)
    assert graph.classes is not None and graph.classes.tolist() == [[0, 1, 1]] * 3
    assert graph.source == "4 PyG Data (4 edges, classes from y)"
    counts = from_snapshots(data, targets="y")
    assert counts.classes is None and counts.targets.tolist() == [[0, 1, 1]] * 4
    with pytest.raises(DataError, match=r"y holds 40000: .* targets='y'"):
        from_snapshots([cycle(y=np.array([0, 1, 40000]))] * 3)
    floats = from_snapshots([cycle(y=np.array([0.0, 1.0, 2.0]))] * 3, labels="y")
    assert floats.num_classes == 3 and floats.following is not None


@pytest.mark.parametrize("name", ["edge_weight", "edge_attr"])
def test_pyg_weights_are_one_number_for_each_edge(pyg: type, name: str) -> None:
    data = [pyg(edge_index=index((0, 1), (1, 0)), **{name: torch.tensor([[2.0], [3.0]])}) for _ in range(3)]
    assert edges_by_snapshot(from_snapshots(data)) == [[(0, 1, 2), (1, 0, 3)]] * 3
    assert edges_by_snapshot(from_snapshots(data, weight=None)) == [[(0, 1, 1), (1, 0, 1)]] * 3


def test_nodes_by_position_are_as_many_as_the_largest_snapshot_has(pyg: type) -> None:
    data = [pyg(edge_index=index((0, 1)), num_nodes=count) for count in (2, 6, 3)]
    graph = from_snapshots(data)
    assert graph.num_nodes == 6 and graph.node_ids is None
    assert from_snapshots(data, features=np.eye(6)).static_features
    named = from_snapshots(data, nodes=list("fedcba"))
    assert edges_by_snapshot(named)[0] == [("f", "e", 1)] and named.num_nodes == 6
    assert from_snapshots(data, nodes=range(10)).num_nodes == from_snapshots(data, nodes=10).num_nodes == 10
    assert from_snapshots([pyg(edge_index=index((0, 1)), y=torch.rand(5))] * 2).num_nodes == 5
    growing = [pyg(x=torch.eye(4)[:count], edge_index=index((0, 1))) for count in (2, 4, 3)]
    np.testing.assert_array_equal(from_snapshots(growing).features[0], np.eye(4))


def test_a_snapshot_without_edges_needs_no_weights(pyg: type) -> None:
    data = [pyg(edge_index=index((0, 1)), edge_weight=torch.ones(1), num_nodes=3), pyg(edge_index=index(), num_nodes=3)]
    assert [len(edges) for edges in edges_by_snapshot(from_snapshots(data))] == [1, 0]


class Signal:
    """A signal of PyG-Temporal: it is its own iterator, and starts again when it is iterated."""

    def __init__(self, snapshots: list[Any]) -> None:
        self.snapshots, self.t = snapshots, 0
        self.edge_index = snapshots[0].edge_index  # signals over one graph have it

    def __iter__(self) -> Iterator[Any]:
        self.t = 0
        return self

    def __next__(self) -> Any:
        if self.t == len(self.snapshots):
            raise StopIteration
        self.t += 1
        return self.snapshots[self.t - 1]


def test_a_signal_of_pyg_temporal(pyg: type) -> None:
    draws = torch.Generator().manual_seed(0)
    ring = index((0, 1), (1, 2), (2, 0))
    attributes = {"edge_index": ring, "edge_attr": torch.ones(3)}
    signal = Signal(
        [pyg(x=torch.rand(3, 4, generator=draws), y=torch.rand(3, generator=draws), **attributes) for _ in range(5)]
    )
    next(iter(signal))
    graph = from_snapshots(signal)
    assert (graph.num_snapshots, graph.num_features, graph.weighted) == (5, 4, True)


# networkx


def test_networkx_nodes_come_and_go_and_isolates_stay() -> None:
    first, second, third = nx.DiGraph([("ann", "bob")]), nx.DiGraph(), nx.DiGraph([("eve", "ann")])
    second.add_nodes_from(["dan", "ann"])
    graph = from_snapshots([first, second, third])
    assert graph.node_ids is not None and graph.node_ids.tolist() == ["ann", "bob", "dan", "eve"]
    assert edges_by_snapshot(graph) == [[("ann", "bob", 1)], [], [("eve", "ann", 1)]]
    more = from_snapshots([first, second, third], nodes=["zoe", "eve", "dan", "bob", "ann"])
    assert (
        more.node_ids is not None and more.node_ids[0] == "zoe" and edges_by_snapshot(more) == edges_by_snapshot(graph)
    )


def test_an_undirected_edge_counts_in_both_directions_and_a_loop_once() -> None:
    graph = nx.Graph()
    graph.add_edge(0, 1, weight=2)
    graph.add_edge(1, 1, weight=5)
    assert edges_by_snapshot(from_snapshots([graph] * 3))[0] == [(0, 1, 2), (1, 0, 2), (1, 1, 5)]
    assert not from_snapshots([graph] * 3, weight=None).weighted


def test_parallel_edges_are_merged_and_their_weights_summed() -> None:
    graph = nx.MultiDiGraph()
    graph.add_edge("a", "b", key="calls", weight=2.0)
    graph.add_edge("a", "b", key="mails", weight=3.0)
    assert edges_by_snapshot(from_snapshots([graph] * 3))[0] == [("a", "b", 5)]
    assert edges_by_snapshot(from_snapshots([graph] * 3, weight=None))[0] == [("a", "b", 1)]


def test_names_of_any_type_become_text_unless_all_are_whole_numbers() -> None:
    whole = from_snapshots([nx.DiGraph([(10**15, -7)])] * 3)
    assert whole.node_ids is not None and whole.node_ids.tolist() == [-7, 10**15]
    mixed = from_snapshots([nx.DiGraph([((0, 1), "b"), ("b", 2.5)])] * 3)
    assert mixed.node_ids is not None and mixed.node_ids.tolist() == ["(0, 1)", "2.5", "b"]


def test_attributes_of_networkx_nodes_by_name() -> None:
    graphs = [nx.DiGraph([("a", "b")]), nx.DiGraph([("b", "c")]), nx.DiGraph(), nx.DiGraph([("c", "a")])]
    for graph in graphs:
        for name, row in (("a", 0), ("b", 1), ("c", 2)):
            if name in graph:
                graph.nodes[name].update(x=np.eye(3)[row].tolist(), group=row, age=len(graphs))
    graph = from_snapshots(graphs, "x", "group", targets="age")
    np.testing.assert_array_equal(graph.features[0], np.eye(3))
    assert graph.classes is not None and graph.classes.tolist() == [[0, 1, -1], [-1, 1, 2], [-1] * 3, [0, -1, 2]]
    assert graph.targets.tolist() == [[4, 4, 4]] * 4
    by_id = from_snapshots(graphs, features={"c": [3.0], "a": [1.0], "b": [2.0]}, weight=None)
    assert by_id.features[0].tolist() == [[1], [2], [3]]


# matrices and arrays


def matrices() -> list[np.ndarray]:
    dense = [np.zeros((3, 3)) for _ in EDGES]
    for matrix, edges in zip(dense, EDGES, strict=True):
        for source, target in edges:
            matrix[source, target] = 1
    return dense


@pytest.mark.parametrize(
    "form", [sp.csr_matrix, sp.coo_matrix, sp.csr_array, sp.coo_array, sp.csc_array, np.asarray, torch.tensor]
)
def test_matrices_have_an_edge_from_row_to_column(form: Any) -> None:
    graph = from_snapshots([form(matrix) for matrix in matrices()])
    assert edges_by_snapshot(graph) == PLAIN and not graph.weighted
    heavy = from_snapshots([form(2 * matrix) for matrix in matrices()])
    assert edges_by_snapshot(heavy)[1] == [(2, 0, 2)]
    assert not from_snapshots([form(2 * matrix) for matrix in matrices()], weight=None).weighted


def test_entries_of_a_sparse_matrix_are_those_of_the_dense_one() -> None:
    matrix = sp.coo_array(([1.0, 1.0, 0.0], ([0, 0, 2], [1, 1, 0])), shape=(3, 3))
    assert edges_by_snapshot(from_snapshots([matrix] * 3)) == edges_by_snapshot(from_snapshots([matrix.toarray()] * 3))
    assert edges_by_snapshot(from_snapshots([matrix] * 3))[0] == [(0, 1, 2)]
    assert matrix.nnz == 3


@pytest.mark.parametrize("form", [lambda tensor: tensor, lambda tensor: tensor.numpy()], ids=["tensors", "arrays"])
def test_arrays_of_edges(form: Any) -> None:
    graph = from_snapshots([form(index(*edges)) for edges in EDGES])
    assert edges_by_snapshot(graph) == PLAIN
    targets = np.arange(12).reshape(4, 3)
    assert (
        from_snapshots([form(index(*edges)) for edges in EDGES], targets=targets).targets.tolist() == targets.tolist()
    )


def test_an_array_of_matrices_is_a_list_of_them() -> None:
    assert edges_by_snapshot(from_snapshots(np.stack(matrices()))) == PLAIN


# what cannot be read


def cycle(**attributes: Any) -> Data:
    return Data(edge_index=index((0, 1), (1, 2), (2, 0)), **attributes)


@pytest.mark.parametrize(
    ("snapshots", "given", "message"),
    [
        (5, {}, "snapshots is 5, of type int; a list of graphs is needed"),
        (cycle(), {}, "snapshots is one snapshot, of type Data"),
        (nx.path_graph(3), {}, "snapshots is one snapshot, of type Graph"),
        (np.eye(3), {}, "snapshots is one snapshot, of type ndarray"),
        ([], {}, "0 snapshots; at least 2"),
        ([cycle()], {}, "1 PyG Data; at least 2"),
        (itertools.repeat(cycle()), {}, "snapshots has more than 100,000 snapshots"),
        ([cycle(), 5], {}, r"snapshots\[1\] is a int; it can be one of: PyG Data, networkx graphs, "),
        ([np.zeros((3, 4))] * 3, {}, r"snapshots\[0\] is a ndarray of shape \(3, 4\)"),
        (
            [cycle(), cycle(), nx.DiGraph()],
            {},
            r"snapshots\[2\] is of another kind \(networkx graphs\) than snapshots\[0\] \(PyG Data\)",
        ),
        (
            [np.eye(3), index((0, 1))],
            {},
            r"snapshots\[1\] is of another kind \(arrays of edges\) than snapshots\[0\] \(dense adj",
        ),
        ([np.eye(2)] * 3, {}, r"have shape \(2, 2\).*SciPy"),
        ([sp.csr_array((3, 4))] * 2, {}, r"snapshots\[0\] has shape \(3, 4\); a square"),
        ([index((0, 1)) + 0.5] * 2, {}, r"snapshots\[0\]\[0, 0\] is 0.5, of type float32; whole numbers"),
        ([index((0, -1))] * 2, {}, r"snapshots\[0\] has an edge of node -1"),
        (
            [Data(edge_index=index((0, 7)), num_nodes=3)] * 2,
            {},
            r"snapshots\[0\] has an edge of node 7, and its 3 nodes",
        ),
        ([Data(adj_t=1)] * 2, {}, r"snapshots\[0\] has no edge_index; it has adj_t"),
        ([nx.DiGraph()] * 2, {}, "the 2 networkx graphs have no nodes"),
        # not supported
        ([HeteroData()] * 2, {}, r"snapshots\[0\] has several types .* not supported.*data.to_homogeneous\(\)"),
        (
            [cycle(edge_attr=np.ones((3, 2)))] * 2,
            {},
            r"edge_attr has shape \(3, 2\): vectors of edge features are not supp.*weight=None",
        ),
        (
            [cycle(edge_attr=np.ones((3, 2)), edge_weight=np.ones(3))] * 2,
            {},
            "vectors of edge features are not supported",
        ),
        ([nx.DiGraph([(0, 1, {"weight": [1.0, 2.0]})])] * 2, {}, "vectors of edge features are not supported"),
        # weights
        (
            [cycle(edge_weight=np.array([1, -2.0, 0]))] * 2,
            {},
            r"snapshots\[0\].edge_weight has entries from -2.0 to 1.0",
        ),
        ([cycle(edge_weight=np.ones(3)), cycle()], {}, r"snapshots\[1\] has no edge attribute 'edge_weight'"),
        ([cycle(edge_weight=np.ones(4))] * 2, {}, r"edge_weight has shape \(4,\); one row for each of the 3 edges"),
        ([nx.DiGraph([(0, 1, {"weight": 1}), (1, 2)])] * 2, {}, r"edge 1 to 2 of snapshots\[0\] has no 'weight'"),
        ([nx.Graph([("a", "b", {"w": "x"})])] * 2, {"weight": "w"}, r"snapshots\[0\].w\[0\] is 'x', of type str"),
        ([cycle()] * 2, {"weight": "w"}, r"snapshots\[0\] has no edge attribute 'w' for weight; it has none"),
        ([cycle()] * 2, {"weight": 5}, "weight=5 is of type int; the name"),
        # features, classes and targets
        (
            [cycle()] * 2,
            {"features": "log_degree"},
            "no node attribute 'log_degree' for features; it has none. log_deg",
        ),
        ([cycle(x=np.eye(3)), cycle()], {}, r"snapshots\[1\] has no node attribute 'x' for features"),
        ([cycle(x=np.eye(3)[:, :2]), cycle(x=np.eye(3))], {}, r"rows of 'x' have the shapes \[\(2,\), \(3,\)\]"),
        ([cycle(x=np.ones((3, 2, 4)))] * 2, {}, r"snapshots\[0\].x has shape \(3, 2, 4\).*reshape\(3, -1\)"),
        ([cycle(x=np.full((3, 1), np.nan))] * 2, {}, "finite"),
        ([cycle(y=np.array([0.5]))] * 2, {}, r"y has shape \(1,\); one row for each of the 3 nodes.*targets=None"),
        ([cycle(y=np.ones((3, 12)))] * 2, {}, r"snapshots\[0\].y has shape \(3, 12\); one value for each node"),
        ([cycle(y=np.array([1, np.nan, 2]))] * 2, {}, r"targets\[0, 1\] is nan"),
        ([cycle(), cycle(y=np.ones(3))], {}, r"snapshots\[0\] has no node attribute 'y' for targets"),
        ([cycle()] * 2, {"targets": np.ones((3, 3))}, r"targets has shape \(3, 3\); \(2, 3\) is needed"),
        ([cycle()] * 2, {"labels": [0, 1]}, r"labels have shape \(2,\)"),
        (
            [cycle(x=np.eye(3)), Data(edge_index=index((0, 1)), x=np.ones((2, 3)))],
            {},
            r"snapshots\[1\] has 2 of 3 nodes: what 'x' of node 2 is",
        ),
        ([cycle(x=np.eye(3))] * 2, {"nodes": range(4)}, "node 3 is in no snapshot, so that it has no 'x'"),
        # nodes and options
        ([cycle()] * 2, {"nodes": ["a"]}, r"nodes names 1 nodes, and snapshots\[0\] has 3"),
        ([cycle()] * 2, {"nodes": list("aab")}, "nodes has two nodes 'a'"),
        ([cycle()] * 2, {"nodes": "abc"}, "nodes is 'abc'; a list"),
        ([nx.DiGraph([("a", "b")])] * 2, {"nodes": ["a", "c"]}, "node 'b' of the snapshots is not in nodes"),
        ([nx.DiGraph([("1", 1)])] * 2, {}, "snapshots has two nodes '1', as text"),
        ([cycle()] * 2, {"cut": 3}, r"Unknown argument of from_snapshots\(\) 'cut'"),
        ([cycle()] * 2, {"edge_life": 0}, "edge_life=0 is out of range"),
    ],
)
def test_what_is_wrong_with_snapshots_is_said(snapshots: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises((DataError, ConfigError), match=message):
        from_snapshots(snapshots, **given)


# DGL


class Graph:
    """What DGL's graphs answer, and no more."""

    def __init__(self, src: Any, dst: Any, nodes: int = 3, ndata: Any = None, edata: Any = None) -> None:
        self._ends, self._nodes = (np.array(src), np.array(dst)), nodes
        self.ndata, self.edata = ndata or {}, edata or {}

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        return self._ends

    def num_nodes(self) -> int:
        return self._nodes


def dgl_list(**changed: Graph) -> list[Graph]:
    classes = np.array([0, 1, 1])
    return [
        Graph([0, 1], [1, 2], ndata={"feat": np.eye(3), "label": classes}, edata={"w": np.array([1.0, 2])}),
        Graph([2], [0], ndata={"feat": np.eye(3) * 2, "label": classes}, edata={"w": np.array([3.0])}),
        Graph([], [], ndata={"feat": np.eye(3) * 3, "label": classes}, edata={"w": np.zeros(0)}),
        changed.get("last", Graph([0], [2], ndata={"feat": np.eye(3), "label": classes}, edata={"w": np.array([4.0])})),
    ]


def test_a_list_of_dgl_graphs() -> None:
    graph = from_dgl(dgl_list(), labels="label", weight="w")
    assert edges_by_snapshot(graph) == [[(0, 1, 1), (1, 2, 2)], [(2, 0, 3)], [], [(0, 2, 4)]]
    np.testing.assert_array_equal(graph.features, np.stack([np.eye(3), np.eye(3) * 2, np.eye(3) * 3]))
    assert graph.classes is not None and graph.classes.tolist() == [[0, 1, 1]] * 3
    assert graph.source == "4 DGL graphs (4 edges, weights from w, features from feat, classes from label)"
    assert from_snapshots(dgl_list()).data_hash == graph.data_hash
    plain = from_dgl(dgl_list(), features=None, labels=[1, 0, -1], edge_life=2, name="other")
    assert (plain.name, plain.edge_life, plain.num_features) == ("other", 2, 2)
    assert plain.snapshots[0].weights is None
    assert plain.classes is not None and plain.classes[0].tolist() == [1, 0, -1]


def test_features_that_are_the_same_in_all_graphs_are_kept_once() -> None:
    graphs = [Graph([0], [1], ndata={"feat": np.eye(3)}) for _ in range(3)]
    assert from_dgl(graphs).static_features


def test_real_dgl_graphs() -> None:
    dgl = pytest.importorskip("dgl")
    graphs = []
    for source, target in ((0, 1), (1, 2), (2, 0)):
        graph = dgl.graph((torch.tensor([source]), torch.tensor([target])), num_nodes=3)
        graph.ndata["feat"] = torch.full((3, 2), float(source), requires_grad=True)
        graph.edata["w"] = torch.tensor([[2.0]])
        graphs.append(graph)
    for built in (from_dgl(graphs, weight="w"), from_snapshots(graphs)):
        assert edges_by_snapshot(built) == [[(0, 1, 2)], [(1, 2, 2)], [(2, 0, 2)]]
        assert built.features[1].tolist() == [[1, 1]] * 3
    hetero = dgl.heterograph({("a", "to", "b"): ([0], [1]), ("b", "to", "a"): ([0], [1])})
    for build in (from_dgl, from_snapshots):
        with pytest.raises(DataError, match=r"several types .* not supported.*dgl.to_homogeneous"):
            build([hetero, hetero])


@pytest.mark.parametrize(
    ("graphs", "given", "message"),
    [
        (dgl_list()[:1], {}, "1 DGL graphs; at least 2"),
        ([], {}, "0 snapshots; at least 2"),
        ([*dgl_list(), 5], {}, r"graphs\[4\] is a int; it can be one of: DGL graphs\."),
        (dgl_list(), {"features": "x"}, r"graphs\[0\] has no node attribute 'x' for features; it has feat, label"),
        (dgl_list(last=Graph([0], [1])), {}, r"graphs\[3\] has no node attribute 'feat' for features; it has none"),
        (dgl_list(), {"edge_life": 0}, "edge_life=0 is out of range"),
    ],
)
def test_what_is_wrong_with_dgl_graphs_is_said(graphs: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises((DataError, ConfigError), match=message):
        from_dgl(graphs, **given)


# back out again


def source_graph(*, weighted: bool, labels: bool, features: Any = None) -> lab.DynamicGraph:
    draws = np.random.default_rng(0)
    src, dst, time = draws.integers(0, 30, 400), draws.integers(0, 30, 400), draws.integers(0, 10, 400)
    weight = draws.integers(1, 5, 400) if weighted else None
    classes = np.arange(30) % 3 if labels else None
    return lab.datasets.from_edges(src, dst, time, weight, features, classes, cut=10, edge_life=2)


CASES = {
    "plain": source_graph(weighted=False, labels=False),
    "weighted": source_graph(weighted=True, labels=True),
    "static": source_graph(weighted=True, labels=True, features=np.random.default_rng(1).random((30, 4))),
}


def assert_same(back: lab.DynamicGraph, graph: lab.DynamicGraph) -> None:
    assert back.num_snapshots == graph.num_snapshots == 8
    assert all(one.equals(other) for one, other in zip(back.snapshots, graph.snapshots, strict=True))
    np.testing.assert_array_equal(back.features, graph.features)
    np.testing.assert_array_equal(back.targets, graph.targets)
    assert (back.classes is None) == (graph.classes is None)
    if graph.classes is not None:
        np.testing.assert_array_equal(back.classes, graph.classes)
        np.testing.assert_array_equal(back.vertex_split, graph.vertex_split)
        assert repeats(back.classes) and repeats(graph.classes)
    assert back.static_features == graph.static_features


@pytest.mark.parametrize("case", CASES)
def test_pyg_data_of_a_graph_is_the_same_graph(pyg: type, case: str) -> None:
    graph = CASES[case]
    data = graph.to_pyg()
    assert len(data) == 8 and type(data[0]) is pyg
    assert data[3].edge_index.dtype == torch.int64 and data[3].edge_index.shape == (2, graph.num_edges[3])
    assert data[3].num_nodes == 30 and data[3].x.shape == (30, graph.num_features)
    assert_same(from_snapshots(data, nodes=graph.node_ids), graph)


def test_edges_of_pyg_data_run_from_sources_to_targets(pyg: type) -> None:
    graph = lab.datasets.from_edges([0, 0, 1], [1, 1, 0], [0, 1, 2], cut=3)
    assert [snapshot.edge_index.tolist() for snapshot in graph.to_pyg()] == [[[0], [1]], [[0], [1]]]


@pytest.mark.parametrize("case", CASES)
def test_dgl_graphs_of_a_graph_are_the_same_graph(case: str) -> None:
    pytest.importorskip("dgl")
    graph = CASES[case]
    graphs = graph.to_dgl()
    assert len(graphs) == 8 and graphs[0].num_nodes() == 30
    assert_same(from_snapshots(graphs), graph)
    weight, labels = "weight" if graph.weighted else None, "label" if graph.num_classes else None
    back = from_dgl(graphs, labels=labels, weight=weight)
    assert all(one.equals(other) for one, other in zip(back.snapshots, graph.snapshots, strict=False))
    np.testing.assert_array_equal(back.features, graph.features[:7])


@pytest.mark.parametrize("weighted", [False, True])
def test_networkx_graphs_of_a_graph_are_the_same_graph(weighted: bool) -> None:
    graph = source_graph(weighted=weighted, labels=False)
    graphs = []
    for snapshot in (*graph.snapshots, *graph.extra_following):
        graphs.append(nx.DiGraph())
        graphs[-1].add_nodes_from(graph.node_ids.tolist())
        weights = [{}] * snapshot.num_edges if snapshot.weights is None else [{"weight": w} for w in snapshot.weights]
        ends = (graph.node_ids[snapshot.indices].tolist(), graph.node_ids[snapshot.rows()].tolist())
        graphs[-1].add_edges_from(zip(*ends, weights, strict=True))
    back = from_snapshots(graphs)
    assert back.node_ids is not None and back.node_ids.tolist() == graph.node_ids.tolist()
    assert all(one.equals(other) for one, other in zip(back.snapshots, graph.snapshots, strict=True))
    np.testing.assert_array_equal(back.features, graph.features)


@pytest.mark.parametrize(
    ("library", "method", "command"),
    [("torch_geometric.data", "to_pyg", "pip install torch_geometric"), ("dgl", "to_dgl", "pip install 'dgl==1.1.3'")],
)
def test_a_library_that_is_not_installed_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, library: str, method: str, command: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(NotAvailableError, match=rf"{library.partition('.')[0]} cannot be imported .*{command}"):
        getattr(CASES["plain"], method)()


# training


def signal_list() -> list[Data]:
    draws = torch.Generator().manual_seed(0)
    ring = index(*((node, (node + 1) % 20) for node in range(20)))
    series = torch.rand(54, 20, generator=draws)
    return [Data(x=series[t : t + 4].T, edge_index=ring, edge_attr=torch.ones(20), y=series[t + 4]) for t in range(50)]


def mail_list() -> list[nx.DiGraph]:
    draws = np.random.default_rng(0)
    graphs = [nx.gnp_random_graph(15, 0.1, seed=t, directed=True) for t in range(20)]
    people = [f"person {number}" for number in range(40)]
    return [nx.relabel_nodes(graph, dict(enumerate(draws.permutation(people)[:15].tolist()))) for graph in graphs]


@pytest.mark.parametrize(
    ("snapshots", "steps", "nodes"),
    [
        (signal_list(), 50, 20),
        (mail_list(), 19, 40),
        ([sp.random_array((25, 25), density=0.1, format="csr", rng=t) for t in range(30)], 29, 25),
    ],
    ids=["signal", "mails", "adjacencies"],
)
def test_a_graph_of_snapshots_trains(snapshots: Any, steps: int, nodes: int, tmp_path: Any) -> None:
    graph = from_snapshots(snapshots)
    assert (graph.num_snapshots, graph.num_nodes) == (steps, nodes)
    run = lab.train(lab.RunConfig(system="single", dataset=graph, epochs=2), runs_dir=tmp_path)
    assert run.status == "finished" and np.isfinite(run.summary["validation_loss"])
