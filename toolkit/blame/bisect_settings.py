"""The settings that bisect tries, best work-around first, with what it means when one of them makes the failure go
away.

To add one: a row. Those that this torch does not have, or that have the value already, are left out.

>>> to_try([("inductor", "fallback_random", True)])[0].text()
'torch._inductor.config.fallback_random = True'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Setting(NamedTuple):
    """One setting with the value to try, and the part of the compiler that it changes."""

    room: str
    name: str
    value: Any
    means: str = ""

    def text(self) -> str:
        """The setting as a line of Python."""
        return f"torch.{'_' + self.room}.config.{self.name} = {self.value!r}"


_MEANS = {
    "fallback_random": "Inductor's own random numbers, which differ from eager's by design",
    "emulate_precision_casts": "intermediate values that stay in float32 where eager rounds each to the low precision",
    "layout_optimization": "the choice of channels-last layouts",
    "comprehensive_padding": "the padding of strides",
    "cse": "AOTAutograd's common subexpression elimination",
}

_MORE = (
    Setting("inductor", "eager_numerics.division_rounding", True, "divisions that are rounded otherwise than eager's"),
    Setting("inductor", "eager_numerics.disable_ftz", True, "subnormal numbers that are flushed to zero"),
    Setting(
        "inductor", "eager_numerics.use_pytorch_libdevice", True, "another libdevice than PyTorch's own kernels use"
    ),
    Setting("inductor", "cpp.simdlen", 0, "the vectorised form of the generated C++"),
    Setting("inductor", "cpp.enable_loop_tail_vec", False, "the masked vector code of loop tails"),
    Setting("inductor", "cpp.enable_tiling_heuristics", False, "the choice of tiles for vectorised loops"),
    Setting("inductor", "cpp.enable_floating_point_contract_flag", "off", "fused multiply-add by the C++ compiler"),
    Setting("inductor", "cpp.enable_unsafe_math_opt_flag", False, "unsafe math optimisations of the C++ compiler"),
    Setting("inductor", "cpp.use_decompose_tanh", True, "the vector library's tanh"),
    Setting("inductor", "cpp.fallback_scatter_reduce_sum", True, "Inductor's scatter_reduce on the CPU"),
    Setting("inductor", "cpp.dynamic_threads", True, "the number of threads compiled into the code"),
    Setting("inductor", "cpp.enable_grouped_gemm_template", False, "the grouped matrix multiplication template"),
    Setting("inductor", "cpp.enable_concat_linear", False, "linear layers joined into one"),
    Setting("inductor", "cpp.weight_prepack", False, "prepacked weights"),
    Setting("inductor", "epilogue_fusion", False, "fusion into the end of matrix multiplications"),
    Setting("inductor", "prologue_fusion", False, "fusion into the start of matrix multiplications"),
    Setting("inductor", "max_fusion_size", 1, "fusion of kernels"),
    Setting("inductor", "loop_ordering_after_fusion", False, "the reordering of loops to fuse more"),
    Setting("inductor", "loop_index_inversion_in_fusion", False, "the inversion of loop indices to fuse more"),
    Setting("inductor", "pick_loop_orders", False, "the choice of loop orders"),
    Setting("inductor", "combo_kernels", False, "kernels joined side by side"),
    Setting("inductor", "split_reductions", False, "reductions in several steps"),
    Setting("inductor", "unroll_reductions_threshold", 1, "small reductions that are unrolled"),
    Setting("inductor", "online_softmax", False, "softmax in one pass"),
    Setting("inductor", "inplace_buffers", False, "buffers written in place"),
    Setting("inductor", "allow_buffer_reuse", False, "the reuse of buffers"),
    Setting("inductor", "inplace_padding", False, "padding in place"),
    Setting("inductor", "memory_planning", False, "memory planning"),
    Setting("inductor", "reorder_for_peak_memory", False, "kernels reordered for less memory"),
    Setting("inductor", "shape_padding", False, "padded matrix multiplications"),
    Setting("inductor", "optimize_scatter_upon_const_tensor", False, "the rewrite of scatters onto constants"),
    Setting("inductor", "keep_output_stride", True, "outputs with other strides than eager's"),
    Setting("inductor", "max_autotune", False, "kernels chosen by measuring"),
    Setting("inductor", "max_autotune_gemm", False, "matrix multiplications chosen by measuring"),
    Setting("inductor", "coordinate_descent_tuning", False, "tuning of kernels by measuring"),
    Setting("inductor", "triton.persistent_reductions", False, "persistent reductions"),
    Setting("inductor", "triton.cooperative_reductions", False, "cooperative reductions"),
    Setting("inductor", "triton.multi_kernel", 0, "several versions of one kernel"),
    Setting("inductor", "triton.cudagraphs", False, "CUDA graphs"),
    Setting("inductor", "triton.cudagraph_trees", False, "the tree of CUDA graphs"),
    Setting("inductor", "use_fast_math", False, "fast math in Triton"),
    Setting("inductor", "assume_aligned_inputs", False, "the assumption that inputs are aligned"),
    Setting("inductor", "freezing", False, "frozen weights"),
    Setting("inductor", "joint_graph_constant_folding", False, "constant folding in the joint graph"),
    Setting("inductor", "reorder_for_locality", False, "nodes moved towards their uses"),
    Setting("inductor", "pattern_matcher", False, "Inductor's pattern matcher as a whole"),
    Setting("inductor", "use_pre_grad_passes", False, "Inductor's pre-grad passes as a whole"),
    Setting("inductor", "use_joint_graph_passes", False, "Inductor's joint passes as a whole"),
    Setting("inductor", "cpp_wrapper", False, "the C++ wrapper"),
)


def to_try(of_torch: Sequence[tuple[str, str, Any]]) -> list[Setting]:
    """The settings to try: torch's bisector's, then those of this module. `applicable` says which of them this torch
    has."""
    own = [Setting(room, name, value, _MEANS.get(name, "")) for room, name, value in of_torch]
    known = {(setting.room, setting.name) for setting in own}
    return [*own, *(setting for setting in _MORE if (setting.room, setting.name) not in known)]


def applicable(payload: dict[str, Any]) -> list[list[Any]]:
    """The body of a query: those settings to try that this torch has with another value, after the recorded ones."""
    from ..live.spec import setting
    from . import switching

    usable: list[list[Any]] = []
    for candidate in to_try(switching.config_changes()):
        has, now = setting(candidate.room, candidate.name)
        now = payload["config"].get(candidate.room, {}).get(candidate.name, now)
        if has and now != candidate.value:
            usable.append(list(candidate))
    return usable


def own(payload: dict[str, Any]) -> dict[str, str]:
    """The body of a query: those of a run's own settings that this torch has, and that say what a graph becomes, with
    the line of Python that puts each back."""
    from ...dumps.permitted import of_the_process
    from ...dumps.program.settings import SET_BY_TORCH
    from ..live.spec import default_of

    rows = [(room, name, *default_of(room, name)) for room, names in payload["config"].items() for name in names]
    return {
        f"{room}.{name}": Setting(room, name, default).text()
        for room, name, has, default in rows
        if has and name not in SET_BY_TORCH.get(room, ()) and not of_the_process(name)
    }


TASK, OWN = f"{__name__}:applicable", f"{__name__}:own"
