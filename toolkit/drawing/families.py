"""The family of an op by the name of its target, and the colour of each family.

Works on the text of a target ("aten.addmm.default", "torch.nn.functional.linear", "transpose"); needs no torch.

>>> family("call_function", "aten.addmm.default")
'matmul'
"""

from __future__ import annotations

import re

from ...dumps.short import base_name

FAMILIES: dict[str, tuple[str, str]] = {
    "input": ("input", "#cfe8ff"),
    "parameter": ("parameter, buffer", "#dfe3ea"),
    "saved": ("saved by forward", "#e6dcf5"),
    "tangent": ("tangent", "#ffd6e7"),
    "constant": ("constant", "#ececec"),
    "matmul": ("matrix product", "#ffc9b0"),
    "convolution": ("convolution", "#ffb8b8"),
    "attention": ("attention", "#ffd98a"),
    "normalisation": ("normalisation", "#f4e3a1"),
    "pointwise": ("pointwise", "#d3f2c9"),
    "reduction": ("reduction", "#a9dfbf"),
    "pooling": ("pooling", "#b5e6e0"),
    "indexing": ("indexing", "#b9dcf2"),
    "random": ("random", "#f3c9f1"),
    "creation": ("creation", "#e9e4d4"),
    "movement": ("copy, cast, concatenation", "#d5d0ee"),
    "view": ("view", "#ffffff"),
    "scalar": ("sizes and scalars", "#f3efe6"),
    "collective": ("collective", "#c6c9ff"),
    "control": ("subgraph, module, kernel", "#c9c1b8"),
    "custom": ("custom op", "#f7b7d2"),
    "other": ("other", "#f6f6f6"),
    "output": ("output", "#bfc7d1"),
}
"""family -> (its words in the legend, the fill of its boxes). Every fill is light enough for black text."""

WEIGHT = ("convolution", "matmul", "attention", "collective", "custom", "control", "normalisation", "pooling",
          "reduction", "indexing", "random", "pointwise", "movement", "creation", "scalar", "other",
          "view")  # fmt: skip
"""What stands for a group of nodes: the family that comes first here."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MATMUL = _words(
    "mm addmm bmm baddbmm matmul linear bilinear einsum dot vdot mv addmv addbmm inner outer ger tensordot"
)
_REDUCTION = _words(
    "sum mean var var_mean std std_mean amax amin max min aminmax argmax argmin prod norm logsumexp any all "
    "cumsum cumprod median"
    " softmax log_softmax _softmax _log_softmax _softmax_backward_data _log_softmax_backward_data sort topk"
    " cross_entropy nll_loss nll_loss_forward nll_loss_backward mse_loss count_nonzero vector_norm "
    "linalg_vector_norm welford"
)
_VIEW = _words(
    "view reshape permute transpose t swapaxes movedim expand expand_as broadcast_to squeeze unsqueeze slice "
    "select split chunk"
    " split_with_sizes unbind as_strided alias flatten unflatten detach getitem narrow diagonal view_as _unsafe_view"
    " lift_fresh_copy _reshape_alias view_dtype T mT unfold real imag view_as_real view_as_complex"
)
_MOVEMENT = _words(
    "clone copy copy_ _to_copy to contiguous cat stack concat hstack vstack convert_element_type pad "
    "constant_pad_nd repeat roll"
    " flip repeat_interleave device_put slice_scatter select_scatter as_strided_scatter float half bfloat16 "
    "type_as tile"
)
_INDEXING = _words(
    "embedding embedding_dense_backward gather index index_put index_put_ index_select take take_along_dim "
    "masked_select"
    " masked_scatter scatter scatter_ scatter_add scatter_add_ scatter_reduce index_add nonzero one_hot "
    "bucketize searchsorted"
    " embedding_bag _unsafe_index _unsafe_index_put _unsafe_masked_index _unsafe_masked_index_put_accumulate setitem"
)
_CREATION = _words(
    "full full_like zeros zeros_like ones ones_like empty empty_like empty_strided new_zeros new_ones "
    "new_full new_empty arange"
    " iota scalar_tensor eye tensor linspace tril_indices triu_indices new_empty_strided empty_permuted "
    "_tensor_constant"
)
_RANDOM = _words(
    "dropout native_dropout native_dropout_backward bernoulli normal uniform exponential multinomial alpha_dropout"
)
_SCALAR = _words(
    "size sym_size sym_stride sym_numel sym_storage_offset sym_max sym_min sym_not sym_sum sym_float item "
    "numel dim stride"
    " _local_scalar_dense _assert_scalar _assert_async _assert_tensor_metadata"
)
_CONTROL = _words("cond while_loop scan map_impl invoke_subgraph")
_LISTS = (
    (_RANDOM, "random"),
    (_VIEW, "view"),
    (_MOVEMENT, "movement"),
    (_INDEXING, "indexing"),
    (_CREATION, "creation"),
    (_SCALAR, "scalar"),
    (_REDUCTION, "reduction"),
)
_KNOWN = _words("aten prims operator math torch _operator builtins")


def family(op: str, target: str, role: str = "", *, is_scalar: bool = False) -> str:
    """The family of a node by its FX op, its target, its role as an input, and whether its value is a symbolic
    scalar."""
    if op == "placeholder":
        roles = {
            "parameter": "parameter",
            "buffer": "parameter",
            "saved": "saved",
            "tangent": "tangent",
            "constant": "constant",
        }
        return roles.get(role) or ("tangent" if target.startswith("tangents_") else "input")
    if op in ("output", "get_attr", "call_module"):
        return {"output": "output", "get_attr": "constant", "call_module": "control"}[op]
    name = base_name(target)
    if is_scalar and op == "call_function":
        return "scalar"
    return _by_name(name, target.split(".")[0] if op == "call_function" else "aten")


def _by_name(name: str, space: str) -> str:
    bare = name.removesuffix("_backward").removesuffix("_") or name
    if "c10d" in space or re.match(r"(all_reduce|all_gather|reduce_scatter|all_to_all|broadcast$|wait_tensor)", name):
        return "collective"
    if space == "higher_order" or "triton_kernel" in name or name in _CONTROL:
        return "attention" if name.startswith("flex_attention") else "control"
    if "attention" in name:
        return "attention"
    if re.search(r"conv(olution|\d|_)|^conv", name) and not name.startswith("convert"):
        return "convolution"
    if name in _MATMUL or bare in _MATMUL or name.endswith(("_mm", "_bmm", "addmm", "_linear")):
        return "matmul"
    if name.endswith(("_norm", "_norm_backward")) or "_norm_legit" in name or "norm_functional" in name:
        return "reduction" if name in _REDUCTION else "normalisation"
    if "pool" in name:
        return "pooling"
    for words, family in _LISTS:
        if name in words or bare in words:
            return family
    if re.match(r"rand|inductor_(seed|random|lookup|randint)|philox", name):
        return "random"
    return "pointwise" if space in _KNOWN else "custom"


def heaviest(families: list[str]) -> str:
    """The family that stands for a group of nodes."""
    return next((name for name in WEIGHT if name in families), families[0] if families else "other")
