"""Walks over records: the graphs inside a graph, its nodes and tensors, the parts of an encoded argument, the frames of
a stack trace.

Every kind of `dumps.arguments` either holds arguments (NESTED) or is a leaf. Needs no torch, and takes damaged records.

>>> list(references({"tuple": [{"node": "a"}, [{"slice": [{"node": "b"}, None, 1]}]]}))
['a', 'b']
>>> map_argument({"tuple": ["x", 1]}, lambda leaf: leaf if leaf != "x" else "y")
{'tuple': ['y', 1]}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from .arguments import KINDS, NESTED
from .errors import GraphdbgError
from .expr import symbols
from .schema import Arg, GraphBody, NodeRecord, StoredTensor, Value

TORCH_FILE = re.compile(r"(?:site|dist)-packages[/\\]torch[/\\]|[/\\]torch[/\\]nn[/\\]modules[/\\]")
_LIBRARY = re.compile(
    r"(?:site|dist)-packages[/\\]|[/\\]torch[/\\](?:nn|_\w+|fx|autograd|utils|func|library|optim)[/\\]|<torch>/|[/\\]lib[/\\]python3"
)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]*)", line (?P<line>\d+)(?:, in (?P<function>.*))?$', re.MULTILINE)
_SLASH = re.compile(r"[/\\]")


def bodies(body: GraphBody) -> Iterator[GraphBody]:
    """A graph and all graphs in it."""
    yield body
    for inner in body.subgraphs.values():
        yield from bodies(inner)


def nodes(body: GraphBody) -> Iterator[NodeRecord]:
    """The nodes of a graph and of all graphs in it."""
    return (node for inner in bodies(body) for node in inner.nodes)


def node_count(body: GraphBody) -> int:
    """The number of nodes in a graph and all graphs in it: the size that a minification reports and reduces."""
    return sum(len(inner.nodes) for inner in bodies(body))


def tensors(body: GraphBody, prefix: str = "") -> Iterator[tuple[str, StoredTensor]]:
    """The tensors of a graph, of its modules and of all graphs in it, each with its dotted path."""
    for path, stored in body.attrs.items():
        yield prefix + path, stored
    for path, module in body.modules.items():
        yield from ((f"{prefix}{path}.{name}", stored) for name, stored in module.state.items())
    for path, inner in body.subgraphs.items():
        yield from tensors(inner, f"{prefix}{path}.")


def string(strings: Sequence[str], place: int) -> str:
    """The text at index `place`; empty where there is none."""
    return strings[place] if 0 <= place < len(strings) else ""


def given(node: NodeRecord) -> list[Arg]:
    """All arguments of a node."""
    return [*node.args, *node.kwargs.values()]


def returned(args: list[Arg]) -> list[Arg]:
    """The items that an output node returns, from its arguments."""
    items: Arg = args[0] if len(args) == 1 else args
    while tag_of(items)[0] == "tuple":
        items = tag_of(items)[1]
    return cast("list[Arg]", items) if isinstance(items, list) else [items]


def outputs(body: GraphBody) -> list[Arg] | None:
    """The encoded outputs of a graph; None where they are no plain list."""
    output = next((node for node in body.nodes if node.op == "output"), None)
    tag, listed = tag_of(output.args[0] if output is not None and output.args else None)
    return cast("list[Arg]", listed) if isinstance(listed, list) and tag in ("", "tuple") else None


def output_values(body: GraphBody) -> list[Value | None]:
    """The recorded value of each output; [None] where the outputs are no plain list."""
    values, listed = {node.name: node.value for node in body.nodes}, outputs(body)
    pairs = map(tag_of, [None] if listed is None else listed)
    return [values.get(name) if tag == "node" else None for tag, name in pairs]


def tag_of(arg: Arg) -> tuple[str, Any]:
    """The tag and the content of an argument that is an object with one key; "" and the argument itself for any
    other."""
    if isinstance(arg, dict) and len(cast("dict[str, Any]", arg)) == 1:
        return next(iter(cast("dict[str, Any]", arg).items()))
    return "", cast("Any", arg)


def items(arg: Arg) -> list[Arg] | None:
    """The arguments inside an argument: pairs for a dict; None for a leaf."""
    tag, content = tag_of(arg)
    return cast("list[Arg]", content) if isinstance(content, list) and (not tag or tag in NESTED) else None


def leaves(arg: Arg) -> Iterator[Arg]:
    """The leaves of an argument, in order, without the keys of dicts, which cannot be nodes."""
    held = cast("list[Any]", arg) if isinstance(arg, list) else items(arg) if isinstance(arg, dict) else None
    if held is None:
        yield arg
        return
    in_pairs = held is not arg and "dict" in arg
    for item in held:
        if not isinstance(item, (list, dict)):
            yield item
        else:
            yield from leaves(cast("list[Arg]", item)[1:] if in_pairs and isinstance(item, list) else item)


def contents(arg: Arg, tag: str) -> Iterator[Any]:
    """The contents of all leaves with a given tag, at any depth of an argument."""
    objects = (cast("dict[str, Any]", leaf) for leaf in leaves(arg) if isinstance(leaf, dict))
    return (leaf[tag] for leaf in objects if tag in leaf and len(leaf) == 1)


def references(arg: Arg) -> Iterator[str]:
    """Names of the nodes that an argument refers to, in order, repeated when used twice."""
    return (name for name in contents(arg, "node") if isinstance(name, str))


def named(graph: Iterable[NodeRecord], tag: str) -> set[str]:
    """The names with a given tag, such as "dtype", in the arguments of nodes."""
    return {name for node in graph for name in contents(given(node), tag) if isinstance(name, str)}


def used(graph: Iterable[NodeRecord]) -> set[str]:
    """The names of nodes that are an argument of another."""
    return named(graph, "node")


def mentioned(graph: Iterable[NodeRecord]) -> set[str]:
    """The symbols in the arguments of nodes; text that is no expression is skipped."""
    names: set[str] = set()
    for node in graph:
        for _, text in contents(given(node), "sym"):
            try:
                names |= symbols(str(text))
            except GraphdbgError:
                continue
    return names


def map_argument(arg: Arg, leaf: Callable[[Arg], Arg]) -> Arg:
    """Returns the argument with each leaf, and each key of a dict, replaced by the result of `leaf`."""
    held = items(arg)
    if held is None:
        return leaf(arg)
    mapped = [map_argument(item, leaf) for item in held]
    tag = tag_of(arg)[0]
    return {tag: mapped} if tag else mapped


def plain(arg: Arg) -> Any:
    """An argument as a Python value: tuples as lists, names of dtypes and devices as text; a kind without Python value
    stays encoded."""
    if isinstance(arg, list):
        return [plain(item) for item in cast("list[Arg]", arg)]
    tag, content = tag_of(arg)
    if tag in KINDS:
        return KINDS[tag].plain(content, plain)
    if not tag and isinstance(arg, dict):
        return {key: plain(item) for key, item in cast("dict[str, Arg]", arg).items()}
    return arg


T = TypeVar("T")


def rebuilt(value: T, part: Callable[[Any, Any], Any]) -> T:
    """A record, dict, list or tuple whose parts are what `part` returns for their name, key or place, and themselves;
    any other value as it is."""
    changed: Any = value
    if isinstance(value, msgspec.Struct):
        fields = {name: part(name, getattr(value, name)) for name in value.__struct_fields__}
        changed = msgspec.structs.replace(value, **fields)
    elif isinstance(value, dict):
        changed = {key: part(key, item) for key, item in cast("dict[Any, Any]", value).items()}
    elif isinstance(value, (list, tuple)):
        items = cast("list[Any]", value)
        changed = type(items)(part(place, item) for place, item in enumerate(items))
    return changed


class Frame(NamedTuple):
    """One call of a stack trace: file, line, function, and the text of the line."""

    file: str
    line: int
    function: str
    code: str

    @property
    def where(self) -> str:
        """File name and line, without the folder: "model.py:12"."""
        return f"{_SLASH.split(self.file)[-1]}:{self.line}"

    @property
    def user(self) -> bool:
        """Whether the frame is neither in torch nor in another installed package."""
        return not _LIBRARY.search(self.file)


def calls(stack: str) -> list[Frame]:
    """The frames of a stack, from the outermost call to the innermost."""
    places = list(_FRAME.finditer(stack))
    frames: list[Frame] = []
    for place, end in zip(places, [*(place.start() for place in places[1:]), len(stack)], strict=False):
        code = stack[place.end() : end].strip("\n").partition("\n")[0].strip()
        frames.append(Frame(place["file"], int(place["line"]), place["function"] or "", code))
    return frames


def frames(stack: str) -> list[Frame]:
    """The frames of a stack trace, the user's before the others, each group from the innermost call outwards."""
    listed = calls(stack)
    listed.reverse()
    return sorted(listed, key=lambda frame: not frame.user)


def user_frame(stack: str) -> tuple[str, str]:
    """The innermost frame outside torch, as ("model.py:12", "y = self.fc(x)"); empty strings when there is no frame."""
    listed = calls(stack)
    if not listed:
        return "", ""
    chosen = next((frame for frame in reversed(listed) if not TORCH_FILE.search(frame.file)), listed[-1])
    return chosen.where, chosen.code


def dict_items(arg: Arg) -> list[tuple[str, Arg]]:
    """The pairs of an encoded dictionary whose keys are names."""
    held = cast("dict[str, list[list[Any]]]", arg or {})
    return [(str(pair[0]), pair[1]) for pair in held.get("dict", [])]
