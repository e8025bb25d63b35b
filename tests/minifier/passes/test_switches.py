"""Autocast, inference mode and their regions: off one kind at a time, and plainer where they must stay."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps.schema import Ambient
from graphdbg.minifier.passes import pass_of
from graphdbg.minifier.passes.switches import REGIONS
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.eager import clone_inputs
from graphdbg.toolkit.live.spec import ReplaySpec

switches = pass_of("switches")


def captured(f: Any, *inputs: torch.Tensor, **ambient: Any) -> Live:
    seen: list[Any] = []

    def keep(gm: Any, _: Any) -> Any:
        seen.append(gm)
        return gm

    torch._dynamo.reset()
    torch.compile(f, backend=keep, fullgraph=True, dynamic=False)(*inputs)
    return Live(seen[0], list(inputs), ReplaySpec("dynamo", ambient=Ambient(**ambient)))


def called(case: Live) -> list[str]:
    return [
        getattr(node.target, "__name__", str(node.target))
        for node in case.gm.graph.nodes
        if node.op.startswith("call_")
    ]


def dtypes(case: Live) -> list[torch.dtype]:
    return [item.dtype for item in case.gm(*clone_inputs(case.inputs))]


def regions(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    with torch.autocast("cpu", torch.float16):
        y = x @ x
    with torch.no_grad():
        z = x.sin()
    return y, z


def test_regions_go_one_kind_at_a_time() -> None:
    given = captured(regions, torch.randn(3, 3))
    first, second = switches.propose(given)
    assert (first, second) == (
        ["switches regions autocast", "switches regions grad"],
        ["switches dtype float16 bfloat16"],
    )
    off = switches.apply(given, "switches regions autocast")
    assert called(off) == ["matmul", "_set_grad_enabled", "sin", "_set_grad_enabled"]
    assert dtypes(off)[0] is torch.float32
    both = switches.apply(off, "switches regions grad")
    assert called(both) == ["matmul", "sin"]
    assert switches.propose(both) == []
    usual = switches.apply(given, *second)
    assert dtypes(usual)[0] is torch.bfloat16
    assert called(usual) == called(given)
    assert dtypes(given)[0] is torch.float16, "the case itself is left alone"


def test_inference_mode_in_the_graph_goes() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor]:
        with torch.inference_mode():
            return (x.sin(),)

    given = captured(f, torch.randn(3))
    assert switches.propose(given) == [["switches regions inference"]]
    assert called(switches.apply(given, "switches regions inference")) == ["sin"]


def test_autocast_takes_its_usual_dtype_and_the_devices_that_are_there() -> None:
    state = {"autocast": {"cpu": "float16", "cuda": "bfloat16"}, "deterministic": True, "matmul_precision": "high"}
    given = captured(lambda x: [x @ x], torch.randn(3, 3), **state)
    first, second = switches.propose(given)
    assert first == ["switches autocast", "switches state deterministic", "switches state matmul_precision"]
    assert second == ["switches autocast cuda", "switches dtype float16 bfloat16", "switches dtype bfloat16 float16"]
    changed = given
    for edit in second[:2]:
        changed = switches.apply(changed, edit)
    assert changed.spec.ambient.autocast == {"cpu": "bfloat16"}
    assert switches.propose(changed) == [first]
    for edit in first:
        changed = switches.apply(changed, edit)
    assert changed.spec.ambient == Ambient()
    inner = Live(given.gm, given.inputs, ReplaySpec("forward", ambient=Ambient(autocast={"cpu": "float16"})))
    assert switches.propose(inner) == [], "behind AOTAutograd nobody looks at it"


def test_inference_mode_goes() -> None:
    given = captured(lambda x: [x.sin()], torch.randn(3), inference_mode=True)
    assert switches.propose(given) == [["switches inference"]]
    ambient = switches.apply(given, "switches inference").spec.ambient
    assert (ambient.inference_mode, ambient.grad) == (False, False)


def test_a_graph_that_holds_a_region_gives_way_to_its_nodes() -> None:
    from torch._higher_order_ops.wrap import wrap_with_autocast, wrap_with_set_grad_enabled

    body = make_fx(lambda x: [x @ x])(torch.randn(3, 3))
    root = torch.nn.Module()
    root.body = body
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    inner = graph.get_attr("body")
    y = graph.call_function(wrap_with_autocast, ("cpu", torch.float16, True, False, inner, x))
    z = graph.call_function(wrap_with_set_grad_enabled, (False, graph.get_attr("body"), x))
    graph.output(tuple(graph.call_function(operator.getitem, (item, 0)) for item in (y, z)))
    given = Live(torch.fx.GraphModule(root, graph), [torch.randn(3, 3)], ReplaySpec("dynamo"))
    assert dtypes(given) == [torch.float16, torch.float32]
    rounds = switches.propose(given)
    assert rounds == [[f"switches regions {kind}" for kind in list(REGIONS)[:2]], ["switches dtype float16 bfloat16"]]
    assert dtypes(switches.apply(given, "switches dtype float16 bfloat16"))[0] is torch.bfloat16
    off = switches.apply(given, "switches regions autocast")
    assert dtypes(off) == [torch.float32, torch.float32]
    assert called(off) == ["mm.default", "wrap_with_set_grad_enabled", "getitem"]
    assert called(switches.apply(off, "switches regions grad")) == ["mm.default", "mm.default"]
