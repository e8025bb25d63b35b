"""Readable names for the inputs and outputs of a graph: "emb.weight", "logits", "grad of emb.weight", "saved for
backward: mul_2, model.py:10". Where the user's program has no name for a value, it is the node and the user's line,
never a number alone. Also their roles ("gradient of 0.weight"), and the surroundings of a node: the modules around it,
or the user's lines that called it.

Reads records only: Dynamo's sources, AOTAutograd's descriptors ("GradAOTOutput(grad_of=...)", parsed, never evaluated),
and the names that the recorder saved with Dynamo's graph (NAMES). No torch.

>>> [name for _, name in outputs(saved.record)][:2]
['linear_1, train.py:11', 'saved for backward: x']
>>> kind_of("InputMutationAOTOutput(mutated_input=BufferAOTInput(target='seen'))")
('mutation', 'seen')
>>> module_path("L['self']._modules['blocks']._modules['0']._parameters['weight']")
'blocks.0.weight'
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from . import syntax, tables
from .errors import DamagedError
from .schema import GraphBody, GraphRecord, InputRecord, NodeRecord
from .walk import TORCH_FILE, calls, leaves, plain, returned, string, tag_of, user_frame

if TYPE_CHECKING:
    from .browse.recorded import Recorded

NAMES = "user_names"
"""Key in GraphBody.meta: {"outputs": [[node of Dynamo's graph, name], ..], "inputs": [name, ..]}, in the order of
Dynamo's graph."""


def input_names(record: GraphRecord) -> dict[str, str]:
    """Placeholder -> its name in the program."""
    return _inputs(record, _sources(record))


def outputs(record: GraphRecord) -> list[tuple[str, str]]:
    """For each output: its node ("" for a number or None), and its name."""
    known = _sources(record)
    inputs, nodes = _inputs(record, known), {node.name: node for node in record.graph.nodes}
    of_dynamo = {node: name for node, name in _table(record.graph)[0] if name}
    last = next((node for node in reversed(record.graph.nodes) if node.op == "output"), None)
    returned = list(leaves(last.args)) if last is not None else []
    described: Any = last.meta.get("desc") if last is not None else None
    made_for = cast("list[Any]", described) if isinstance(described, list) else []
    if len(made_for) != len(returned):
        made_for = [""] * len(returned)
    named_outputs: list[tuple[str, str]] = []
    for text, (tag, content) in zip(made_for, map(tag_of, returned), strict=True):
        node = str(content) if tag == "node" else ""
        own = of_dynamo.get(node) or inputs.get(node)
        own = own or (at(node, line_of(nodes[node], record)) if node in nodes else f"the constant {content}")
        named_outputs.append((node, _result(*kind_of(str(text), known), own)))
    return named_outputs


class GraphNames(NamedTuple):
    """The names of a live graph: placeholder -> name, and the name of each output."""

    inputs: dict[str, str]
    outputs: list[str]


def of_module(gm: Any) -> GraphNames:
    """The names of a live graph: as recorded where a node is unchanged, else the node and the user's line."""
    inputs, known_outputs = getattr(gm, "meta", {}).get("graphdbg", {}).get("names", ({}, []))
    nodes = list(gm.graph.nodes)
    returned = _flat([node.args[0] for node in nodes if node.op == "output"])
    called: list[str] = []
    for place, node in enumerate(returned):
        name = getattr(node, "name", "")
        known = known_outputs[place][1] if place < len(known_outputs) and known_outputs[place][0] == name else ""
        line = user_frame(node.meta.get("stack_trace") or "")[0] if name else ""
        called.append(known or (inputs.get(name) or at(name, line) if name else f"the constant {node}"))
    return GraphNames(
        {node.name: inputs.get(node.name, node.name) for node in nodes if node.op == "placeholder"}, called
    )


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(cast("dict[Any, Any]", value).values())
    if isinstance(value, (list, tuple)):
        return [leaf for part in cast("list[Any]", value) for leaf in _flat(part)]
    return [value]


def at(name: str, line: str) -> str:
    """The description of a value without a user's name: its node, and the line."""
    return f"{name}, {line}" if line else name


def line_of(node: NodeRecord, record: GraphRecord) -> str:
    """The user's line of a node ("model.py:12"); "" where none is known."""
    return user_frame(string(record.strings, node.stack))[0]


def _result(kind: str, of: str, own: str) -> str:
    of = "" if of.startswith(("output[", "args[")) else of
    said = {
        "gradient": f"grad of {of or own}",
        "saved": f"saved for backward: {own}",
        "mutation": f"{of or own}, written in place",
        "alias base": f"base of {of or own}",
    }
    return said.get(kind, of or own)


def _inputs(record: GraphRecord, known: Mapping[str, str]) -> dict[str, str]:
    nodes = {node.name: node for node in record.graph.nodes if node.op == "placeholder"}
    return {item.name: _input(item, nodes.get(item.name), record, known) for item in record.inputs}


def _input(item: InputRecord, node: NodeRecord | None, record: GraphRecord, known: Mapping[str, str]) -> str:
    described: Any = node.meta.get("desc") if node is not None else None
    of = of_what(described, known) if isinstance(described, str) else ""
    if item.role == "tangent":
        return f"grad of {of or item.name}"
    if item.source.startswith(("L[", "G[")):
        return input_source(item.source, item.role)
    if of and not of.startswith("args["):
        return of
    return at(item.name, line_of(node, record)) if node is not None else item.name


def _sources(record: GraphRecord) -> dict[str, str]:
    """Descriptor of an input or output of Dynamo's graph, as text -> its name in the program."""
    named_outputs, given = _table(record.graph)
    name_of = {f"PlainAOTOutput(idx={place})": name for place, (_, name) in enumerate(named_outputs) if name}
    name_of |= {f"PlainAOTInput(idx={place})": name for place, name in enumerate(given) if name}
    sources = {item.name: item for item in record.inputs if item.source.startswith(("L[", "G["))}
    for node in record.graph.nodes:
        described: Any = node.meta.get("desc")
        if node.name in sources and isinstance(described, str):
            name_of[described] = input_source(sources[node.name].source, sources[node.name].role)
    return name_of


def _table(body: GraphBody) -> tuple[list[tuple[str, str]], list[str]]:
    try:
        held = msgspec.convert(plain(body.meta.get(NAMES)) or {}, _NameTable)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise DamagedError("cannot read the graph", f"{error} in its {NAMES}", "record the run again") from error
    return held.outputs, held.inputs


class _NameTable(msgspec.Struct):
    outputs: list[tuple[str, str]] = []
    inputs: list[str] = []


_MAX_LENGTH = 4_000
_PLACE = re.compile(r"PlainAOTInput\(idx=(\d{1,6})\)")

_OF_DYNAMO = ("L[", "G[")
_CALL = re.compile(r"self\.get_(?:parameter|buffer)\('([^']*)'\)")
_HELD = re.compile(r"__\w+\(([^()]*)\)")

_KINDS = {
    "PlainAOTOutput": "user",
    "GradAOTOutput": "gradient",
    "InputMutationAOTOutput": "mutation",
    "MetadataMutationAOTOutput": "mutation",
    "IntermediateBaseAOTOutput": "alias base",
    "SavedForBackwardsAOTOutput": "saved",
    "SavedForBackwardsNoVcCheckAOTOutput": "saved",
    "ForwardTokenAOTOutput": "token",
    "BackwardTokenAOTOutput": "token",
    "PhiloxUpdatedForwardOffsetAOTOutput": "random state",
    "PhiloxUpdatedBackwardOffsetAOTOutput": "random state",
}

_WORDS: dict[str, str] = {
    "PlainAOTInput": "args[{idx}]",
    "DummyAOTInput": "args[{idx}]",
    "ParamAOTInput": "{target}",
    "BufferAOTInput": "{target}",
    "PlainAOTOutput": "output[{idx}]",
    "GradAOTOutput": "{grad_of}",
    "InputMutationAOTOutput": "{mutated_input}",
    "MetadataMutationAOTOutput": "sizes or strides of args[{idx}]",
    "IntermediateBaseAOTOutput": "{base_of}",
    "TangentAOTInput": "{output}",
    "SyntheticBaseAOTInput": "storage of {base_of}",
    "ViewBaseAOTInput": "base of {base_of}",
    "SubclassGetAttrAOTInput": "{base}.{attr}",
    "SubclassSizeAOTInput": "{base}.size({idx})",
    "SubclassStrideAOTInput": "{base}.stride({idx})",
    "SubclassGetAttrAOTOutput": "{base}.{attr}",
    "SubclassSizeAOTOutput": "{base}.size({idx})",
    "SubclassStrideAOTOutput": "{base}.stride({idx})",
}
"""Descriptor -> the text for what it refers to. A descriptor that is not listed refers to nothing that has a name."""


@dataclass(frozen=True)
class OutputRole:
    """One output. `index`: its position; `name`: its node; `kind`: "user", "mutation", "gradient", "alias base",
    "saved" or "token"; `of`: the value that it belongs to."""

    index: int
    name: str
    kind: str
    of: str

    def text(self) -> str:
        """The output in words: "gradient of 0.weight"."""
        return f"{self.kind} of {self.of}" if self.of and self.kind != "user" else self.of or self.kind


def kind_of(text: str | None, sources: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Parses an output's descriptor into (kind, what it refers to); ("unknown", "") for a text that is no descriptor.

    `sources` names inputs better than their position: text of an input's descriptor -> name.
    """
    tree = _parsed(text)
    return ("unknown", "") if tree is None else (_kind(tree), _of(tree, sources or {}))


def of_what(text: str, sources: Mapping[str, str]) -> str:
    """What the descriptor of an input or output refers to ("0.weight"); "" where that has no name."""
    tree = _parsed(text)
    return "" if tree is None else _of(tree, sources)


def inputs_of(recorded: Recorded) -> dict[str, str]:
    """Placeholder -> "parameter 0.weight", for each input whose role is known."""
    return {
        item.name: f"{item.role} {_source(item)}".rstrip()
        for item in recorded.inputs.values()
        if item.role != "unknown"
    }


def known_names(recorded: Recorded) -> dict[str, str]:
    """Placeholder -> "0.weight", for each parameter, buffer and argument of the user's program."""
    return {
        item.name: _source(item) for item in recorded.inputs.values() if item.role in ("parameter", "buffer", "user")
    }


def outputs_of(recorded: Recorded, name: str) -> list[OutputRole]:
    """The role of each output of the graph; `name` is the output node. Empty where no descriptors are recorded."""
    last = recorded.node(name)
    made_for = last.meta.get("desc") if last is not None else None
    items = returned(last.args) if last is not None else []
    if not isinstance(made_for, list) or len(cast("list[Any]", made_for)) != len(items):
        return []
    texts = [_string(recorded, item) for item in cast("list[Any]", made_for)]
    sources = _dynamo_sources(recorded) if any(_is_named(item) for item in recorded.inputs.values()) else {}
    if any(item.source.startswith(_OF_DYNAMO) for item in recorded.inputs.values()):
        # Here a position counts the inputs of Dynamo's graph, and a backward does not have them all.
        for number in _PLACE.findall(" ".join(text or "" for text in texts)):
            sources.setdefault(f"PlainAOTInput(idx={number})", f"primals_{int(number) + 1}")
    return [
        OutputRole(index, str(cast("dict[str, Any]", item).get("node", "")), *kind_of(text, sources))
        for index, (item, text) in enumerate(zip(items, texts, strict=True))
        if isinstance(item, dict)
    ]


def _is_named(item: InputRecord) -> bool:
    """Whether the source is a name in the user's program: Dynamo's source, or an argument of an exported program."""
    return item.source.startswith(_OF_DYNAMO) or (item.role == "user" and item.source.isidentifier())


def _dynamo_sources(recorded: Recorded) -> dict[str, str]:
    """Text of the descriptor of each input that the user's program names -> that name."""
    items = list(recorded.inputs.values())
    following = [*(item.name for item in items[1:]), ""]
    by_descriptor: dict[str, str] = {}
    for item, after in zip(items, following, strict=True):
        if _is_named(item):
            node = recorded.node(item.name, after)
            tree = _parsed(_string(recorded, node.meta.get("desc")) if node is not None else None)
            if tree is not None:
                by_descriptor[ast.unparse(tree)] = input_source(item.source, item.role)
    return by_descriptor


def _source(item: InputRecord) -> str:
    """The source of an input in readable form: "0.weight" for "self.get_parameter('0.weight')"."""
    if item.source.startswith(_OF_DYNAMO):
        return input_source(item.source, item.role)
    text = _CALL.sub(r"\1", item.source)
    while (inner := _HELD.sub(r"\1", text)) != text:
        text = inner
    if item.role == "token":
        return ""
    return f"of {text}" if item.role == "tangent" and text else text


def _string(recorded: Recorded, value: Any) -> str | None:
    if isinstance(value, dict):
        number: Any = cast("dict[str, Any]", value).get("string")
        return recorded.string(number) if isinstance(number, int) else None
    return value if isinstance(value, str) else None


def _parsed(text: str | None) -> ast.Call | None:
    if not text or len(text) > _MAX_LENGTH:
        return None
    try:
        tree = syntax.expression(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if isinstance(tree, ast.Call) else None


def _kind(tree: ast.Call) -> str:
    name = tree.func.id if isinstance(tree.func, ast.Name) else ""
    base = next((word.value for word in tree.keywords if word.arg == "base"), None)
    if name.startswith("Subclass") and isinstance(base, ast.Call):
        return _kind(base)
    return _KINDS.get(name, "unknown")


def _of(tree: ast.Call, sources: Mapping[str, str]) -> str:
    if (known := sources.get(ast.unparse(tree))) is not None:
        return known
    words = _WORDS.get(tree.func.id if isinstance(tree.func, ast.Name) else "", "")

    def said(value: ast.expr) -> str:
        return _of(value, sources) if isinstance(value, ast.Call) else str(getattr(value, "value", ""))

    try:
        return words.format(**{str(word.arg): said(word.value) for word in tree.keywords})
    except (KeyError, IndexError):
        return ""


IN_MODULE = re.compile(
    r"\.(?:_(?:modules|parameters|buffers)|__dict__\['_(?:modules|parameters|buffers)'\])\['([^']*)'\]"
)
"""One step of a Dynamo source from a module to its child, parameter or buffer, whose name is group 1."""

_ROOT = re.compile(r"^[LG]\['[^']*'\]\.?")
_KEYED = re.compile(r"\['?([\w.@-]+)'?\]")
_WRAPPED = re.compile(r"(?:^|(?<=\.))_orig_mod(?:\.|$)")


class Level(NamedTuple):
    """One frame around a node: a module by its path and class, or a line of the user's code that called it."""

    path: str
    kind: str = ""


Path = tuple[Level, ...]
"""The levels around a node, the outermost first."""


def module_path(text: str) -> str:
    """The path of a module or parameter as people write it: "blocks.0.up.weight"; "" for the root module itself."""
    path = _ROOT.sub("", IN_MODULE.sub(r".\1", text))
    return _WRAPPED.sub("", _KEYED.sub(r".\1", path).strip(".")).strip(".")


def input_source(text: str, role: str) -> str:
    """The source of an input: "blocks.0.up.weight" for a part of the model, "tokens" or "args[0]" for an argument."""
    if role in ("parameter", "buffer") and (path := module_path(text)):
        return path
    return re.sub(r"^[LG]\['([^']*)'\]", r"\1", IN_MODULE.sub(r".\1", text))


def levels(text: str) -> Path:
    """The modules around a node, from recorded text with one "path: class" a line. The root module is left out; text
    that does not look like a module path stays as it is."""
    around: list[Level] = []
    for line in text.splitlines():
        path, _, kind = line.partition(": ")
        path = tables.plain(module_path(path))
        if path and (not around or around[-1].path != path):
            around.append(Level(path, tables.plain(kind.rpartition(".")[2])))
    return tuple(around)


def frames_of(stack: str) -> Path:
    """The user's lines around a node, from its stack."""
    user_frames = (frame for frame in calls(stack) if not TORCH_FILE.search(frame.file))
    return tuple(
        Level(tables.plain(frame.where), tables.plain(frame.function and f"in {frame.function}"))
        for frame in user_frames
    )


def common(paths: list[Path]) -> Path:
    """The levels that all paths begin with."""
    if not paths:
        return ()
    first, last = min(paths), max(paths)
    same = 0
    while same < min(len(first), len(last)) and first[same] == last[same]:
        same += 1
    return first[:same]
