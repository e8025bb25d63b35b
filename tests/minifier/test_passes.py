"""Passes over the other axes: what they propose, and the case after each edit, as text."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps.schema import Ambient
from graphdbg.minifier.passes import NAMES, PASSES, edit_words, pass_of, switches
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.spec import ReplaySpec


def case(f: Any, *inputs: Any) -> Live:
    return Live(make_fx(f)(*inputs), list(inputs))


def shapes(case: Live) -> list[tuple[int, ...]]:
    return [tuple(value.shape) for value in case.inputs]


def applied(name: str, case: Live, edits: list[str]) -> Live:
    for edit in edits:
        case = pass_of(name).apply(case, edit)
    case.gm(*case.inputs)
    return case


def test_every_pass_is_listed_and_starts_its_edits_with_its_name() -> None:
    assert [pass_of(name).propose.__module__.rpartition(".")[2] for name in NAMES] == list(NAMES)
    given = case(lambda x: x.relu(), torch.randn(4, 3).t())
    for name in NAMES:
        assert all(edit.split()[0] == name for edits in pass_of(name).propose(given) for edit in edits)


def test_a_row_of_a_pass_is_of_its_module_and_its_edits() -> None:
    for name, row in PASSES.items():
        assert row == import_module(f"graphdbg.minifier.passes.{name}").PASS, "all of it is literal"
        assert bool(row.words) != row.explains
        assert all(glob.partition(" ")[0] == name for glob in [*row.edits, *row.unneeded])
        for glob in row.edits:
            words = edit_words(re.sub(r"\*$", "x x", glob).replace("*", "x"))  # the last may be several words
            assert words and "{" not in words and not words.startswith("'"), glob


def test_dims_follow_products_into_size_arguments() -> None:
    given = case(lambda x, w: (x.reshape(24, 16) @ w).view(2, 12, 5), torch.randn(2, 12, 16), torch.randn(16, 5))
    rounds = pass_of("dims").propose(given)
    assert rounds[0] == ["dims 16 2", "dims 12 2", "dims 5 2"]
    small = applied("dims", given, rounds[0])
    assert shapes(small) == [(2, 2, 2), (2, 2)]
    assert "[4, 2]" in small.gm.code
    tiny = applied("dims", small, pass_of("dims").propose(small)[0])
    assert shapes(tiny) == [(1, 1, 1), (1, 1)]
    assert shapes(given) == [(2, 12, 16), (16, 5)]


def test_dims_that_eager_refuses_are_not_proposed() -> None:
    given = case(lambda x: x[:, 6:7] + x.sum(), torch.randn(5, 8))
    for edits in pass_of("dims").propose(given):
        applied("dims", given, edits)


def test_dims_take_the_windows_along_that_keep_an_image_large() -> None:
    given = case(lambda x: torch.ops.aten.max_pool2d_with_indices(x, [16, 8])[1], torch.randn(1, 1, 16, 16))
    rounds = pass_of("dims").propose(given)
    assert rounds == [
        ["dims 8 2 windows", "dims 16 2 windows"],
        ["dims 8 1 windows", "dims 16 1 windows"],
        ["dims 8 4 windows", "dims 16 8 windows"],
    ]
    assert "[2, 2]" in applied("dims", given, rounds[0]).gm.code
    half = applied("dims", given, rounds[-1])
    assert shapes(half) == [(1, 1, 8, 8)]
    assert "[8, 4]" in half.gm.code
    assert pass_of("dims").propose(case(lambda x: x.relu(), torch.ones(1))) == []


def test_dims_keep_indices_in_range_and_stride_order() -> None:
    table, index = torch.randn(100, 8).t().contiguous().t(), torch.tensor([3, 99, 7])
    given = case(lambda table, index: torch.nn.functional.embedding(index, table), table, index)
    small = applied("dims", given, ["dims 100 2"])
    assert shapes(small) == [(2, 8), (3,)]
    assert small.inputs[0].stride() == (1, 2)
    assert int(small.inputs[1].max()) < 2


def test_values_give_way_to_ones_or_seeded_numbers() -> None:
    given = case(lambda x, n: x * n, torch.randn(4, 3).t(), torch.tensor([1, 2, 3, 4]))
    rounds = pass_of("values").propose(given)
    assert rounds == [["values 0 ones", "values 1 zeros"], ["values 0 randn", "values 1 count"], ["values 0 top"]]
    plain = applied("values", given, rounds[0])
    assert plain.inputs[1].tolist() == [0, 0, 0, 0]
    assert applied("values", given, ["values 1 count"]).inputs[1].tolist() == [0, 1, 2, 3]
    largest = applied("values", given, rounds[2]).inputs[0]
    assert torch.equal(largest.abs(), given.inputs[0].abs().max().expand(3, 4))
    assert torch.equal(plain.inputs[0], torch.ones(3, 4))
    assert plain.inputs[0].stride() == given.inputs[0].stride()
    assert pass_of("values").propose(plain) == []
    first, second = (applied("values", given, rounds[1]).inputs[0] for _ in range(2))
    assert torch.equal(first, second)
    flags = case(lambda x: ~x, torch.tensor([True, False]))
    assert pass_of("values").propose(flags) == [["values 0 ones"], ["values 0 zeros"]]
    assert applied("values", flags, ["values 0 ones"]).inputs[0].all()
    assert pass_of("values").propose(case(lambda x: x + 1, torch.zeros(3, dtype=torch.int64))) == []


def test_what_eager_raises_has_to_stay_where_it_is_the_failure() -> None:
    given = Live(fx.symbolic_trace(lambda x: x.add_(x.t())), [torch.rand(6, 6)])
    assert pass_of("dims").propose(given) == [["dims 6 2"], ["dims 6 3"]], "with 1 there is no error any more"
    assert pass_of("dtypes").propose(Live(given.gm, [torch.rand(6, 6).half()])) == [["dtypes float16 float32"]]


def test_values_are_put_into_what_overlaps_itself() -> None:
    windows = torch.rand(7).as_strided((3, 3), (2, 1))
    given = Live(
        make_fx(lambda x, y: x + y)(torch.rand(3, 3), torch.rand(3, 3)), [torch.rand(3, 1).expand(3, 3), windows]
    )
    result = applied("values", given, ["values 0 ones", "values 1 randn"])
    assert [value.stride() for value in result.inputs] == [(1, 0), (2, 1)]
    assert result.inputs[0].eq(1).all() and result.inputs[1].abs().sum() > 0
    shared = Live(given.gm, [windows, windows[:1].expand(3, 3)])
    assert applied("values", shared, ["values 1 ones"]).inputs[0][0].eq(1).all()


def test_memory_between_the_elements_of_simpler_values_is_no_chance() -> None:
    spaced = torch.rand(4096)[::2]
    given = Live(case(lambda x: x + 1, spaced).gm, [spaced])
    freed = torch.full((4096,), 7.0)
    del freed  # whose memory may come next
    simpler = applied("values", given, ["values 0 ones"]).inputs[0]
    assert simpler.stride() == (2,) and simpler.as_strided((4095,), (1,)).sum() == 2048


def test_values_of_one_memory_stay_in_it() -> None:
    base = torch.arange(6.0)
    shared = Live(case(lambda a, b: a + b, base, base).gm, [base, base[2:5]])
    edits, *_ = pass_of("values").propose(shared)
    result = applied("values", shared, edits)
    assert torch.equal(result.inputs[1], torch.ones(3))
    result.inputs[0][2] = 7.0
    assert result.inputs[1][0] == 7.0
    assert torch.equal(base, torch.arange(6.0)), "the case itself is left alone"


def test_strides_part_inputs_of_one_memory() -> None:
    x = torch.randn(4, 4)
    given = case(lambda a, b: a + b, x, x)
    assert pass_of("strides").propose(given) == [["strides 1"]]
    parted = applied("strides", given, ["strides 1"])
    assert parted.inputs[0].data_ptr() != parted.inputs[1].data_ptr()


def dynamo_case(**spec: Any) -> Live:
    """A training graph with symbols and modes, as Dynamo makes it."""
    seen: list[Any] = []

    def backend(gm: Any, fakes: Any) -> Any:
        seen.append(gm)
        return gm

    def f(x: torch.Tensor) -> torch.Tensor:
        n = x.size(0) * 2
        with torch.no_grad():
            y = x.sin()
        with torch.autocast("cpu", torch.bfloat16):
            z = y.repeat(2, 1).view(n, -1) @ x.t()
        return z * x.sum()

    torch._dynamo.reset()
    torch.compile(f, backend=backend, dynamic=True)(torch.randn(3, 4, requires_grad=True))
    inputs = [
        torch.randn(3, 4, requires_grad=True) if isinstance(node.meta["example_value"], torch.Tensor) else (3, 4)[i]
        for i, node in enumerate(node for node in seen[0].graph.nodes if node.op == "placeholder")
    ]
    return Live(seen[0], inputs, ReplaySpec("dynamo", dynamic=True, **spec))


def test_an_autocast_that_names_no_dtype_is_left_as_it_is() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch.amp.autocast_mode._enter_autocast, ("cpu",))
    graph.output((x,))
    case = Live(torch.fx.GraphModule({}, graph), [torch.ones(2)], ReplaySpec("dynamo"))
    assert ["switches regions autocast"] in pass_of("switches").propose(case)


def test_switches_turn_off_what_holds_for_the_whole_case() -> None:
    settings = {"inductor": {"max_autotune": True, "cpp.simdlen": 256}}
    given = dynamo_case(config=settings, ambient=Ambient(autocast={"cpu": "bfloat16"}))
    off = pass_of("switches")
    assert switches.early(given) == ["switches static", "switches grad", "switches config inductor max_autotune"]
    first, everything, singly = off.propose(given)
    regions = ["switches regions autocast", "switches regions grad"]
    assert first == [*switches.early(given)[1:], "switches autocast", *regions], "symbols go one by one"
    assert everything == ["switches config"]
    plain = given
    for edit in ["switches static", *first]:
        plain = off.apply(plain, edit)
        plain.gm(*plain.inputs)
    assert [type(value) for value in plain.inputs] == [torch.Tensor]
    assert not plain.inputs[0].requires_grad
    assert not any("autocast" in str(node.target) or "grad" in str(node.target) for node in plain.gm.graph.nodes)
    assert (plain.spec.dynamic, plain.spec.ambient.grad, plain.spec.ambient.autocast) == (False, False, {})
    assert plain.spec.config == {"inductor": {"cpp.simdlen": 256}}
    assert off.apply(plain, everything[0]).spec.config == {}
    assert off.propose(plain) == [["switches config inductor cpp.simdlen"]]
    assert [edit.split()[-1] for edit in singly] == ["max_autotune", "cpp.simdlen"]
    assert len(given.inputs) == 3
    assert given.spec.dynamic


def test_strides_become_contiguous() -> None:
    given = case(lambda x: x.relu(), torch.randn(5, 4)[1:].t())
    assert pass_of("strides").propose(given) == [["strides 0"]]
    plain = applied("strides", given, ["strides 0"])
    assert (plain.inputs[0].is_contiguous(), plain.inputs[0].storage_offset()) == (True, 0)
    assert torch.equal(plain.inputs[0], given.inputs[0])
    assert pass_of("strides").propose(plain) == []


def test_several_axes_at_once_leave_nothing_to_propose() -> None:
    from graphdbg.minifier.tasks import plainest as together

    def f(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        return [torch.relu(x @ w)]

    inputs = [torch.randn(4, 8), torch.randn(6, 8).t()]
    given = Live(make_fx(f)(*inputs), inputs)
    edits, left = together(given)
    assert [edit.split()[0] for edit in edits] == ["dims"] * 3 + ["values"] * 2
    assert left == ["operators", "inputs", "program", "names"]  # both are one number now
    for edit in edits:
        given = pass_of(edit.split()[0]).apply(given, edit)
    assert [tensor.shape for tensor in given.inputs] == [(1, 1), (1, 1)]
    assert all(bool((tensor == 1).all()) and tensor.is_contiguous() for tensor in given.inputs)
    assert [tensor.shape for tensor in inputs] == [(4, 8), (8, 6)]


def test_what_is_plain_already_has_no_edits() -> None:
    from graphdbg.minifier.tasks import plainest as together

    inputs = [torch.ones(1)]
    given = Live(make_fx(lambda x: [x + 1])(*inputs), inputs)
    assert together(given) == ([], ["program", "names"]), "it is entered behind Dynamo, and make_fx says x_1"
    given = pass_of("program").apply(given, pass_of("program").propose(given)[0][0])
    assert together(given) == ([], ["names"])


def test_one_input_stands_in_for_those_that_are_alike() -> None:
    x, y, z, other = torch.randn(3, 4), torch.randn(3, 4), torch.randn(3, 4), torch.randn(4, 3).t()
    given = case(lambda x, y, other, z: (x + y) * other - z, x, y, other, z)
    given.spec.compile_kwargs["static_input_idxs"] = [0, 2, 3]
    first, second = (node.name for node in list(given.gm.graph.nodes)[:2])
    (edits,) = pass_of("inputs").propose(given)
    assert [edit.split()[2] for edit in edits] == [first, first]
    small = applied("inputs", given, edits)
    assert (len(small.inputs), small.inputs[0] is x, small.inputs[1] is other) == (2, True, True)
    assert small.spec.compile_kwargs["static_input_idxs"] == [0, 1]
    assert torch.equal(small.gm(*small.inputs), (x + x) * other - x)
    assert len(given.inputs) == 4
    assert f"inputs {second} {first}" in edits
    assert pass_of("inputs").propose(small) == []


def test_inputs_that_share_memory_are_left_alone() -> None:
    x = torch.randn(4, 4)
    assert pass_of("inputs").propose(case(lambda a, b: a + b, x, x.view(4, 4))) == []
