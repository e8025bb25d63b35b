"""What the printer reads off a graph: where its symbols come from, what it returns, what its values are. Must not import torch.

>>> symbol_homes(record.graph)["s0"], facts_of(record).tolerance
(('x', 0), 1e-05)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, cast

from ..errors import GraphdbgError
from ..expr import symbols as symbols_of
from ..schema import GraphBody, GraphRecord, NodeRecord, StoredTensor, SymValue, TensorValue, Value
from ..walk import contents, given, tag_of
from .text import CannotExpressError

TOLERANCES = {
    "float64": 1e-10, "complex128": 1e-10, "float32": 1e-5, "complex64": 1e-5, "float16": 4e-3, "bfloat16": 3e-2,
}  # fmt: skip
"""Error relative to the size of the values, on top of four times eager's own: the criterion of toolkit.numerics."""

HALF = frozenset({"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"})
CASTS = {"float": "float32", "half": "float16", "bfloat16": "bfloat16"}
"""Methods that cast, and to what."""

_RANDOM = re.compile(
    r"(?:^|[._])(?:rand|bernoulli|dropout|alpha_dropout|normal|multinomial|uniform|exponential|poisson|rrelu)"
)
_OWN_RANDOM = re.compile(r"prims\.inductor_(?:random|randint|seed|lookup_seed)")
_UNBACKED = re.compile(r"\bu\d")
REAL = ("float", "bfloat")
FLOATING = (*REAL, "complex")
"""How floating dtypes begin."""


def mentioned(body: GraphBody) -> set[str]:
    """The symbols in arguments of a graph's nodes; an expression that is none is left to its writer."""
    found: set[str] = set()
    for node in body.nodes:
        for _, text in contents(given(node), "sym"):
            try:
                found |= symbols_of(str(text))
            except GraphdbgError:
                continue
    return found


def symbol_homes(body: GraphBody) -> dict[str, tuple[str, int | None]]:
    """For each symbol the input that is it (None), else the first that has it as a dimension (its index)."""
    homes: dict[str, tuple[str, int | None]] = {}
    for node in placeholders(body):
        if isinstance(node.value, SymValue):
            homes[node.value.expr] = (node.name, None)
        elif isinstance(node.value, TensorValue):
            for index, dim in enumerate(node.value.shape):
                homes.setdefault(str(dim), (node.name, index))
    return homes


def held(body: GraphBody, path: str) -> StoredTensor:
    """The tensor of a constant: its name, after the names of the subgraphs that it lies in."""
    if path in body.attrs:
        return body.attrs[path]
    for name, inner in body.subgraphs.items():
        if path.startswith(f"{name}."):
            return held(inner, path.removeprefix(f"{name}."))
    raise CannotExpressError(f"the attribute {path!r} is not stored")


def placeholders(body: GraphBody) -> list[NodeRecord]:
    """The inputs of a graph."""
    return [node for node in body.nodes if node.op == "placeholder"]


def returned(body: GraphBody) -> list[Any] | None:
    """The outputs of a graph, as they are encoded; None where they are no plain list."""
    output = next((node for node in body.nodes if node.op == "output"), None)
    tag, listed = tag_of(output.args[0] if output is not None and output.args else None)
    return cast("list[Any]", listed) if isinstance(listed, list) and tag in ("", "tuple") else None


def output_values(body: GraphBody) -> list[Value | None]:
    """What is known of each output; [None] where they are no plain list."""
    values = {node.name: node.value for node in body.nodes}
    listed = returned(body)
    if listed is None:
        return [None]
    return [values.get(name) if tag == "node" else None for tag, name in map(tag_of, listed)]


@dataclass(frozen=True)
class Facts:
    """What programs are chosen by. `inputs` and `outputs`: their dtypes, empty for what is no tensor."""

    inputs: list[str]
    outputs: list[str]
    several: bool
    """Whether it gives back more than one thing, or nothing."""
    wanted: list[int]
    """The inputs that are recorded as ones that want a gradient."""
    outputs_want: bool
    """Whether an output is recorded so."""
    unbacked: bool
    """Whether an output has a size that is known only as it runs."""
    with_floats: bool
    """Whether some value is floating, complex ones too, or may be."""
    with_complex: bool
    names_float: bool
    """Whether an argument names a floating dtype, or a method casts: it does not become float64 by its inputs alone."""
    is_random: bool
    """Whether an op draws random numbers: compiled code then has to draw them as eager does."""
    draws_as_inductor: bool
    """Whether one draws from Inductor's own generator."""
    on_cuda: bool
    """Whether an input is on a CUDA device, so that a run must be waited for."""
    tolerance: float
    """The loosest relative one that any dtype of the graph asks for."""
    half: bool
    """Whether a half precision is among them."""


def facts_of(record: GraphRecord) -> Facts:
    """All of them, in one look at the record."""
    nodes = record.graph.nodes
    inputs, outputs = [node.value for node in placeholders(record.graph)], output_values(record.graph)
    tensors = [node.value for node in nodes if isinstance(node.value, TensorValue)]
    dtypes = {value.dtype for value in tensors}
    computed = [node.value for node in nodes if node.op not in ("output", "get_attr")]
    calls = [node.target for node in nodes if node.op.startswith("call_")]
    known = [TOLERANCES.get(dtype, 0.25) for dtype in dtypes if "float" in dtype or dtype in TOLERANCES]
    listed = returned(record.graph)
    return Facts(
        inputs=[value.dtype if isinstance(value, TensorValue) else "" for value in inputs],
        outputs=[value.dtype if isinstance(value, TensorValue) else "" for value in outputs],
        several=listed is not None and len(listed) != 1,
        wanted=[at for at, value in enumerate(inputs) if isinstance(value, TensorValue) and value.requires_grad],
        outputs_want=any(isinstance(value, TensorValue) and value.requires_grad for value in outputs),
        unbacked=any(_UNBACKED.search(str(dim)) for value in outputs if isinstance(value, TensorValue) for dim in value.shape),
        with_floats=any(not isinstance(value, TensorValue) or value.dtype.startswith(FLOATING) for value in computed),
        with_complex=any(dtype.startswith("complex") for dtype in dtypes),
        names_float=any(map(_names_float, nodes)),
        is_random=any(map(_RANDOM.search, calls)),
        draws_as_inductor=any(map(_OWN_RANDOM.search, calls)),
        on_cuda=any(isinstance(value, TensorValue) and value.device.startswith("cuda") for value in inputs),
        tolerance=max(known, default=TOLERANCES["float32"]),
        half=bool(HALF & dtypes),
    )


def _names_float(node: NodeRecord) -> bool:
    casts = node.op == "call_method" and node.target in (*CASTS, "double", "to", "type")
    return casts or any("float" in str(dtype) for dtype in contents(given(node), "dtype"))
