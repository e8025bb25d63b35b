"""What the checker must let pass, what it must notice on later runs, and how it goes on where a graph fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit.compilers.debug_nop import collecting
from graphdbg.toolkit.debug_nop.checking import Checked, checked
from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.spec import ReplaySpec
from graphdbg.toolkit.verdicts.mismatches import MetadataMismatch, NodeMismatch
from tests.planted.lying_ops import OPS


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend="graphdbg_debug_nop", fullgraph=True, **options)


def traced(function: Callable[..., Any], *inputs: Any, mode: str = "symbolic") -> fx.GraphModule:
    return make_fx(function, tracing_mode=mode)(*inputs)


def seen(function: Callable[..., Any], *calls: tuple[Any, ...], **options: Any) -> list[NodeMismatch]:
    """Findings of several calls; results must equal eager's."""
    program = compiled(function, **options)
    with collecting() as result, torch.no_grad():
        for call in calls:
            torch.testing.assert_close(program(*call), function(*call), equal_nan=True)
    return result


def test_an_input_may_lie_anywhere_in_its_storage() -> None:
    base = torch.randn(64)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[2:] * 2, x.view(2, -1).t() + 1, x.as_strided((2, 2), (2, 1), 5).clone()

    assert seen(function, (base[0:10],), (base[3:13],), (base[20:30],)) == []


def test_sizes_that_depend_on_data() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        places = torch.nonzero(x)
        return places * 2, x[x > 0].view(-1, 1), places.float().sum()

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        calls = [(torch.tensor([0.0, 1.0, 2.0, 0.0, 3.0]),), (torch.ones(5),), (torch.zeros(5),)]
        assert seen(function, *calls) == []


def test_a_lie_about_a_size_that_depends_on_data() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return OPS.stride(torch.nonzero(x).float() + 1) * 2

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        program = compiled(function, dynamic=True)
        with collecting() as result:
            program(torch.ones(3, 4))
            program(torch.ones(5, 4))
    assert [finding.node for finding in result if finding.origin] == ["stride"]
    assert "12" in result[0].own[0].got
    assert result[0].symbols


@pytest.mark.parametrize("dynamic", [False, True])
def test_subgraphs_are_checked(dynamic: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: OPS.stride(x + 1) * 2, lambda x: (x + 3) * 2, (x,))

    program = compiled(function, dynamic=dynamic)
    with collecting() as result, torch.no_grad():
        program(torch.ones(4, 3))
        program(-torch.ones(4, 3))
    inside = [finding for finding in result if finding.graph]
    assert [finding.name for finding in inside if finding.origin] == ["true_graph_0.stride"]
    assert inside[0].line.startswith("test_checking.py:")


def test_strides_of_one_element_do_not_count() -> None:
    gm = traced(lambda x: torch.sin(x) + 1, torch.randn(1, 4), mode="fake")
    run = checked(gm)
    for inputs in ([torch.randn(4, 1).t()], [torch.randn(1, 4)]):
        run(inputs)
        run(inputs)
    assert run.findings == []


def test_the_quick_checks_of_later_runs_notice_too() -> None:
    flags = {"lie": False}
    library = torch.library.Library("lying", "FRAGMENT")
    name = "sometimes"
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: x.t().contiguous().t() if flags["lie"] else x.clone(), "CPU")
    torch.library.register_fake(f"lying::{name}", lambda x: torch.empty_like(x), lib=library)
    gm = traced(lambda x: torch.cos(torch.ops.lying.sometimes(x + 1)), torch.randn(4, 4))
    run = checked(gm)
    for _ in range(3):
        run([torch.randn(4, 4)])
    assert run.findings == []
    flags["lie"] = True
    run([torch.randn(4, 4)])
    assert [(finding.op, finding.origin) for finding in run.findings] == [
        ("lying::sometimes", True),
        ("aten.cos.default", False),
    ]


def test_a_graph_that_fails_is_still_checked_to_its_end() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return OPS.size(x) @ w, torch.cos(OPS.stride(x))

    x, w = torch.randn(5, 5), torch.randn(4, 2)  # the fake says 4 columns, the op makes 3
    gm = traced(function, x, w, mode="fake")
    run = checked(gm)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        run([x, w])
    assert [finding.node for finding in run.findings if finding.origin] == ["size", "stride"]
    with pytest.raises(MetadataMismatch, match="The graph then failed: RuntimeError"):
        Checked(gm, raises=True)([x, w])


def test_a_lie_that_an_earlier_lie_hides_is_an_origin_too() -> None:
    name = "like"
    library = torch.library.Library("lying", "FRAGMENT")
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: (x + 0).t().contiguous().t(), "CPU")
    torch.library.register_fake(f"lying::{name}", torch.empty_like, lib=library)
    like = torch.ops.lying.like
    gm = traced(lambda x: torch.cos(like(like(x) * 2)), torch.randn(4, 6))
    run = checked(gm)
    run([torch.randn(4, 6)])
    assert [(finding.node, finding.origin) for finding in run.findings] == [
        ("like", True),
        ("mul", False),
        ("like_1", True),
        ("cos", False),
    ]


def test_numbers_are_compared_with_their_expressions() -> None:
    gm = traced(lambda x: x.view(-1, x.shape[1] * 2) * x.shape[0], torch.randn(6, 4))
    run = checked(gm)
    run([torch.randn(8, 6)])
    assert run.findings == []
    for node in gm.graph.nodes:
        if str(node.target) == "aten.sym_size.int" and node.args[1] == 1:
            node.args = (node.args[0], 0)
    gm.recompile()
    wrong = checked(gm)
    wrong([torch.randn(8, 6)])
    first = next(finding for finding in wrong.findings if finding.origin)
    assert (first.own[0].property, first.own[0].expected, first.own[0].got) == ("value", "6", "8")


def test_the_rung_gives_a_metadata_verdict() -> None:
    x = torch.randn(4, 4)
    bad = judge(Live(traced(lambda x: [OPS.stride(x) * 2], x), [x], ReplaySpec("inference")), "debug_nop")
    assert bad.signature is not None
    assert (bad.signature.kind, bad.signature.detail, bad.ok) == ("metadata", "stride", False)
    assert judge(Live(traced(lambda x: [x * 2], x), [x], ReplaySpec("inference")), "debug_nop").text == "ok"


def test_it_is_a_compiler_of_functorch() -> None:
    from functorch.compile import aot_function

    from graphdbg.toolkit.compilers import debug_nop

    x = torch.randn(4, 4, requires_grad=True)
    function = aot_function(lambda x: torch.sin(x).t() * 2, fw_compiler=debug_nop)
    function(x).sum().backward()
    assert torch.equal(x.grad, torch.cos(x.detach()) * 2)
    run = debug_nop.checked(traced(lambda x: OPS.offset(x).cos(), x.detach()), [x])
    assert torch.equal(run([x.detach()]), x.detach().cos())
    assert [finding.op for finding in run.findings] == ["lying::offset"]


def test_a_graph_under_a_tracer_runs_unchecked() -> None:
    x = torch.randn(4, 4)
    run = checked(traced(lambda x: (OPS.stride(x) * 2,), x))
    again = make_fx(lambda x: run([x])[0] + 1, tracing_mode="fake")(x)
    assert len([node for node in again.graph.nodes if node.op == "call_function"]) == 3
    assert run.findings == []
