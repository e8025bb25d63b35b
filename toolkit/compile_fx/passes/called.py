# pyright: basic
"""Where Inductor's passes are called from, so that each can be seen and switched off there.

Nothing public tells of a single pass. torch has `config.disabled_passes`, which compares parts of names and is one for all
stages, and its bisector, which works through files and environment variables. What a torch lacks is left out.

>>> [call.name for call in calls() if call.stage == "joint"]
['canonicalize_aten_ir_passes', 'replace_random_passes', ...]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ... import torch_private as t
from ...spec import setting

_SUBSYSTEMS = {"pre_grad_passes": "pre_grad", "joint_graph_passes": "joint", "post_grad_passes": "post_grad"}


class Call(NamedTuple):
    """A pass that is called by name from a module, with no observer: replaced there.

    `gives`: what it returns when it is skipped, "graph" for the first argument, "count" for 0. `inside`: the pass that calls it.
    `torchs`: its row of the table, where that has another name. `switch`: the setting without which torch does not import it.
    """

    stage: str
    name: str
    gives: str = ""
    inside: str = ""
    torchs: str = ""
    switch: str = ""


_CALLS = (
    Call("post_grad", "view_to_reshape"), Call("post_grad", "fake_tensor_prop"),
    Call("post_grad", "incremental_update", torchs="FakeTensorUpdater.incremental_update"),
    Call("pre_grad", "numpy_compat_normalization"), Call("pre_grad", "sink_cat_after_pointwise", "graph"),
    Call("pre_grad", "linear_permute_fusion", "graph"), Call("pre_grad", "permute_linear_fusion", "graph"),
    Call("pre_grad", "permute_matmul_fusion", "graph"), Call("pre_grad", "remove_identity", "graph"),
    Call("pre_grad", "fuse_conv_bn", "graph"), Call("pre_grad", "stable_topological_sort", torchs="pre_grad_sort"),
    Call("pre_grad", "quant_lift_up"),
    Call("joint", "canonicalize_aten_ir_passes"), Call("joint", "replace_random_passes", "count"),
    Call("joint", "fuse_seed_creation_pass", "count", "replace_random_passes"),
    Call("joint", "fuse_offset_creation_pass", "count", "replace_random_passes"),
    Call("joint", "stable_topological_sort", torchs="joint_sort"),
    Call("post_grad", "remove_fsdp2_unsharded_param_graph_input_usage"), Call("post_grad", "concat_linear_woq_int4"),
    Call("post_grad", "micro_pipeline_tp_pass"), Call("post_grad", "stable_topological_sort", torchs="post_grad_sort"),
    Call("joint", "auto_chunker", "graph", torchs="auto_chunk", switch="auto_chunker.enable"),
    Call("post_grad", "grouped_gemm_pass", switch="cpp.enable_grouped_gemm_template"),
    Call("post_grad", "spmd_check", switch="aten_distributed_optimizations.spmd_check"),
)  # fmt: skip


def calls() -> Iterator[tuple[Call, Any, str]]:
    """Passes called by name, as far as this torch has them, each with the module or class and the attribute."""
    for call in _CALLS:
        if (not call.switch or setting("inductor", call.switch)[1]) and t.optional(call.torchs or call.name) is not None:
            yield call, *t.home(call.torchs or call.name)


def entries() -> list[Any]:
    """What a pattern does when it matched: of each kind, `apply` is called once per match."""
    return [kind for kind in t.PatternEntry.__subclasses__() if "apply" in vars(kind)]


def stage_of(observer: Any) -> str | None:
    """The stage whose pass an observer of torch's is for; None where it does not tell."""
    return _SUBSYSTEMS.get(observer.subsystem or "")


def applied_bare() -> dict[int, tuple[str, str]]:
    """Groups of patterns that are applied without an observer: id -> (stage, name)."""
    found = {
        id(t.early_patterns): ("joint", "early_patterns"),
        id(t.B2B_GEMM_PASS): ("post_grad", "b2b_gemm_pass"),
    }
    found |= {id(group): ("pre_grad", name) for name, group in t.PRE_GRAD_PATTERNS.items()}
    return found


def fusion_name(rule: Any) -> str:
    """The name by which a setting asks for a group fusion."""
    known = {**t.PRE_GRAD_FUSIONS, **t.POST_GRAD_FUSIONS}
    return next((name for name, kind in known.items() if kind is type(rule)), type(rule).__name__)


def function_name(function: Callable[..., Any]) -> str:
    """What torch calls a pass before dispatch: its function's name, or that of the group whose `apply` it is."""
    group = getattr(function, "__self__", None)
    return str(getattr(group, "pass_name", None) or getattr(function, "__name__", "")).lstrip("_")


def is_group_fusion(function: Callable[..., Any]) -> bool:
    """Whether a pass is torch's group fusion, which has the observer's name of another in post_grad."""
    return getattr(function, "func", None) is t.group_batch_fusion_passes
