"""What a saved graph may call, as plain data: names of functions, of Tensor methods and attributes, and what is denied
outright.

Holds no torch objects and imports nothing of torch; `targets` turns these names into functions, both ways. A name is
added here only if calling the function with tensors and plain values can neither read or write files, start anything,
nor call back into Python that the dump chooses.

>>> "getitem" in OPERATOR, "methodcaller" in OPERATOR
(True, False)
"""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """Splits a text at white space, so that lists of names stay readable."""
    return frozenset(text.split())


OPERATOR = words("""
    abs add and_ concat contains eq floordiv ge getitem gt iadd iand ifloordiv ilshift imatmul imod imul index inv
    invert ior ipow irshift is_ is_not isub itruediv ixor le lshift lt matmul mod mul ne neg not_ or_ pos pow rshift
    setitem sub truediv truth xor""")

BUILTINS = frozenset(
    ["abs", "bool", "complex", "divmod", "float", "getattr", "int", "len", "max", "min", "pow", "round", "sum"]
)

ATTRIBUTES = words("""
    H T data device dtype grad imag is_complex is_cpu is_cuda is_leaf is_meta is_nested is_quantized is_sparse itemsize
    layout mH mT nbytes ndim real requires_grad shape""")
"""Tensor attributes that `builtins.getattr` may name."""

ARRAY_ATTRIBUTES = words("T dtype imag itemsize nbytes ndim real shape size strides")
"""Attributes of an array of compiled NumPy that a call may name."""

DUNDER_METHODS = frozenset(
    f"__{name}__"
    for name in words("""
    abs add and bool contains div eq float floordiv ge getitem gt iadd iand idiv ifloordiv ilshift imod imul index int
    invert ior ipow irshift isub itruediv ixor le len lshift lt matmul mod mul ne neg or pos pow radd rand rdiv
    rfloordiv rlshift rmatmul rmod rmul ror rpow rrshift rshift rsub rtruediv rxor setitem sub truediv xor
    """)
)
"""Arithmetic, comparison and item access: the only double-underscore methods of tensors that `call_method` may name."""

NUMBER_METHODS = words("__ceil__ __floor__ __round__ __trunc__ as_integer_ratio bit_length conjugate hex is_integer")
"""Methods of symbolic numbers that `call_method` may name."""

DENIED_METHODS = words("""
    apply_ map_ map2_ as_subclass module_load numpy register_hook register_post_accumulate_grad_hook share_memory_
    storage untyped_storage storage_type data_ptr set_ dlpack tolist reinforce""")

_EXTRA = {
    "torch._C": "_set_grad_enabled _set_fwd_grad_enabled _enter_dual_level _exit_dual_level _log_api_usage_once",
    "torch._C._autograd": "_saved_tensors_hooks_disable _saved_tensors_hooks_enable",
    "torch.amp.autocast_mode": "_enter_autocast _exit_autocast",
    "torch.autograd.grad_mode": "_enter_inference_mode _exit_inference_mode",
    "torch._C._functorch": """
        current_level maybe_current_level set_inplace_requires_grad_allowed get_inplace_requires_grad_allowed
        set_single_level_autograd_function_allowed unwrap_if_dead _grad_increment_nesting _grad_decrement_nesting
        _jvp_increment_nesting _jvp_decrement_nesting _vmap_increment_nesting _vmap_decrement_nesting _add_batch_dim
        _remove_batch_dim _wrap_for_grad _unwrap_for_grad _unwrap_batched is_batchedtensor get_unwrapped""",
    "torch._functorch.predispatch": """
        _enter_dual_level _exit_dual_level _jvp_increment_nesting _jvp_decrement_nesting _make_dual _unpack_dual
        _unwrap_for_grad _add_batch_dim _remove_batch_dim _vmap_increment_nesting _vmap_decrement_nesting""",
    "torch._functorch.vmap": "lazy_load_decompositions",
    "torch._functorch.eager_transforms": "_set_tensor_requires_grad _autograd_grad",
    "torch.autograd": "grad",
    "torch": """
        Tensor BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor
        ShortTensor _check _check_is_size _check_index _check_tensor_all _check_type _check_value _assert Size as_tensor
        tensor get_default_dtype is_grad_enabled is_inference_mode_enabled""",
    "torch.autograd.forward_ad": "_maybe_load_decompositions make_dual unpack_dual",
    "torch._refs": "tensor",
    "torch._dynamo.variables.torch": "untyped_storage_size",
    "torch._dynamo.create_parameter_op": "tracable_create_parameter",
    "torch.nn.functional": """
        sigmoid tanh hardsigmoid hardswish upsample upsample_nearest upsample_bilinear grouped_mm scaled_mm
        scaled_grouped_mm""",
    "torch.utils._sympy.functions": "FloorDiv",
}
EXTRA_FUNCTIONS = tuple(f"{home}.{name}" for home, names in _EXTRA.items() for name in names.split())
"""Functions outside `get_overridable_functions()` that Dynamo and AOTAutograd write into graphs. A function that the
installed torch lacks is skipped."""

REFERENCE_HOMES = (
    "torch._refs",
    "torch._refs.fft",
    "torch._refs.linalg",
    "torch._refs.nn.functional",
    "torch._refs.special",
)
"""Modules in which torch's operators are written in Python; a graph may call what their `__all__` lists."""

WRAPPER_HOMES = {
    "torch.testing._internal.two_tensor.TwoTensor": "torch.testing._internal.two_tensor",
    "torch.distributed._functional_collectives.AsyncCollectiveTensor": "torch.distributed._functional_collectives",
}
"""Torch's own tensor subclasses that a saved graph may take as inputs, with the module to import for each. Other
subclasses are built only where this process defines their class."""

BUILTIN_HOMES = (
    "torch._C._nn",
    "torch._C._fft",
    "torch._C._linalg",
    "torch._C._special",
    "torch._C._sparse",
    "torch._C._nested",
    "torch",
)
"""Modules of compiled functions that are registered aten ops under another name (`torch.arange`,
`torch._C._nn.gelu`)."""

DENIED_FUNCTIONS = words("""
    from_file load save set_printoptions import_ir_module fork wait compile manual_seed seed set_default_device
    from_dlpack from_numpy frombuffer set_num_threads set_num_interop_threads vmap jit""")

WITH_TORCH = words("""
    aten prim prims higher_order operator _operator math builtins torch numpy quantized _quantized mkldnn
    mkldnn_prepacked onednn mkl sparse xnnpack prepacked c10d debugprims inductor static_runtime nvprims aoti_torch
    streams nnapi""")
"""Namespaces whose operators `import torch` registers."""


def is_custom(target: str) -> bool:
    """Whether a target names an operator that the user or another library registered."""
    root, _, rest = target.partition(".")
    return bool(rest) and not target.startswith("opaque:") and root not in WITH_TORCH and root not in OP_HOMES


OP_HOMES = {
    "prims": ("torch._prims", "torch._inductor.inductor_prims"),
    "inductor": ("torch._inductor.inductor_prims",),
    "bucketing": ("torch._inductor.fx_passes.bucketing",),
    "rngprims": ("torch._prims.rng_prims",),
    "quantized_decomposed": ("torch.ao.quantization.fx._decomposed",),
    "torch_attn": ("torch.nn.attention.varlen",),
    "flex_lib": ("torch._higher_order_ops.flex_attention",),
    "ao": ("torch._functorch._activation_offloading.offload_ops",),
    "semi_structured": ("torch.sparse.semi_structured",),
    "_c10d_functional": ("torch.distributed._functional_collectives",),
    "c10d_functional": ("torch.distributed._functional_collectives",),
    "_c10d_functional_autograd": ("torch.distributed._functional_collectives",),
    "symm_mem": ("torch.distributed._symmetric_memory",),
    "fsdp": ("torch.distributed.fsdp._fully_shard._fsdp_collectives",),
}
"""Namespace -> the modules of torch that register its ops on import. The module names come from here, never from a
dump."""

DENIED_NAMESPACES = words("""
    prim profiler debugprims static_runtime _test onnx_symbolic onnx rpc caffe2 _caffe2 image
    debug_mode_ops""")

DENIED_OPS = words("""
    aten::from_file aten::save aten::load aten::_print aten::to_here aten::confirmed_by_owner aten::local_value
    aten::owner aten::is_owner aten::owner_name aten::hash aten::data_ptr aten::storage inductor::_reinterpret_tensor
    inductor::_alloc_from_pool export::access_subclass_inner_tensor""")

DENIED_ARGUMENTS = ("file", "path", "url", "uri")
"""An op with a string argument whose name holds one of these words is denied, whatever library registered it."""

DENIED_HIGHER_ORDER = words("""
    call_torchbind aoti_call_delegate executorch_call_delegate inductor_compiled_code invoke_leaf_function
    inline_asm_elementwise dynamo_bypassing_wrapper custom_function_call register_hook""")

TRITON_CALLS = frozenset(
    ["higher_order.triton_kernel_wrapper_mutation", "higher_order.triton_kernel_wrapper_functional"]
)
"""Calls of the user's own Triton kernels: they are shown, but running them would execute the source in the dump."""
