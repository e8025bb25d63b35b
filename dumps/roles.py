"""The roles of a graph's inputs and outputs, in words: "parameter 0.weight", "gradient of 0.weight", "mutation of
args[1]".

AOTAutograd describes inputs and outputs with descriptors, recorded as text
("GradAOTOutput(grad_of=ParamAOTInput(target='0.weight'))"). That text is parsed here, never evaluated, and nothing of
torch is needed.

>>> kind_of("InputMutationAOTOutput(mutated_input=BufferAOTInput(target='seen'))")
('mutation', 'seen')
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from . import syntax
from .levels import input_source
from .schema import InputRecord
from .walk import returned

if TYPE_CHECKING:
    from .browse.recorded import Recorded

_MAX_LENGTH = 4_000
_PLACE = re.compile(r"PlainAOTInput\(idx=(\d{1,6})\)")

_OF_DYNAMO = ("L[", "G[")
_CALL = re.compile(r"self\.get_(?:parameter|buffer)\('([^']*)'\)")
_WRAPPED = re.compile(r"__\w+\(([^()]*)\)")

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
    sources = _sources(recorded) if any(_is_named(item) for item in recorded.inputs.values()) else {}
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


def _sources(recorded: Recorded) -> dict[str, str]:
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
    while (inner := _WRAPPED.sub(r"\1", text)) != text:
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
