"""Any subset of atoms is a valid graph that computes what the whole graph computed (the K-encoding)."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit.cutting.atoms import Atoms, output_nodes
from graphdbg.toolkit.cutting.eager_values import record_values
from graphdbg.toolkit.cutting.spill import load_inputs, load_values, save_values
from graphdbg.toolkit.cutting.subgraph import build
from graphdbg.toolkit.live.eager import clone_inputs
from graphdbg.toolkit.live.values import Values, compact, input_bytes

Made = tuple[fx.GraphModule, list[Any]]


def dynamo_graph(f: Callable[..., Any], *inputs: Any, dynamic: bool | None = None) -> Made:
    """The graph that Dynamo makes of a function, and its real inputs."""
    seen: list[Made] = []

    def backend(gm: fx.GraphModule, _: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            seen.append((gm, [a.clone() if isinstance(a, torch.Tensor) else a for a in args]))
            return gm(*args)

        return run

    torch._dynamo.reset()
    torch.compile(f, backend=backend, dynamic=dynamic)(*inputs)
    return seen[0]


def pure() -> Made:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(x @ w)
        spread, mean = torch.std_mean(y, 1)
        z = (y.t() - mean) / spread
        return z.t(), x, torch.cat([z, z[:, :2]], 1).expand(2, -1, -1)

    inputs = [torch.randn(4, 6), torch.randn(6, 5)]
    return make_fx(f)(*inputs), inputs


def written_in_the_middle() -> Made:
    def f(x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.sin()
        row = y[0]
        before = y * 2
        row.add_(1.0)
        after = y * 3
        state.copy_(after)
        return before, after, state + 1

    inputs = [torch.randn(3, 4), torch.zeros(3, 4)]
    return make_fx(f)(*inputs), inputs


def modules() -> Made:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU(inplace=True))
    return fx.symbolic_trace(model.train()), [torch.randn(3, 4)]


def lists_and_methods() -> Made:
    def f(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, dim=-1)
        pieces = torch.split(a * b, 2)
        y = torch.cat(pieces, 0).view(x.shape[0], -1)
        with torch.no_grad():
            z = y.sum()
        return y * z + x.size(0)

    return dynamo_graph(f, torch.randn(4, 6))


def autocast() -> Made:
    def f(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x
        return y.float().relu()

    return dynamo_graph(f, torch.randn(4, 4))


def dynamic() -> Made:
    def f(x: torch.Tensor) -> torch.Tensor:
        n = x.size(0) * 2
        return x.repeat(2, 1).view(n, -1).sin() * n

    return dynamo_graph(f, torch.randn(3, 4), dynamic=True)


def in_place() -> Made:
    """What was one alias set as a whole: every op is an atom of its own."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x = x * 1
        for row in range(3):
            y = x @ w
            y.relu_()
            x += y
            x[row] = y.mul_(0.5)[0]
        return x

    return dynamo_graph(f, torch.randn(4, 4), torch.randn(4, 4))


def optimiser() -> Made:
    weights = [torch.randn(4, 4), torch.randn(4)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    adam = torch.optim.Adam(weights, foreach=True)
    gm, inputs = dynamo_graph(adam.step)
    gm.meta["kept alive"] = adam
    return gm, inputs


MAKERS = [pure, written_in_the_middle, modules, lists_and_methods, autocast, dynamic, in_place, optimiser]


def run(gm: fx.GraphModule, inputs: list[Any]) -> dict[str, Any]:
    """Every value of one run, by node name."""
    results: dict[str, Any] = {}

    class Keep(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            value = super().run_node(n)
            if isinstance(value, torch.Tensor):
                results[n.name] = value.detach().clone()
            return value

    Keep(gm).run(*clone_inputs(inputs), enable_io_processing=False)
    return results


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_every_subset_computes_what_the_whole_did(make: Callable[[], Made]) -> None:
    torch.manual_seed(0)
    gm, inputs = make()
    copies = [v.clone() if isinstance(v, torch.Tensor) else v for v in inputs]
    state = {name: value.clone() for name, value in gm.state_dict().items()}
    values = record_values(gm, inputs)
    atoms = Atoms.of(gm, values)
    rng = random.Random(0)
    subsets = [set(range(len(atoms))), *({atom} for atom in range(len(atoms)))]
    subsets += [{atom for atom in range(len(atoms)) if rng.random() < 0.5} for _ in range(30)]
    for keep in filter(None, subsets):
        module, given = build(gm, atoms, values, keep)
        assert len(given) == sum(node.op == "placeholder" for node in module.graph.nodes)
        kept = {name for atom in keep for name in atoms.nodes[atom]}
        for name, value in run(module, given).items():
            if name not in kept:  # an input may get its value from a kept write to the memory it shares
                continue
            recorded = values.trees.get((name, values.produced.get(name, -1)))
            if recorded is not None:
                torch.testing.assert_close(value, recorded.load().detach(), equal_nan=True, msg=f"{name} in {keep}")
        there = {node.name for node in module.graph.nodes if node.op not in ("placeholder", "output", "get_attr")}
        assert there == kept | atoms.carried.needed(kept, atoms.order)
    for before, after in zip(copies, inputs, strict=True):
        assert not isinstance(before, torch.Tensor) or torch.equal(before, after)
    assert all(torch.equal(value, state[name]) for name, value in gm.state_dict().items())


def test_writes_in_place_swallow_nothing() -> None:
    gm, inputs = in_place()
    atoms = Atoms.of(gm, record_values(gm, inputs))
    assert max(len(nodes) for nodes in atoms.nodes) == 1
    assert len(atoms) > 15
    writer = next(number for number, nodes in enumerate(atoms.nodes) if nodes[0].startswith("relu_"))
    reader = next(number for number, before in enumerate(atoms.parents) if writer in before)
    assert reader > writer


def test_who_writes_to_an_input_stands_beside_who_read_it_before() -> None:
    gm = make_fx(lambda x, y: (x.t().cos(), x.sin(), x.copy_(y.exp()), x.tan(), x.zero_()))(*torch.randn(2, 3, 3))
    atoms = Atoms.of(gm, record_values(gm, list(torch.randn(2, 3, 3))))
    before = {nodes: {atoms.nodes[parent] for parent in atoms.parents[atom]} for atom, nodes in enumerate(atoms.nodes)}
    assert before["copy_",] == {("t",), ("cos",), ("sin",), ("exp",)}
    assert before["zero_",] >= {("copy_",), ("tan",)}
    assert before["zero_",].isdisjoint({("sin",), ("cos",)}), "what was read before the last write is no neighbour"


def test_views_of_one_storage_that_are_cut_stay_views_of_one_storage() -> None:
    gm = make_fx(lambda x: (lambda y: y.t() + y.select(0, 1))(x.sin()))(torch.randn(4, 4))
    values = record_values(gm, [torch.randn(4, 4)])
    atoms = Atoms.of(gm, values)
    _, given = build(gm, atoms, values, {len(atoms) - 1})
    assert len({value.untyped_storage().data_ptr() for value in given}) == 1
    assert [value.storage_offset() for value in given] == [0, 4]


def test_symbols_of_what_is_cut_stay_bound() -> None:
    gm, inputs = dynamic()
    values = record_values(gm, inputs)
    atoms = Atoms.of(gm, values)
    module, given = build(gm, atoms, values, {atoms.of_node["view"]})
    names = [node.name for node in module.graph.nodes]
    assert names[0].startswith("s")
    assert isinstance(given[0], int)
    assert any(node.target is operator.mul for node in module.graph.nodes), "the size is computed, not a number"


def test_lying_operators_and_inference_tensors_are_seen_writing() -> None:
    def lies(x: torch.Tensor) -> torch.Tensor:
        x.numpy().fill(7.0)
        return x.clone()

    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.sin, (x,))
    graph.call_function(lies, (a,))
    b = graph.call_method("add_", (a, 1))
    graph.output((graph.call_function(torch.cos, (a,)), b))
    gm = fx.GraphModule({}, graph)
    with torch.inference_mode():
        values = record_values(gm, [torch.ones(3)])
        assert set(values.writes) == {"lies", "add_"}
        atoms = Atoms.of(gm, values)
        module, given = build(gm, atoms, values, {atoms.of_node["cos"]})
        torch.testing.assert_close(module(*given)[0], torch.full((3,), 8.0).cos())


def test_multi_output_op_and_its_items_are_one_atom() -> None:
    gm, inputs = pure()
    atoms = Atoms.of(gm, record_values(gm, inputs))
    assert any(set(nodes) >= {"std_mean", "getitem", "getitem_1"} or len(nodes) >= 3 for nodes in atoms.nodes)


def test_a_vmap_or_grad_that_dynamo_traced_into_is_one_atom() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        rows = torch.vmap(lambda row: (w @ row).sin())(x.cos())
        return torch.func.grad(lambda z: (z.sin() * z).sum())(rows) + 1

    gm, inputs = dynamo_graph(f, torch.randn(5, 4), torch.randn(3, 4))
    values = record_values(gm, inputs)
    atoms = Atoms.of(gm, values)
    regions = [atom for atom, nodes in enumerate(atoms.nodes) if len(nodes) > 1]
    assert len(regions) == 2
    for keep in ({regions[0]}, {regions[1]}, set(regions)):
        module, given = build(gm, atoms, values, keep)
        for node, value in zip(output_nodes(module.graph), module(*given), strict=True):
            torch.testing.assert_close(value.detach(), values.tree(node.name).load().detach())


def test_a_value_is_recorded_as_each_reader_saw_it() -> None:
    gm, inputs = written_in_the_middle()
    values = record_values(gm, inputs)
    atoms = Atoms.of(gm, values)
    for name in ("mul", "mul_1"):
        module, given = build(gm, atoms, values, {atoms.of_node[name]})
        torch.testing.assert_close(module(*given)[0], gm(*[v.clone() for v in inputs])[name == "mul_1"])


def test_dropped_lists_become_lists_of_inputs_and_numbers_become_constants() -> None:
    gm, inputs = lists_and_methods()
    atoms = Atoms.of(gm, values := record_values(gm, inputs))
    cat = next(name for name in atoms.order if name.startswith(("y", "cat")) and atoms.of_node.get(name) is not None)
    module, given = build(gm, atoms, values, {atoms.of_node[cat]})
    assert all(isinstance(value, torch.Tensor) for value in given)
    module(*given)


def test_bypassed_atom_hands_its_input_on() -> None:
    gm = make_fx(lambda x: x.sin().neg().cos())(torch.randn(3))
    values = record_values(gm, [torch.randn(3)])
    atoms = Atoms.of(gm, values)
    module, given = build(gm, atoms, values, {0, 2}, bypass={1})
    assert [node.name for node in module.graph.nodes] == ["x_1", "sin", "cos", "output"]
    torch.testing.assert_close(module(*given)[0], given[0].sin().cos())


def test_recorded_values_keep_strides_overlap_and_no_more_memory_than_needed() -> None:
    column = torch.arange(12.0).reshape(3, 4)[:, 1]
    overlapping = torch.arange(6.0).as_strided((4, 3), (1, 1))
    for value in (column, overlapping, torch.ones(1).expand(5, 5), torch.empty(0, 3)):
        kept = compact(value)
        assert (kept.shape, kept.stride()) == (value.shape, value.stride())
        assert torch.equal(kept, value)
    assert input_bytes([torch.ones(1).expand(5, 5), 7]) == 4
    assert compact(torch.arange(1000.0)[500:503]).storage_offset() == 500
    far = compact(torch.arange(10000.0)[5000:5003])
    assert far.untyped_storage().nbytes() <= 4096 + 12
    assert far.storage_offset() % 1024 == 5000 % 1024


def test_values_survive_their_files(tmp_path: Path) -> None:
    for number, make in enumerate((pure, written_in_the_middle, lists_and_methods)):
        gm, inputs = make()
        folder = tmp_path / str(number)
        folder.mkdir()
        values = record_values(gm, inputs, folder)
        save_values(values, folder)
        loaded = load_values(folder)
        atoms = Atoms.from_json(Atoms.of(gm, values).to_json())
        assert atoms.nodes == Atoms.of(gm, loaded).nodes
        for atom in range(len(atoms)):
            first, second = (build(gm, atoms, which, {atom}) for which in (values, loaded))
            assert first[0].code == second[0].code
            for item, other in zip(first[1], second[1], strict=True):
                if isinstance(item, torch.Tensor):
                    torch.testing.assert_close(item, other, rtol=0, atol=0, equal_nan=True, check_stride=True)


def test_aliased_inputs_stay_aliased_through_files(tmp_path: Path) -> None:
    base = torch.zeros(4)
    gm = make_fx(lambda a, b: a.add_(1) + b)(base[:2].clone(), base[:2].clone())
    inputs = [base[:2], base[:2]]
    values = record_values(gm, inputs, tmp_path)
    save_values(values, tmp_path)
    loaded = load_values(tmp_path)
    module, given = build(gm, Atoms.of(gm, loaded), loaded, range(len(Atoms.of(gm, loaded))))
    given[0].add_(1)
    assert given[1][0] == 1
    assert base.sum() == 0
    assert module is not gm


def test_returned_positions_replace_outputs() -> None:
    gm, inputs = pure()
    values = record_values(gm, inputs)
    atoms = Atoms.of(gm, values)
    number = next(n for n, nodes in enumerate(atoms.nodes) if len(nodes) >= 3)
    first = atoms.nodes[number][1]
    module, _ = build(gm, atoms, values, {number}, returned=atoms.positions([first]))
    items = [node for node in module.graph.nodes if node.target is operator.getitem]
    assert [node.name for node in items] == [first]


def test_inputs_that_are_views_are_loaded_as_views(tmp_path: Path) -> None:
    whole, other = torch.arange(24.0).reshape(6, 4).clone(), torch.arange(5.0)
    save_values(Values([whole, whole[2:], other[1:]]), tmp_path)
    base, window, tail = load_inputs(load_values(tmp_path).inputs)
    assert base._base is None and window._base is base and tail._base.shape == (5,)
    assert torch.equal(window, whole[2:]) and torch.equal(tail, other[1:])
    assert compact(window)._base is None
