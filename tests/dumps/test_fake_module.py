"""A graph loaded with fake values compiles to the same code as the live one: static and dynamic, forward and
backward."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from torch._inductor import compile_fx
from torch.fx import GraphModule

from graphdbg.dumps import live
from graphdbg.dumps.schema import GraphRecord
from graphdbg.dumps.validate import check_graph

from .graphs import MemoryTensors
from .live_graphs import Block

Saved = list[tuple[GraphRecord, MemoryTensors, dict[str, Any], Any, str]]


def code(compiled: Any) -> str:
    """Generated code without the line that numbers the compile."""
    return re.sub(r"# AOT ID: .*", "", compiled.source_code).strip()


def compile_live(function: Any, *args: Any, dynamic: bool) -> Saved:
    """Compiles with Inductor and saves each graph just before it goes to the inner compiler."""
    inner, result = compile_fx.compile_fx_inner, Saved()

    def watched(gm: GraphModule, inputs: Any, **kwargs: Any) -> Any:
        stage = "backward" if kwargs.get("is_backward") else "forward"
        for node, value in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True):
            node.meta["val"] = value  # a backward's inputs have the strides of the compiled forward's outputs
        sink = MemoryTensors()
        data = msgspec.json.encode(live.encode(gm, id=f"0_0/{stage}", stage=stage, sink=sink))
        context = torch._guards.TracingContext.try_get()
        donated = getattr(context and context.fw_metadata, "bw_donated_idxs", None)
        compiled = inner(gm, inputs, **kwargs)
        record = msgspec.json.decode(data, type=GraphRecord)
        check_graph(record, stage)
        result.append((record, sink, kwargs, donated, code(compiled)))
        return compiled

    torch._dynamo.reset()
    with torch._functorch.config.patch(enable_autograd_cache=False), torch._inductor.config.patch(fx_graph_cache=False):
        torch.compile(
            function, backend=lambda gm, i: compile_fx.compile_fx(gm, i, inner_compile=watched), dynamic=dynamic
        )(*args)[0].backward()
    torch._dynamo.reset()
    return result


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_same_code(dynamic: bool, device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    graphs = compile_live(Block().to(device), torch.randn(4, 8, device=device, requires_grad=True), dynamic=dynamic)
    assert [record.stage for record, *_ in graphs] == ["forward", "backward"]
    for record, sink, kwargs, donated, expected in graphs:
        gm, inputs, mode = live.fake_module(record, sink)
        context = torch._guards.TracingContext(mode)
        context.fw_metadata = SimpleNamespace(bw_donated_idxs=donated)
        with torch._guards.tracing(context), torch._inductor.config.patch(fx_graph_cache=False):
            compiled = compile_fx.compile_fx_inner(gm, inputs, **kwargs)
        assert code(compiled) == expected
        assert bool(record.symbols) == dynamic
