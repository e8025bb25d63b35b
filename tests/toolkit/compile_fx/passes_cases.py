"""Small models and settings under which each named pass of the table runs, for the tests of passes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from graphdbg.toolkit.compile_fx import Pipeline, compile_fx
from graphdbg.toolkit.compile_fx.passes import PASSES
from graphdbg.toolkit.compile_fx.passes.table import (
    POST_GRAD_FUSIONS,
    POST_GRAD_PATTERNS,
    PRE_GRAD_FUSIONS,
    PRE_GRAD_PATTERNS,
    PREDISPATCH,
)

IS_211 = torch.__version__.startswith("2.11")
ADDED = tuple(PREDISPATCH[-6:])
"""Passes before dispatch that run only when a setting adds them."""
CUSTOM = (
    "pre_grad_custom_pass",
    "joint_custom_pre_pass",
    "joint_custom_post_pass",
    "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass",
)


def here(name: str) -> bool:
    """Whether this torch has a pass of the table."""
    only = PASSES[tuple(name.split(".", 1))].only  # type: ignore[index]
    return not only or only == ("2.11" if IS_211 else "2.13")


@dataclass
class Case:
    """`names`: the passes that run when `model` is compiled under `settings`."""

    model: Callable[..., Any]
    inputs: Callable[[], list[Any]]
    names: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    until: str = "codegen"


def small() -> list[Any]:
    return [torch.randn(4, 8), torch.randn(4, 8)]


def plain(x: Any, y: Any) -> Any:
    z = torch.cat([x.relu(), y], 1).view(4, 16).sum(1, keepdim=True)
    return (z.view(4, 1) * 2 + x).softmax(-1)


def dropped(x: Any, y: Any) -> Any:
    return torch.nn.functional.dropout(x, 0.5) + y, torch.rand(4)


@torch.library.custom_op("graphdbg_passes::add_one", mutates_args={"x"})
def add_one(x: torch.Tensor) -> None:
    x += 1


@add_one.register_fake
def _(x: torch.Tensor) -> None:
    pass


def in_place(x: Any, y: Any) -> Any:
    z = x + y
    torch.ops.graphdbg_passes.add_one(z)
    return z * 2


def custom_pass(graph: torch.fx.Graph) -> None:
    """Does nothing, as a user's own."""


def swap_relu(graph: torch.fx.Graph) -> None:
    """The planted rewrite: relu becomes sigmoid."""
    for node in graph.nodes:
        if node.target is torch.ops.aten.relu.default:
            node.target = torch.ops.aten.sigmoid.default


@contextlib.contextmanager
def backend_pass() -> Iterator[None]:
    from torch._inductor.codegen.common import custom_backend_passes

    before = dict(custom_backend_passes)
    custom_backend_passes["cpu"] = lambda gm: None
    try:
        yield
    finally:
        custom_backend_passes.clear()
        custom_backend_passes.update(before)


def fsdp_hooks() -> Any:
    import torch._dynamo.config as dynamo_config

    return dynamo_config.patch(skip_fsdp_hooks=False) if IS_211 else contextlib.nullcontext()


def _names(stage: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{stage}.{name}" for name in names if here(f"{stage}.{name}"))


ALWAYS = (
    *_names(
        "pre_grad",
        "numpy_compat_normalization",
        "sink_cat_after_pointwise",
        "group_batch_fusion_passes",
        "efficient_conv_bn_eval_pass",
        "apply_gumbel_max_trick_pass",
        "stable_topological_sort",
        "quant_lift_up",
    ),
    *_names(
        "joint",
        "canonicalize_aten_ir_passes",
        "remove_noop_ops",
        "constant_fold_uniform_value",
        "early_patterns",
        "attention_patterns",
        "softmax_patterns",
        "replace_random_passes",
        "fuse_seed_creation_pass",
    ),
    *_names(
        "post_grad",
        "view_to_reshape",
        "fake_tensor_prop",
        "reorder_for_locality",
        "remove_profiler_ops",
        "group_batch_fusion_passes",
        "remove_noop_ops",
        "remove_assert_ops",
        "first_patterns",
        "matmul_patterns",
        "addmm_patterns",
        "stable_sort",
        "move_constructors_to_cuda",
        "incremental_update",
        "reinplace_inplaceable_ops",
        "fix_auto_functionalized_dtype_views",
        "decompose_triton_kernel_wrapper_functional",
        "decompose_auto_functionalized",
        "decompose_scan_to_while_loop",
        "decompose_map_to_while_loop",
    ),
)

_SWITCHES = {
    "auto_chunker.enable": True,
    "dce": True,
    "cpp.enable_concat_linear": True,
    "cpp.enable_grouped_gemm_template": True,
    "max_autotune": True,
    "max_autotune_gemm_backends": "CPP,ATEN",
    "partitioned_scatter_enabled": True,
    "b2b_gemm_pass": True,
    "_micro_pipeline_tp": True,
    "_fuse_ddp_communication": True,
    "fallback_random": True,
    "dedup_reduce_scatters": True,
    "bucket_reduce_scatters_fx": "all",
    "bucket_all_reduces_fx": "all",
    "bucket_all_gathers_fx": "all",
    "aten_distributed_optimizations.spmd_check": True,
    "aten_distributed_optimizations.allow_comms_decompositions": True,
    "aten_distributed_optimizations.enable_overlap_scheduling": True,
    "aten_distributed_optimizations.enable_low_contention_collectives": True,
}


def _known(settings: dict[str, Any]) -> dict[str, Any]:
    import torch._inductor.config as config

    known = config.get_config_copy()
    return {name: value for name, value in settings.items() if name in known}


def cases() -> dict[str, Case]:
    """By name. Together they have each pass of the table that can run on this machine."""
    return {
        "plain": Case(plain, small, ALWAYS),
        "patterns of split and cat": Case(
            plain,
            small,
            _names("pre_grad", *PRE_GRAD_PATTERNS) + _names("post_grad", *POST_GRAD_PATTERNS),
            {
                "pre_grad_fusion_options": {name: {} for name in PRE_GRAD_PATTERNS},
                "post_grad_fusion_options": {name: {} for name in POST_GRAD_PATTERNS},
            },
        ),
        "fusions of groups": Case(
            plain,
            small,
            _names("pre_grad", *PRE_GRAD_FUSIONS) + _names("post_grad", *POST_GRAD_FUSIONS),
            {
                "pre_grad_fusion_options": {name: {} for name in PRE_GRAD_FUSIONS},
                "post_grad_fusion_options": {name: {} for name in POST_GRAD_FUSIONS},
            },
        ),
        "before dispatch": Case(
            plain,
            small,
            _names("pre_grad", *PREDISPATCH),
            {"is_predispatch": True, "add_pre_grad_passes": ",".join(ADDED)},
        ),
        "the user's own": Case(
            plain,
            small,
            (
                *_names("pre_grad", "pre_grad_custom_pass"),
                *_names("joint", "joint_custom_pre_pass", "joint_custom_post_pass", "stable_topological_sort"),
                *_names("post_grad", "post_grad_custom_pre_pass", "post_grad_custom_post_pass"),
            ),
            dict.fromkeys(CUSTOM, custom_pass),
        ),
        "settings": Case(
            plain,
            small,
            (
                *_names("joint", "auto_chunker"),
                *_names(
                    "post_grad",
                    "dce",
                    "grouped_gemm_pass",
                    "concat_linear_woq_int4",
                    "partitioned_scatter_optimization",
                    "b2b_gemm_pass",
                    "micro_pipeline_tp_pass",
                    "fuse_ddp_communication",
                    "chain_random_ops_ordering",
                    "spmd_check",
                    "decomp_comms",
                    "dedup_reduce_scatters",
                    "bucket_reduce_scatters",
                    "bucket_all_reduce",
                    "bucket_all_gathers",
                    "stable_topological_sort",
                    "overlap_scheduling",
                    "replace_collectives_with_low_contention",
                    "remove_fsdp2_unsharded_param_graph_input_usage",
                    "reinplace_fsdp_all_gather",
                ),
            ),
            _known(_SWITCHES),
            fsdp_hooks,
        ),
        "offsets": Case(
            plain, small, _names("joint", "fuse_offset_creation_pass"), _known({"align_random_eager": True})
        ),
        "a backend's own": Case(plain, small, _names("post_grad", "custom_backend_passes_*"), {}, backend_pass),
        "freezing": Case(
            plain,
            small,
            _names("pre_grad", "remove_identity", "fuse_conv_bn"),
            {"freezing": True},
            torch.no_grad,
            "pre_grad",
        ),
        "permutes on a GPU": Case(
            plain,
            lambda: [each.to("meta") for each in small()],
            _names("pre_grad", "linear_permute_fusion", "permute_linear_fusion", "permute_matmul_fusion"),
            {"permute_fusion": True},
            contextlib.nullcontext,
            "pre_grad",
        ),
    }


def compiled(case: Case, skip: tuple[str, ...] = ()) -> Pipeline:
    """Compiles a case with passes watched, as far as the case says; returns what was seen."""
    import torch._inductor.config as config

    from graphdbg.toolkit.compile_fx.stage import Work

    pipeline = Pipeline(skip=skip, watch_passes=True, until=case.until)
    with config.patch(case.settings), case.around():
        gm, inputs = torch.fx.symbolic_trace(case.model), case.inputs()
        if case.until == "pre_grad":
            pipeline.run("pre_grad", Work("dynamo", gm, inputs))
        else:
            compile_fx(gm, inputs, pipeline=pipeline)
    return pipeline


def seen(pipeline: Pipeline) -> dict[str, list[Any]]:
    """Reports of passes by `stage.pass`."""
    results: dict[str, list[Any]] = {}
    for report in pipeline.reports:
        for own_pass in report.passes:
            results.setdefault(own_pass.full_name, []).append(own_pass)
    return results
