"""The private torch names needed to save and load graphs: `torch_private.FakeTensor` is looked up in torch on first
use.

The comment of each row says which public alternative is missing. Importing this module imports nothing of torch.

>>> from graphdbg.dumps.torchside import torch_private as t
>>> t.ShapeEnv.__name__
'ShapeEnv'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..private_names import Names, Row

if TYPE_CHECKING:  # for type checkers, which follow these through isinstance
    from torch._ops import HigherOrderOperator as HigherOrderOperator
    from torch._ops import OpOverload as OpOverload
    from torch._ops import OpOverloadPacket as OpOverloadPacket
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode

_SAVE, _LOAD, _BOTH = "record", "every command that loads a graph", "record, and every command that loads a graph"

NAMES = Names((
    # Torch has no public tensor type without data, and no public table of symbolic sizes.
    Row("torch._subclasses.fake_tensor", "FakeTensor FakeTensorMode", _BOTH),
    Row("torch._library.fake_class_registry", "FakeScriptObject", _LOAD),
    Row("torch.fx.experimental.symbolic_shapes", "ShapeEnv", _BOTH),
    # A symbol has no public constructor; its bounds, guards and asserts are in ShapeEnv's own tables.
    Row("torch.fx.experimental.symbolic_shapes", "RuntimeAssert ShapeEnv._init ShapeGuard ValueRangesSLoc "
        "suppress_guards=_suppress_guards ConvertIntKey CallMethodKey InnerTensorKey DivideByKey", _LOAD),
    Row("torch.fx.experimental.sym_node", "SymNode", _LOAD),
    Row("torch._dynamo.source", "ConstantSource", _LOAD),  # the smallest Source: a name; ShapeEnv keeps Sources only
    Row("torch.utils._traceback", "CapturedTraceback", _LOAD),  # required by RuntimeAssert
    Row("torch.utils._sympy", "sympy_functions=functions", _LOAD),  # FloorDiv, Mod, ... have no public home
    Row("torch.utils._sympy.numbers", "int_oo", _BOTH),
    Row("torch.utils._sympy.value_ranges", "ValueRanges", _LOAD),
    # torch.ops gives instances only, and has neither a list of operators nor a query that imports nothing.
    Row("torch._ops", "OpOverload OpOverloadPacket HigherOrderOperator", _BOTH),
    Row("torch._ops", "higher_order_ops=_higher_order_ops", _LOAD),
    Row("torch._C", "op_schemas=_jit_get_schemas_for_operator", _LOAD),
    Row("torch._higher_order_ops.triton_kernel_wrap", "kernel_side_table", _BOTH),
    # The public contexts know grad mode and one device's autocast; observing must not run in any of the user's modes.
    Row("torch.utils._python_dispatch", "modes_off=_disable_current_modes", _BOTH),
    # Wrapper tensors have a public protocol, but no public test whether a class follows it.
    Row("torch.utils._python_dispatch", "is_wrapper=is_traceable_wrapper_subclass", _BOTH),
    # Tensors of vmap and grad have a shape and no storage; no public call detects them, or that one is being traced.
    Row("torch._C", "is_wrapped=_functorch.is_functorch_wrapped_tensor", _SAVE),
    Row("torch._C", "transform_level=_functorch.maybe_current_level", "replay and check of graphs with vmap or grad"),
    Row("torch", "neg_view=_neg_view", _LOAD),  # torch.resolve_neg is public, setting the bit is not
    # The public calls quantise floats, these take the integers.
    Row("torch", "per_channel_quantized=_make_per_channel_quantized_tensor "
        "per_tensor_quantized=_make_per_tensor_quantized_tensor", _LOAD, "quantised tensors are refused"),
    Row("torch.fx.passes.shape_prop", "tensor_metadata=_extract_tensor_metadata", _LOAD),  # what tracing writes
    # Dynamo writes these for calls of NumPy; torch.compiler.wrap_numpy calls NumPy itself.
    Row("torch._dynamo.utils", "numpy_modules=NP_TO_TNP_MODULE numpy_function=numpy_to_tensor_wrapper "
        "numpy_method=numpy_method_wrapper numpy_operator=numpy_operator_wrapper numpy_attribute=numpy_attr_wrapper",
        _BOTH, "compiled NumPy is refused"),
    Row("torch._numpy", "numpy_array=ndarray", _BOTH, "compiled NumPy is refused"),
    Row("torch.utils", "pytree=_pytree", _BOTH),  # nothing public flattens nested values or follows a key path
    Row("torch.utils._pytree", "SequenceKey MappingKey GetAttrKey", _LOAD),
    # AOTAutograd and fx describe inputs, outputs and a node's origin with these; no public constructor.
    Row("torch._functorch._aot_autograd", "descriptors", _BOTH, "inputs and outputs are loaded without their "
        "descriptions"),
    Row("torch.fx.traceback", "NodeSource._from_dict", _LOAD, "loaded nodes do not know what they were made of"),
    Row("torch._C._distributed_c10d", "resolve_process_group=_resolve_process_group", _BOTH,
        "groups are not known by name"),
))  # fmt: skip

look_up, optional = NAMES.look_up, NAMES.optional
__getattr__ = NAMES.taken_by(globals())
