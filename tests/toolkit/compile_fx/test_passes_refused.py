"""Passes that only some graphs need: those graphs say so, with the node, and all others do without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.compile_fx import Pipeline
from graphdbg.toolkit.compile_fx.passes import PASSES
from graphdbg.toolkit.compile_fx.passes.watching import watched

from .passes_cases import Case, compiled, dropped, here, in_place, small


def scanned(x: Any, y: Any) -> Any:
    from torch._higher_order_ops.scan import scan

    return scan(lambda carry, each: (carry + each, carry * each), y.sum(0), x)[1]


def mapped(x: Any, y: Any) -> Any:
    from torch._higher_order_ops.map import map as map_each

    return map_each(lambda each, all_of: each.sin() + all_of, x, y)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("joint.replace_random_passes", dropped),
        ("joint.fuse_seed_creation_pass", dropped),
        ("post_grad.decompose_auto_functionalized", in_place),
        ("post_grad.fix_auto_functionalized_dtype_views", in_place),
    ],
)
def test_a_graph_that_needs_a_pass_says_so(name: str, model: Callable[..., Any]) -> None:
    if not here(name):
        pytest.skip("this torch has no such pass")
    with pytest.raises(UsageError) as reported:
        compiled(Case(model, small, ()), (name,))
    text = str(reported.value)
    assert text.startswith(f"the pass {name} cannot be skipped for this graph: {_needed(name)} (node ")


@pytest.mark.parametrize(
    ("name", "model"),
    [("post_grad.decompose_scan_to_while_loop", scanned), ("post_grad.decompose_map_to_while_loop", mapped)],
)
def test_a_loop_that_lowering_does_not_know_says_so(name: str, model: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    options = {"pipeline": Pipeline(skip=(name,), until="codegen")}
    with pytest.raises(Exception, match=f"the pass {name} cannot be skipped for this graph: {_needed(name)}"):
        torch.compile(model, backend="graphdbg_triton", options=options)(*small())


def test_kernels_offsets_and_quantisation_say_so() -> None:
    """Graphs of which this machine cannot compile any, so only their nodes are here."""
    import torch._higher_order_ops.triton_kernel_wrap
    from torch._inductor import inductor_prims
    from torch._inductor.fx_passes import joint_graph, post_grad
    from torch.fx.passes.graph_transform_observer import GraphTransformObserver

    hops = torch.ops.higher_order

    def kernels(gm: torch.fx.GraphModule) -> None:
        name = "decompose_triton_kernel_wrapper_functional"
        observer = GraphTransformObserver(gm, name, "post_grad_passes")
        observer.apply_graph_pass(post_grad.decompose_triton_kernel_wrapper_functional)

    rows: list[tuple[str, Any, Callable[[Any], Any]]] = [
        ("post_grad.decompose_triton_kernel_wrapper_functional", hops.triton_kernel_wrapper_functional, kernels),
        (
            "joint.canonicalize_aten_ir_passes",
            hops.invoke_quant_packed,
            lambda gm: joint_graph.canonicalize_aten_ir_passes(gm),
        ),
    ]
    if here("joint.fuse_offset_creation_pass"):
        offset = inductor_prims.rand_eager_offset
        rows.append(("joint.fuse_offset_creation_pass", offset, with_offsets))
    for name, target, run in rows:
        graph = torch.fx.Graph()
        graph.output(graph.call_function(target, ()))
        gm = torch.fx.GraphModule({}, graph)
        stage, bare = name.split(".")
        with (
            watched(stage, [], {(stage, bare)}),
            pytest.raises(UsageError, match=f"{name} cannot be skipped for this graph"),
        ):
            run(gm)


def with_offsets(gm: Any) -> None:
    from torch._inductor.fx_passes import joint_graph

    with torch._inductor.config.patch(align_random_eager=True):
        joint_graph.replace_random_passes(gm)


def test_a_graph_without_such_nodes_does_without() -> None:
    names = [f"{stage}.{name}" for (stage, name), item in PASSES.items() if item.needed_for]
    names = [name for name in names if here(name)]
    pipeline = compiled(Case(lambda x, y: (x @ y.T).relu(), small, ()), tuple(names))
    assert pipeline.reports[-1].stage == "codegen"
    ran = [skipped_pass for skipped_pass in pipeline.skipped_passes() if "did not run" not in skipped_pass]
    assert len(ran) >= len(names) - 2  # seeds and offsets are inside a pass that is left out


def _needed(name: str) -> str:
    stage, bare = name.split(".")
    return PASSES[stage, bare].needed or ""
