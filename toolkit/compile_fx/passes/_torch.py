# pyright: basic
"""The private names of Inductor through which its passes are seen and switched off: where each one is called from.

Nothing public tells of a single pass. torch has `config.disabled_passes`, which compares parts of names and is one for all
stages, and its bisector, which works through files and environment variables. Read and run on 2.11.0 and 2.13.0; what one of
them lacks is left out. Importing this module imports Inductor.

>>> [call.name for call in calls() if call.stage == "joint"]
['canonicalize_aten_ir_passes', 'replace_random_passes', ...]
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch._inductor import pattern_matcher
from torch._inductor.fx_passes import group_batch_fusion, joint_graph, post_grad, pre_grad, split_cat
from torch._inductor.fx_passes.b2b_gemm import B2B_GEMM_PASS
from torch._inductor.fx_utils import FakeTensorUpdater
from torch.fx.passes.graph_transform_observer import GraphTransformObserver

from ...blame._torch import _pattern_name as pattern_name
from .. import _torch as t

CHECKED = ("2.11.0", "2.13.0")
PatternMatcherPass = pattern_matcher.PatternMatcherPass
ENTRIES = tuple(kind for kind in pattern_matcher.PatternEntry.__subclasses__() if "apply" in vars(kind))
"""What a pattern does when it matched: of each kind, `apply` is called once per match."""
_SUBSYSTEMS = {"pre_grad_passes": "pre_grad", "joint_graph_passes": "joint", "post_grad_passes": "post_grad"}
_FX = "torch._inductor.fx_passes."


@dataclass(frozen=True)
class Call:
    """A pass that is called by name from a module, with no observer: replaced there.

    `gives`: what it returns when it is skipped, "graph" for the first argument, "count" for 0. `inside`: the pass that calls it.
    """

    stage: str
    name: str
    owner: Any
    attribute: str
    gives: str = ""
    inside: str = ""


_CALLS = (
    ("pre_grad", "numpy_compat_normalization", "pre_grad"), ("pre_grad", "sink_cat_after_pointwise", "pre_grad", "graph"),
    ("pre_grad", "linear_permute_fusion", "pre_grad", "graph"), ("pre_grad", "permute_linear_fusion", "pre_grad", "graph"),
    ("pre_grad", "permute_matmul_fusion", "pre_grad", "graph"), ("pre_grad", "remove_identity", "pre_grad", "graph"),
    ("pre_grad", "fuse_conv_bn", "pre_grad", "graph"), ("pre_grad", "stable_topological_sort", "pre_grad"),
    ("pre_grad", "quant_lift_up", "quantization"),
    ("joint", "canonicalize_aten_ir_passes", "joint_graph"), ("joint", "replace_random_passes", "joint_graph", "count"),
    ("joint", "fuse_seed_creation_pass", "replace_random", "count", "replace_random_passes"),
    ("joint", "fuse_offset_creation_pass", "replace_random", "count", "replace_random_passes"),
    ("joint", "stable_topological_sort", "joint_graph"),
    ("post_grad", "remove_fsdp2_unsharded_param_graph_input_usage", "post_grad"),
    ("post_grad", "concat_linear_woq_int4", "quantization"), ("post_grad", "micro_pipeline_tp_pass", "post_grad"),
    ("post_grad", "stable_topological_sort", "post_grad"),
)  # fmt: skip
_SWITCHED = (
    ("joint", "auto_chunker", "auto_chunker", "chunk", "graph", "auto_chunker.enable"),
    ("post_grad", "grouped_gemm_pass", "mkldnn_fusion", "grouped_gemm_pass", "", "cpp.enable_grouped_gemm_template"),
    ("post_grad", "spmd_check", "spmd_check", "spmd_check", "", "aten_distributed_optimizations.spmd_check"),
)  # fmt: skip
"""Passes whose module torch imports only where a setting asks for it, and so do we."""


def calls() -> Iterator[Call]:
    """Passes called by name, as far as this torch has them."""
    yield Call("post_grad", "view_to_reshape", t, "view_to_reshape")
    yield Call("post_grad", "fake_tensor_prop", t.stock, "fake_tensor_prop")
    yield Call("post_grad", "incremental_update", FakeTensorUpdater, "incremental_update")
    for stage, name, module, *more in _CALLS:
        owner = importlib.import_module(_FX + module)
        if hasattr(owner, name):
            yield Call(stage, name, owner, name, *more)
    for stage, name, module, attribute, gives, switch in _SWITCHED:
        if setting(switch):
            yield Call(stage, name, importlib.import_module(_FX + module), attribute, gives)


def setting(path: str) -> Any:
    """The value of one of Inductor's settings now, None where this torch has none of the name."""
    found: Any = t.config
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def stage_of(observer: Any) -> str | None:
    """The stage whose pass an observer of torch's is for; None where it does not tell."""
    return _SUBSYSTEMS.get(observer.subsystem or "")


def applied_bare() -> dict[int, tuple[str, str]]:
    """Groups of patterns that are applied without an observer: id -> (stage, name)."""
    found = {
        id(joint_graph.early_patterns): ("joint", "early_patterns"),
        id(B2B_GEMM_PASS): ("post_grad", "b2b_gemm_pass"),
    }
    found |= {id(group): ("pre_grad", name) for name, group in split_cat.PRE_GRAD_PATTERNS.items()}
    return found


def groups() -> dict[tuple[str, str], Any]:
    """(stage, torch's name) -> the patterns that are registered, for those that are groups. Registers Inductor's own first."""
    joint_graph.lazy_init(t.torch.device("cpu"))
    post_grad.lazy_init()
    pre_grad.lazy_init()
    random = importlib.import_module(_FX + "replace_random").patterns
    found = {
        ("joint", "early_patterns"): joint_graph.early_patterns,
        ("joint", "replace_random_passes"): random,
        ("post_grad", "b2b_gemm_pass"): B2B_GEMM_PASS,
    }
    for stage, module in (("joint", joint_graph), ("post_grad", post_grad)):
        found |= {(stage, f"pass_pattern_{i}"): group for i, group in enumerate(module.pass_patterns)}
    return found


def options() -> dict[str, tuple[list[str], list[str]]]:
    """Stage -> (patterns, fusions) that its setting `..._fusion_options` can name."""
    excluded = set(getattr(post_grad, "OPTIMUS_EXCLUDE_POST_GRAD", ()))
    return {
        "pre_grad": (list(split_cat.PRE_GRAD_PATTERNS), list(group_batch_fusion.PRE_GRAD_FUSIONS)),
        "post_grad": (
            [name for name in split_cat.POST_GRAD_PATTERNS if name not in excluded],
            [name for name in group_batch_fusion.POST_GRAD_FUSIONS if name not in excluded],
        ),
    }


def fusion_name(rule: Any) -> str:
    """The name by which a setting asks for a group fusion."""
    known = {**group_batch_fusion.PRE_GRAD_FUSIONS, **group_batch_fusion.POST_GRAD_FUSIONS}
    return next((name for name, kind in known.items() if kind is type(rule)), type(rule).__name__)


def function_name(function: Callable[..., Any]) -> str:
    """What torch calls a pass before dispatch: its function's name, or that of the group whose `apply` it is."""
    group = getattr(function, "__self__", None)
    return str(getattr(group, "pass_name", None) or getattr(function, "__name__", "")).lstrip("_")


def is_group_fusion(function: Callable[..., Any]) -> bool:
    """Whether a pass is torch's group fusion, which has the observer's name of another in post_grad."""
    return getattr(function, "func", None) is group_batch_fusion.group_batch_fusion_passes


__all__ = [
    "CHECKED", "ENTRIES", "Call", "FakeTensorUpdater", "GraphTransformObserver", "PatternMatcherPass", "applied_bare", "calls",
    "function_name", "fusion_name", "group_batch_fusion", "groups", "is_group_fusion", "options", "pattern_name", "pre_grad",
    "setting", "stage_of", "t",
]  # fmt: skip
