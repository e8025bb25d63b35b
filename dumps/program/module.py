"""The style of graph.py: a record as a torch.nn.Module class, in a program that needs torch only and runs it eagerly.

Imports no torch, and writes only checked names and repr() of a record's contents into the program. The program defines
`aten = torch.ops.aten` and `constant(path)`, which returns the tensor that the graph holds under a dotted path; the
paths of a subgraph begin with its own ("body_0.weight").

>>> "class Graph(torch.nn.Module):" in program(record)
True
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

import msgspec

from ..allowlist import OP_HOMES, TRITON_CALLS
from ..errors import RefusedError
from ..hints import Numbers, concrete, inputs_known, scalar
from ..schema import (
    ConstValue,
    GraphBody,
    GraphRecord,
    ModuleRecord,
    NodeRecord,
    SequenceValue,
    StoredTensor,
    SymValue,
    TensorValue,
    Value,
)
from ..walk import mentioned, nodes, plain, tensors, user_frame
from .case import GRAD_STAGES, placeholders
from .kernels import INTERPRETED
from .text import (
    CHECKPOINTS,
    GETITEM,
    MODULES,
    Lines,
    Printer,
    Writer,
    blocks,
    identifier,
    indented,
    is_identifier,
    is_numpy,
)

RUNTIME = '''\
HERE = pathlib.Path(__file__).resolve().parent
STORAGES = {}


def stored(name):
    """The bytes of a stored storage, as a uint8 tensor (a safetensors file: 8 bytes length, header, data)."""
    for folder in [HERE, *HERE.parents][:6]:
        path = folder / "tensors" / name
        if path.is_file():
            data = path.read_bytes()
            data = bytearray(data[8 + int.from_bytes(data[:8], "little"):])
            return torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    raise SystemExit(f"tensors/{name} is missing: keep the folder of tensors beside the graph")


def synthesised(spec, count, key):
    """`count` elements of the dtype of `spec`, the same in every run."""
    dtype = getattr(torch, spec["dtype"])
    if "filled" in spec:
        return torch.full((count,), spec["filled"], dtype=dtype)
    source = torch.Generator().manual_seed(sum(ord(c) * 31**i for i, c in enumerate(key)) % 2**63)
    if dtype is torch.bool:
        return torch.rand(count, generator=source) < 0.5
    if dtype.is_complex:
        return torch.randn(count, generator=source, dtype=torch.complex64).to(dtype)
    if dtype.is_floating_point and dtype.itemsize > 1:
        return torch.randn(count, generator=source).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(count, generator=source).abs().add(0.1).to(dtype)
    return torch.randint(0, spec.get("bound", 2), (count,), generator=source).to(dtype)


def tensor(spec, key, storage_name=""):
    """A tensor as `spec` says: its whole storage first, then the view on it; one alias group shares a storage."""
    if spec.get("layout", "strided") != "strided" or spec.get("quantizer"):
        raise SystemExit(f"{key}: graph.py makes no {spec.get('layout', 'quantised')} tensors; use graphdbg replay")
    shape, offset = spec["shape"], spec.get("offset", 0)
    stride = spec["stride"] if "stride" in spec else [math.prod(shape[i + 1:]) for i in range(len(shape))]
    group = spec.get("storage")
    home = (storage_name or key.split(" ")[0], group) if group is not None else key
    if home not in STORAGES:
        if storage_name:
            data = stored(storage_name)
        else:
            count = offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if 0 not in shape else 0
            itemsize = getattr(torch, spec["dtype"]).itemsize
            data = synthesised(spec, max(count, -(-spec.get("storage_bytes", 0) // itemsize)), key)
        STORAGES[home] = data.to(spec.get("device", "cpu")).untyped_storage()
    dtype = getattr(torch, spec["dtype"])
    value = torch.empty(0, dtype=dtype, device=STORAGES[home].device).set_(STORAGES[home], offset, shape, stride)
    value = value.conj() if spec.get("conj") else value
    value = torch._neg_view(value) if spec.get("neg") else value
    return value.requires_grad_() if spec.get("requires_grad") and SETTINGS["grad"] else value


def constant(path):
    """A tensor that the graph holds."""
    spec = CONSTANTS[path]
    value = tensor(spec, "constant " + path, spec["storage_name"])
    return torch.nn.Parameter(value.detach(), value.requires_grad) if spec["parameter"] else value


def inputs():
    """One value per placeholder: stored ones from inputs.json, where it is there, the others synthesised."""
    seen = []
    for path in (HERE / "inputs.json", HERE / "inputs.json.gz"):
        if path.is_file():
            data = path.read_bytes()
            seen = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)["inputs"]
    seen = {item["name"]: item for item in seen}

    def one(name, spec):
        item = seen.get(name, {})
        if item.get("stored", {}).get("storage"):
            return tensor(item["stored"]["value"], name, item["stored"]["storage"])
        if item.get("scalar") is not None:
            return item["scalar"]
        if item.get("value", {}).get("value_kind") == "tensor":
            known = {key: spec[key] for key in ("bound", "filled") if key in (spec or ())}
            spec = {"bound": 2, **item["value"], **known}
        if isinstance(spec, list):
            return [one(f"{name}.{i}", part) for i, part in enumerate(spec)]
        return tensor(spec, "input " + name) if isinstance(spec, dict) else spec

    return [one(name, spec) for name, spec in INPUTS.items()]


def show(name, value):
    """Prints one output."""
    if isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            show(f"{name}[{i}]", item)
    elif isinstance(value, torch.Tensor):
        numbers = value.detach().to(torch.float64) if not value.is_complex() and value.numel() else None
        text = f" mean {numbers.mean():.6g} max |x| {numbers.abs().max():.6g}" if numbers is not None else ""
        print(f"{name}: {value.dtype} {tuple(value.shape)} stride {value.stride()} {value.device}{text}")
    else:
        print(f"{name}: {value!r}")


def main():
    for name in LIBRARIES:
        library, op = name.split(".")
        if not hasattr(getattr(torch.ops, library), op):
            raise SystemExit(
                f"torch.ops.{name} is not registered: import the library that defines it at the top of this file"
            )
    torch.manual_seed(0)
    graph, values = Graph(), inputs()
    import contextlib

    with contextlib.ExitStack() as state:
        inference = SETTINGS["inference_mode"]
        state.enter_context(torch.inference_mode() if inference else torch.set_grad_enabled(SETTINGS["grad"]))
        for device, dtype in SETTINGS["autocast"].items():
            state.enter_context(torch.autocast(device, getattr(torch, dtype)))
        show("output", graph(*values))


if __name__ == "__main__":
    sys.exit(main())
'''


_WORDS = """self torch aten gzip math operator constant max min int float bool len abs round sum range slice complex
getattr divmod pow print tuple list dict str type object super"""
_WANT_GRAPHS = frozenset({"higher_order.autograd_function_apply"})
"""Higher-order ops that need FX graphs as arguments."""
_OWN_OPS = frozenset(
    {"aten", "prims", "higher_order", "operator", "_operator", "math", "builtins", "torch", "numpy", *OP_HOMES}
)
_PLAIN_PRIMS = frozenset(f"prims.{name}.default" for name in ("convert_element_type", "device_put", "iota", "view_of"))
"""Ops of `prims` that are registered by `import torch` alone."""


_NOT_FINITE = re.compile(r"\b(?:inf|nan)\b", re.ASCII)


def program(record: GraphRecord) -> str:
    """The text of graph.py. Raises RefusedError when the graph holds something that has no form in a program."""
    title = f"Graph {record.id} ({record.stage}), saved by graphdbg with torch {record.versions.get('torch', '?')}."
    how = "Runs eagerly: python graph.py. Inputs are those stored beside it, the others are synthesised."
    head = [f'"""{_one_line(title)}', "", how, '"""', ""]
    ambient, early = record.ambient, record.stage in GRAD_STAGES
    autocast = dict(ambient.autocast) if early else {}  # later stages have the effect of autocast in the graph
    settings = {"grad": ambient.grad and early, "inference_mode": ambient.inference_mode, "autocast": autocast}
    printer = _Module(record)
    kernels = printer.kernels
    first = ["from __future__ import annotations", ""] if kernels.strings_for_types else []
    inputs = _inputs(record)
    first += ["from math import inf, nan"] * bool(_NOT_FINITE.search("".join(inputs)))
    parts = [
        *head, *first, "import gzip", "import json", "import math", "import operator",
        *(["import os"] if kernels.source else []),
        "import pathlib", "import sys", "", "import torch", *[f"import {name}" for name in _modules(record)],
        *(["", INTERPRETED, *kernels.imports] if kernels.source else []), "",
        "aten = torch.ops.aten",
        f"LIBRARIES = {_libraries(record)!r}", "", "", *([kernels.source, "", ""] if kernels.source else []),
        blocks(*printer.classes()), "", "", *inputs, "", *_constants(record), "",
        f"SETTINGS = {settings!r}", "", "", RUNTIME,
    ]  # fmt: skip
    return "\n".join(parts)


def _inputs(record: GraphRecord) -> list[str]:
    """`INPUTS = {name: specification}` in placeholder order.

    A specification is a number, None, a list of specifications, or a dict: the fields of TensorValue with numbers for
    all symbols, `bound` for an integer tensor that holds indices, and `filled` for a tensor whose elements are all
    equal.
    """
    inputs, known, limits = inputs_known(record)
    statistics = {item.name: item.statistics or {} for item in inputs.values()}
    lines: list[str] = []
    for node in placeholders(record.graph):
        specification = _specification(node.value, known, limits.get(node.name), f"input {node.name}")
        seen = statistics.get(node.name, {})
        if isinstance(specification, dict) and seen.get("min") is not None and seen["min"] == seen.get("max"):
            specification["filled"] = seen["min"]
        lines.append(f"    {node.name!r}: {specification!r},")
    return ["INPUTS = {", *lines, "}"]


def _constants(record: GraphRecord) -> list[str]:
    """`CONSTANTS = {path: {"storage": hash, ...}}` for the tensors that the graph and its subgraphs hold."""
    lines = [f"    {path!r}: {_stored(stored, f'tensor {path}')!r}," for path, stored in tensors(record.graph)]
    return ["CONSTANTS = {", *lines, "}"]


def _stored(stored: StoredTensor, where: str) -> dict[str, Any]:
    return {**_short(concrete(stored.value, {}, where)), "storage_name": stored.storage, "parameter": stored.parameter}


def _short(value: TensorValue) -> dict[str, Any]:
    """A tensor's fields, without those that equal the program's defaults: the CPU, and the strides of a contiguous
    tensor."""
    fields = cast("dict[str, Any]", msgspec.to_builtins(value))
    contiguous = [math.prod(int(n) for n in value.shape[i + 1 :]) for i in range(len(value.shape))]
    for name, assumed in (("device", "cpu"), ("stride", contiguous)):
        if fields.get(name) == assumed:
            del fields[name]
    del fields["value_kind"]
    if "stride" not in fields and value.stride != contiguous:
        fields["stride"] = []
    return fields


def _specification(value: Value | None, known: Numbers, bound: int | None, where: str) -> Any:
    if isinstance(value, TensorValue):
        if value.inner:
            raise RefusedError(where, f"a program cannot contain a tensor of type {value.subclass}")
        fields = _short(concrete(value, known, where))
        return {**fields, "bound": bound} if bound is not None else fields
    if isinstance(value, SymValue):
        return scalar(value, known)
    if isinstance(value, SequenceValue):
        return [_specification(item, known, None, where) for item in value.items]
    if isinstance(value, ConstValue):
        return plain(value.value)
    if value is None:
        return None
    raise RefusedError(where, f"a program cannot contain a value of type {value.type}")


class _Module(Printer):
    """Renders one graph as a class, after the classes of its subgraphs."""

    TAKEN = frozenset(_WORDS.split())
    SHORT = frozenset({"aten"})
    INDENT, WIDTH = "  ", sys.maxsize

    def __init__(
        self, record: GraphRecord, body: GraphBody | None = None, name: str = "Graph", prefix: str = ""
    ) -> None:
        super().__init__(record)
        self.body = body or record.graph
        self.own, self.prefix = name, prefix
        self._last_line = ""
        self._place = cache(_place)

    def classes(self) -> Iterator[list[str]]:
        """Yields the classes of the subgraphs, then the graph's own."""
        owners: dict[str, str] = {}
        for path, subgraph in self.body.subgraphs.items():
            owners[path] = identifier(f"{self.own}_{path.replace('.', '_')}", f"subgraph {path}")
            yield from _Module(self.record, subgraph, owners[path], f"{self.prefix}{path}.").classes()
        setup = self._setup(owners)
        for node in self.body.nodes:
            if node.name in self.names:
                raise RefusedError(f"node {node.name}", "a node of that name exists already")
            self.name(node)
        start = ["def __init__(self):", *indented(["super().__init__()", *setup], self.INDENT), ""] if setup else []
        forward = self.function("forward", self.body, self._symbols, self._statement)
        yield [f"class {self.own}(torch.nn.Module):", *indented([*start, *forward], self.INDENT)]

    def _symbols(self) -> Lines:
        return self.symbol_lines(self.body, mentioned(self.body.nodes))

    def header(self, name: str, parameters: Lines) -> Lines:
        return super().header(name, ["self", *parameters])

    def _setup(self, owners: dict[str, str]) -> list[str]:
        """Lines of __init__: one member for every tensor, leaf module and subgraph."""
        lines = [f"{self._member(path)} = constant({self.prefix + path!r})" for path in self.body.attrs]
        wanted = any(node.target in _WANT_GRAPHS for node in self.body.nodes)
        for path, owner in owners.items():
            lines.append(f"{self._member(path)} = {f'torch.fx.symbolic_trace({owner}())' if wanted else f'{owner}()'}")
        for path, module in self.body.modules.items():
            member = self._member(path)
            lines.append(f"{member} = {self._leaf(module, path)}")
            if module.state:
                states = ", ".join(f"{name!r}: constant({f'{self.prefix}{path}.{name}'!r})" for name in module.state)
                lines.append(f"{member}.load_state_dict({{{states}}}, strict=False)")
            lines.append(f"{member}.train({module.training})")
        return lines

    def _leaf(self, module: ModuleRecord, path: str) -> str:
        parts = module.type.split(".")
        if parts[:2] != ["torch", "nn"] or len(parts) != 3 or not is_identifier(parts[2]):
            raise RefusedError(f"module {path}", f"a program cannot contain the class {module.type!r}")
        writer = Writer({}, f"module {path}")
        return f"{module.type}({', '.join(writer.keywords(module.arguments.items()))})"

    def _member(self, path: str) -> str:
        """`self.name` for a dotted path; dots become underscores, and a name is used once."""
        name = "self.m_" + "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in path)
        while name in self.tensors.values():
            name += "_"
        self.tensors[path] = name
        return name

    def _statement(self, node: NodeRecord) -> list[str]:
        if node.op == "get_attr":
            if node.target not in self.tensors:
                raise RefusedError(f"node {node.name}", f"the graph has no attribute {node.target[:60]!r}")
            return [f"{self.names[node.name]} = {self.tensors[node.target]}"]
        return [*self._comment(node), f"{self.names[node.name]} = {self.call(node)}"]

    def call_function(self, node: NodeRecord, args: list[str], named: list[str]) -> str:
        if node.target in GETITEM and len(args) == 2:
            return f"{args[0]}[{args[1]}]"
        return super().call_function(node, args, named)

    def _comment(self, node: NodeRecord) -> list[str]:
        if not 0 <= node.stack < len(self.record.strings):
            return []
        line = self._place(self.record.strings[node.stack])
        if not line or line == self._last_line:
            return []
        self._last_line = line
        return [f"# {line}"]


def _place(stack: str) -> str:
    """The user's line from a stack trace, "model.py:12 y = self.fc(x)"; empty when there is none."""
    return _one_line(" ".join(user_frame(stack)).strip())[:120]


def _modules(record: GraphRecord) -> list[str]:
    """The modules of the targets, beside torch."""
    modules: set[str] = set()
    for node in nodes(record.graph):
        if node.target in CHECKPOINTS:
            modules.add("torch.utils.checkpoint")
        if node.op == "call_function" and node.target.startswith("torch."):
            home = node.target.rpartition(".")[0]
            if home not in ("torch", "torch.Tensor") and not home.startswith("torch._C"):
                modules.add(home)
        if node.op == "call_function" and is_numpy(node.target):
            modules.update(MODULES)
        root = node.target.partition(".")[0] if node.op == "call_function" else ""
        if root == "higher_order" and node.target not in TRITON_CALLS:
            modules.add("torch._higher_order_ops")
        elif node.target not in _PLAIN_PRIMS:
            modules.update(OP_HOMES.get(root, ())[-1:])
    return sorted(name for name in modules if all(is_identifier(part) for part in name.split(".")))


def _libraries(record: GraphRecord) -> list[str]:
    """Ops of libraries that the program does not import, as dotted names."""
    targets = (node.target.split(".") for node in nodes(record.graph) if node.op == "call_function")
    return sorted({".".join(parts[:2]) for parts in targets if parts[0] not in _OWN_OPS})


def _one_line(text: str) -> str:
    """Text for a comment or docstring: no line breaks, quotes or backslashes that could end it."""
    shown = text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
    return shown.replace("\\", "/").replace('"""', "'''")
