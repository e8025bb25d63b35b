"""Probes of a finished case: what is offered, and that each changes the one thing that it says, on real graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.minifier.passes import NAMES, pass_of
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.spec import ReplaySpec

probes = pass_of("probes")


def case(f: Any, *inputs: Any, **spec: Any) -> Live:
    return Live(make_fx(f)(*inputs), list(inputs), ReplaySpec(**spec))


def mixed() -> Live:
    torch.manual_seed(0)
    inputs = torch.randn(4, 8), torch.randn(8, 3), torch.tensor([1, 2, 0])
    return case(lambda x, w, i: [torch.sum(torch.nn.functional.gelu(x @ w) * 2.5, 1, True), w[i]], *inputs)


def run(case: Live) -> Any:
    return fx.Interpreter(case.gm).run(*[value.clone() for value in case.inputs])


def shapes(case: Live) -> list[tuple[int, ...]]:
    return [tuple(value.shape) for value in case.inputs]


def targets(case: Live) -> list[str]:
    return [str(node.target) for node in case.gm.graph.nodes if node.op == "call_function"]


def applied(case: Live, edit: str) -> Live:
    return pass_of(edit.split()[0]).apply(case, edit)


def offered(case: Live, what: str) -> dict[str, list[str]]:
    """Of one kind of part: its name and value -> what would be tried."""
    results: dict[str, list[str]] = {}
    for _, edit, kind, name, value, tried in probes.propose(case)[1:]:
        if kind == what:
            results.setdefault(f"{name} = {value}", []).extend([tried] if edit else [])
    return results


def test_probes_are_no_pass_of_the_search() -> None:
    assert "probes" not in NAMES


def test_every_probe_can_be_made_is_run_by_eager_and_leaves_the_case_alone() -> None:
    given = mixed()
    before = [value.clone() for value in given.inputs], given.gm.print_readable(print_output=False)
    for soon, edit, *_ in probes.propose(given)[1:]:
        if soon in "01":
            changed = applied(given, edit)
            changed.gm.graph.lint()
            run(changed)
            same = [torch.equal(item, other) for item, other in zip(given.inputs, changed.inputs, strict=False)]
            text = changed.gm.print_readable(print_output=False)
            assert text != before[1] or not all(same) or len(changed.inputs) != 3 or "transposed" in edit, edit
    assert all(torch.equal(item, other) for item, other in zip(given.inputs, before[0], strict=True))
    assert given.gm.print_readable(print_output=False) == before[1]


def test_names_are_those_that_the_names_pass_will_give() -> None:
    given = mixed()
    first = probes.propose(given)[0]
    pairs = dict(zip(first[1::2], first[2::2], strict=True))
    canonical = pass_of("names").apply(given, "names canonical").gm
    assert set(pairs.values()) == {node.name for node in canonical.graph.nodes}
    assert (pairs["x_1"], pairs["w_1"], pairs["mm"]) == ("x", "y", "mm")


def test_sizes_that_must_be_equal_are_one_part() -> None:
    result = offered(mixed(), "dim")
    assert result["{x_1}.shape[0] = 4"][:3] == ["5", "3", "8"]
    assert result["{x_1}.shape[1], {w_1}.shape[0] = 8"][:3] == ["9", "7", "16"]
    assert "{x_1}.shape[1] = 8" not in result, "eager refuses it alone"
    assert {"{w_1}.shape[1] = 3", "{i_1}.shape[0] = 3"} < set(result), "each of them can change alone"


def test_what_eager_refuses_to_change_is_said_to_be_tied() -> None:
    given = case(lambda x: [x.view(2, 3) + 1], torch.ones(6))
    rows = [row for row in probes.propose(given)[1:] if row[2] == "dim" and row[0] in "01-"]
    assert rows == [["-", "", "dim", "{x_1}.shape[0]", "6", ""]]


@pytest.mark.parametrize(("edit", "shape"), [("1 2 0.0", (2, 5)), ("5 7 0.1", (1, 7)), ("5 4 0.1", (1, 4))])
def test_one_dimension_grows_and_shrinks(edit: str, shape: tuple[int, ...]) -> None:
    given = case(lambda x: [x * 2], torch.arange(5.0)[None])
    changed = applied(given, f"probes size {edit}")
    assert shapes(changed) == [shape]
    assert changed.inputs[0][0, :4].tolist() == [0, 1, 2, 3]


def test_sizes_keep_the_order_in_memory_size_arguments_and_whole_numbers_in_range() -> None:
    given = case(lambda x: [x.view(8, 2, 3)], torch.randn(2, 3, 8).permute(2, 0, 1))
    assert shapes(applied(given, "probes size 8 9 0.0")) == [(9, 2, 3)]
    turned = applied(case(lambda x: [x + 1], torch.randn(8, 3).t()), "probes size 8 9 0.1")
    assert turned.inputs[0].stride() == (1, 3)
    both = case(lambda x, y: [x.reshape(8) + y], torch.randn(8, 1), torch.randn(8))
    assert shapes(applied(both, "probes size 8 9 0.0,1.0")) == [(9, 1), (9,)]
    run(applied(both, "probes size 8 9 0.0,1.0"))
    index = case(lambda w, i: [w[i]], torch.randn(4, 2), torch.tensor([3, 0, 2, 3]))
    smaller = applied(index, "probes size 4 3 0.0,1.0")
    assert smaller.inputs[1].tolist() == [0, 0, 2]
    run(smaller)


def test_operators_of_the_same_form_stand_in() -> None:
    given = mixed()
    assert offered(given, "node")["{gelu} = aten.gelu.default"] == [
        "neg in its place",
        "left out",
        "sigmoid in its place",
    ]
    assert targets(applied(given, "probes operator gelu sigmoid 0"))[1] == "aten.sigmoid.default"
    negated = case(lambda x: [-x], torch.randn(3))
    assert offered(negated, "node") == {"{neg} = aten.neg.default": ["sigmoid in its place", "abs in its place"]}
    total = case(lambda x: [x.sum(1)], torch.randn(3, 2))
    assert offered(total, "node") == {"{sum_1} = aten.sum.dim_IntList": ["amax in its place"]}
    other = applied(case(lambda x, y: [x * y], torch.randn(3), torch.randn(3)), "probes operator mul neg 0")
    assert (targets(other), len(other.inputs)) == (["aten.neg.default"], 1), "what nothing reads any more goes"


def test_functions_of_torch_and_methods_are_replaced_too() -> None:
    given = Live(fx.symbolic_trace(lambda x: torch.relu(x).tanh()), [torch.randn(3)], ReplaySpec("dynamo"))
    result = offered(given, "node")
    assert list(result) == ["{relu} = torch.relu", "{tanh} = tanh"]
    assert torch.equal(run(applied(given, "probes operator relu abs 0")), given.inputs[0].abs().tanh())
    assert torch.equal(run(applied(given, "probes operator tanh neg 0")), -given.inputs[0].relu())


def test_a_node_that_is_cut_becomes_an_input_or_is_not_returned() -> None:
    given = mixed()
    inner = applied(given, "probes cut gelu")
    assert "aten.gelu.default" not in targets(inner) and "aten.mm.default" not in targets(inner)
    assert torch.allclose(run(inner)[0], run(given)[0])
    outer = applied(given, "probes cut sum_1")
    assert [tuple(item.shape) for item in run(outer)] == [(3, 3), (4, 3)]
    with pytest.raises(ValueError, match="nothing would be left"):
        applied(case(lambda x: [x.relu()], torch.ones(2)), "probes cut relu")


def test_a_case_of_one_node_is_not_cut() -> None:
    assert offered(case(lambda x: [x.relu()], torch.ones(2)), "node") == {
        "{relu} = aten.relu.default": ["neg in its place", "sigmoid in its place"]
    }


def test_numbers_in_arguments_also_the_plain_ones() -> None:
    given = mixed()
    result = offered(given, "constant")
    scale = result.pop("{mul}.other = 2.5")
    assert scale[:2] == ["3.75", "-2.5"] and {"1.0", "2.0"} <= set(scale[2:]), (
        "what the pass may have asked is told if it did"
    )
    assert result == {"{sum_1}.dim[0] = 1": ["0"], "{sum_1}.keepdim = True": ["False"]}
    assert run(applied(given, "probes constant sum_1 0 0"))[0].shape == (1, 3)
    assert run(applied(given, "probes constant sum_1 1 False"))[0].shape == (4,)


def test_values_by_what_an_input_holds() -> None:
    given = case(lambda x, i: [x * 2, i + 1], torch.ones(3), torch.tensor([0, 2]))
    assert offered(given, "values") == {
        "values of {x_1} = ones": ["randn", "arange"],
        "values of {i_1} = as recorded": ["zeros", "other numbers"],
    }
    seeded = applied(given, "values 0 randn")
    assert offered(seeded, "values")["values of {x_1} = randn"][:2] == ["another seed", "ones"]
    assert not torch.equal(applied(seeded, "probes fill 0 randn1").inputs[0], seeded.inputs[0])
    assert applied(given, "probes fill 1 next").inputs[1].tolist() == [1, 0]
    assert applied(given, "probes fill 0 arange").inputs[0].tolist() == pytest.approx([0, 1 / 3, 2 / 3])


def test_strides_and_settings() -> None:
    given = case(
        lambda x, y: [x.t() + y], torch.randn(2, 3), torch.randn(2, 3).t(), config={"inductor": {"cpp.simdlen": 1}}
    )
    assert offered(given, "strides") == {
        "{x_1}.stride() = (3, 1)": ["transposed"],
        "{y_1}.stride() = (1, 3)": ["contiguous"],
    }
    assert applied(given, "probes transposed 0").inputs[0].stride() == (1, 2)
    assert offered(given, "setting") == {"inductor.cpp.simdlen = 1": ["its default"]}
    assert offered(given, "dtype") == {"dtype of {x_1}, {y_1} = float32": ["float64", "bfloat16"]}


def test_where_eager_itself_raises_it_still_can_be_asked() -> None:
    given = Live(mixed().gm, [torch.randn(4, 8), torch.randn(9, 3), torch.tensor([1])], ReplaySpec())
    with pytest.raises(RuntimeError):
        run(given)
    assert offered(given, "dtype")
    assert not any("in its place" in tried for tries in offered(given, "node").values() for tried in tries)


def test_a_pass_of_the_users_is_called_by_its_class() -> None:
    live = case(
        lambda x: [x * 2], torch.ones(2), config={"inductor": {"a_pass": {"opaque": ["train.P", "<P at 0x7f>"]}}}
    )
    assert offered(live, "setting") == {"inductor.a_pass = train.P": ["its default"]}
    live.spec.config["inductor"]["a_pass"] = {"opaque": ["builtins.function", "<function pad_last at 0x7f>"]}
    assert offered(live, "setting") == {"inductor.a_pass = pad_last": ["its default"]}


def test_an_input_of_another_size_is_still_a_view() -> None:
    given = case(lambda x, y: [x.sin(), y], torch.arange(8.0).view(2, 4).t(), torch.ones(4))
    smaller = pass_of("dims").apply(given, "dims 4 3")
    assert shapes(smaller) == [(3, 2), (3,)]
    assert [value._base is not None for value in smaller.inputs] == [True, False]
    assert smaller.inputs[0].tolist() == given.inputs[0][:3].tolist()
