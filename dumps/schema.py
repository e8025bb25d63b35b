"""The saved form, version 1: typed, validated records of graphs, values, inputs, symbols and ambient state.

Knows nothing of torch: dtypes, devices, targets and expressions are strings. `dumps.live` turns records into fx graphs
and back.

Arguments of nodes are JSON values with one-key objects for what JSON lacks (see `dumps.arguments`): a node is {"node":
"add_1"}, a tuple {"tuple": [...]}, a slice {"slice": [0, null, 2]}, a dtype {"dtype": "float32"}.

>>> NodeRecord(name="sin", op="call_function", target="aten.sin.default", args=[{"node": "x"}]).args
[{'node': 'x'}]
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

FORMAT = 1

STAGES = (
    "dynamo", "pre_grad", "joint", "joint_passed", "forward", "backward", "inference", "compiled_autograd",
    "post_grad_forward", "post_grad_backward", "post_grad_inference",
)  # fmt: skip

Dim = int | str
"""A size, stride or offset: an int, or the text of an expression over the graph's symbols ("2*s0 + 1")."""

Arg = Any
"""An encoded argument: null, bool, int, float, str, a list, or an object with one key, a tag of `dumps.arguments`."""

FROM_TRACE = "trace"
OF_A_TRACE = "read from a trace, which has the layout of inputs but not their values: these are synthesised"
"""The policy of inputs in a run that was imported from a trace: only their layout is known, as the trace prints it."""


class Record(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all records: unknown fields are refused with their place, defaults are not written."""


class TensorValue(Record, tag="tensor", tag_field="value_kind"):
    """Metadata of one tensor value. Sizes and strides in elements.

    A tensor that holds others (a traceable wrapper) has them as `inner`, by attribute; `context` is its remaining
    state.

    `storage` names the alias group inside the graph (None: alone); `storage_bytes` is written where the storage is
    larger than the view spans. `conj` and `neg` are the lazy bits; `quantizer` holds qscheme, scale, zero_point and
    axis. For an observed input: whether it is a `leaf` to autograd, its `subclass` if more than a Tensor or Parameter,
    and its `base`, the tensor that it is a view of, where autograd knows it.
    """

    dtype: str
    shape: list[Dim]
    stride: list[Dim] = []
    offset: Dim = 0
    device: str = "cpu"
    layout: str = "strided"
    requires_grad: bool = False
    storage: int | None = None
    storage_bytes: Dim | None = None
    conj: bool = False
    neg: bool = False
    quantizer: dict[str, Arg] = {}
    leaf: bool = True
    subclass: str = ""
    base: TensorValue | None = None
    inner: dict[str, TensorValue] = {}
    context: Arg = None


class SymValue(Record, tag="sym", tag_field="value_kind"):
    """A symbolic scalar: its kind, its expression, and the number it had when it was recorded."""

    kind: Literal["int", "float", "bool"]
    expr: str
    hint: int | float | bool | None = None


class SequenceValue(Record, tag="seq", tag_field="value_kind"):
    """A list or tuple of values (a multi-output op)."""

    kind: Literal["list", "tuple"]
    items: list[Value]


class ConstValue(Record, tag="const", tag_field="value_kind"):
    """A plain value, encoded as an argument."""

    value: Arg


class OpaqueValue(Record, tag="opaque", tag_field="value_kind"):
    """A value that has no saved form (a script object, a generator): its type name."""

    type: str


Value = TensorValue | SymValue | SequenceValue | ConstValue | OpaqueValue


class NodeRecord(Record):
    """One FX node. `stack` and `module` index GraphRecord.strings; -1 is none."""

    name: str
    op: Literal["placeholder", "get_attr", "call_function", "call_method", "call_module", "output"]
    target: str
    args: list[Arg] = []
    kwargs: dict[str, Arg] = {}
    value: Value | None = None
    stack: int = -1
    module: int = -1
    seq_nr: int = -1
    original_aten: str = ""
    from_node: list[str] = []
    meta: dict[str, Arg] = {}


class StoredTensor(Record):
    """A tensor whose bytes lie in tensors/<storage> (the whole storage), and the view on it. Without storage: metadata
    only, or a tensor or list that holds others, which are `inner`, by attribute or by index."""

    storage: str
    value: TensorValue
    parameter: bool = False
    inner: dict[str, StoredTensor] = {}


class ModuleRecord(Record):
    """A leaf module of a `call_module` node: an allow-listed class with its constructor arguments, or a traced body."""

    type: str
    arguments: dict[str, Arg] = {}
    state: dict[str, StoredTensor] = {}
    training: bool = False
    repr: str = ""


class GraphBody(Record):
    """Nodes in order, and the objects that they refer to by name: tensors (`attrs`), leaf modules, subgraphs of
    higher-order ops."""

    nodes: list[NodeRecord]
    attrs: dict[str, StoredTensor] = {}
    modules: dict[str, ModuleRecord] = {}
    subgraphs: dict[str, GraphBody] = {}
    meta: dict[str, Arg] = {}


class TritonKernel(Record):
    """A user's Triton kernel that the graph calls: node.kwargs["kernel_idx"] is its index in GraphRecord.kernels.

    `program` is a whole Python module that defines `name`: imports, constants, helpers, and the function with the
    decorators in force. `decorators`: those that the user wrote; `file`: where ("model.py:12"). `missing`: names that
    the program lacks and cannot run without; `dropped`: what it runs without. Constants of a call are in its node's
    meta["triton_constants"], as Python expressions over the program.
    """

    name: str
    program: str
    decorators: str = ""
    file: str = ""
    missing: list[str] = []
    dropped: list[str] = []


class DefinitionRecord(Record):
    """What a graph needs of a module of the user's: operators that it registers (`spaces` are their namespaces) and
    settings that have no saved form, such as a custom pass (`values`: setting -> expression over the program).

    `program` is cut out of the module, with all that it uses; `module` is the module's name ("__main__" for the
    script), `file` its path. `missing`: names that the program lacks and cannot run without. `argv`: the command line
    of the process; empty in older dumps.
    """

    module: str
    file: str
    program: str
    spaces: list[str] = []
    values: dict[str, str] = {}
    missing: list[str] = []
    argv: list[str] = []


class SymbolRecord(Record):
    """One symbol: its value when it was recorded, and its range (None: unbounded).

    `assume` are the properties it was created with ("integer positive"); `replacement` is the expression that replaced
    it; `renamed` the symbol it was renamed to; `order` its place in the order in which unbacked symbols were created.
    """

    name: str
    hint: int | float | None = None
    lower: int | float | None = None
    upper: int | float | None = None
    backed: bool = True
    source: str = ""
    assume: str = ""
    replacement: str = ""
    renamed: str = ""
    size_like: bool = False
    input: bool = False
    hint_override: int | None = None
    order: int = -1


class GuardRecord(Record):
    """One assumption made while the graph was traced: the expression and, where known, the user line.

    A guard is checked before the graph runs; an assert while it runs, once `symbol` is known; `divisible` means that
    `expr` is 0. `message` is the text of a failed assert, with the user line that a guard comes from.
    """

    expr: str
    stack: int = -1
    kind: Literal["guard", "assert", "divisible"] = "guard"
    symbol: str = ""
    message: str = ""
    size_oblivious: bool = False


class Ambient(Record):
    """Global state that changes what a graph means. `autocast` maps a device type to the dtype in force;
    `threads` is torch's intra-op thread count, which Inductor bakes into C++ kernels."""

    grad: bool = True
    inference_mode: bool = False
    autocast: dict[str, str] = {}
    autocast_cache: bool = True
    deterministic: bool = False
    deterministic_warn_only: bool = False
    matmul_precision: str = "highest"
    tf32: bool = False
    cudnn_tf32: bool = True
    default_dtype: str = "float32"
    threads: int | None = None
    seed: int | None = None
    rng_state: str = ""


class InputRecord(Record):
    """The role of an input (from the stage's own metadata), and its values observed in a real execution."""

    name: str
    role: Literal["parameter", "buffer", "tangent", "saved", "token", "user", "constant", "unknown"] = "unknown"
    source: str = ""
    value: Value | None = None
    scalar: int | float | bool | None = None
    statistics: dict[str, float | int | None] | None = None
    stored: StoredTensor | None = None


class InputsRecord(Record, kw_only=True):
    """inputs.json: the inputs of one execution, in placeholder order. Written after graph.json, when the graph first
    ran.

    `execution` counts the graph's executions from 1, `step` the optimizer's steps (0: unknown); `reason` is why these
    inputs were kept.
    """

    format: int
    policy: str = "index"
    inputs: list[InputRecord]
    ambient: Ambient | None = None
    execution: int = 0
    step: int = 0
    reason: str = ""


class GraphRecord(Record, kw_only=True):
    """graph.json: everything needed to rebuild, show and replay one graph."""

    format: int
    id: str
    stage: str
    compile_id: str | None = None
    versions: dict[str, str] = {}
    graph: GraphBody
    inputs: list[InputRecord] = []
    symbols: list[SymbolRecord] = []
    guards: list[GuardRecord] = []
    shape_env: dict[str, Arg] = {}
    strings: list[str] = []
    kernels: list[TritonKernel] = []
    definitions: list[DefinitionRecord] = []
    compile_kwargs: dict[str, Arg] = {}
    ambient: Ambient = msgspec.field(default_factory=Ambient)
    config: dict[str, dict[str, Arg]] = {}


class RunRecord(Record, kw_only=True):
    """run.json: one recorded command. `job` is the launcher's id where several processes made the run without a
    wrapper. `inputs_policy` is that of `dump --inputs`, or FROM_TRACE."""

    format: int
    command: list[str]
    versions: dict[str, str] = {}
    environment: dict[str, str] = {}
    config: dict[str, dict[str, Arg]] = {}
    world_size: int = 1
    started: float = 0.0
    inputs_policy: str = "index"
    stages: list[str] = []
    job: str = ""
