"""The identity of a failure, in 8 characters: the same on two machines and under two versions of torch, and another for
another failure.

Made from what neither a machine nor a version changes: the kind, where in the stack, the exception's class and the
words of its text, and, where the text does not say which bug it is, what the graph calls. So a graph that is not
minimised has an id of its own for wrong numbers: what else it calls is in it. Reads no graph for a failure whose text
is enough. Imports no torch.

>>> identity(Signature("accuracy", "compare"), [("call_function", "aten.amin.default")], reduced=True).id
'33bf1837'
>>> identity(Signature("accuracy", "compare"), [("call_function", "torch.amin")], reduced=True).id
'33bf1837'
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from ...dumps.allowlist import words
from ...dumps.errors import GraphdbgError
from ...dumps.reading import read_bytes
from ...dumps.schema import GraphRecord
from ...dumps.store import SavedGraph
from ...dumps.walk import nodes
from .signature import Signature

Call = tuple[str, str]
"""Op and target of a node."""

CASE_FILE = "case.json"
"""What a minification leaves beside its graph; `original` in it says that the graph is smaller than what was
recorded."""

_PLAIN = ("torch", "operator", "math", "builtins")
_ATEN = ("aten", "prims", "_refs")
_SOURCES = words("""
    full full_like scalar_tensor zeros ones empty zeros_like ones_like empty_like tensor lift_fresh
    lift_fresh_copy""")
"""What only makes values: one search leaves such a call where another makes it an input."""
_ONE = {
    **dict.fromkeys(
        ("to_copy", "convert_element_type", "type", "float", "half", "double", "bfloat16", "int", "long"), "to"
    ),
    **dict.fromkeys(("reshape", "unsafe_view", "view_copy"), "view"),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), "convolution"),
    "truediv": "div",
    "floordiv": "div",
    "floor_divide": "div",
    "matmul": "mm",
}
"""Names of one operation at the stages of a compile."""
_SUFFIX = re.compile(r"_with_indices$|_copy$|_backward_data$|_+$")

_UNTOLD = re.compile(r"<[^<>\s]*>|[\[(]\.+[\])]|\.\.+|\S+\.(?:py|cpp|cc|h|so|cu)\b\S*")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_WORD = re.compile(r"[^\W\d][\w]*")
_NUMBER = re.compile(r"\d+(?![dD](?:_|\b))")
_QUOTES = str.maketrans("‘’“”`", "''\"\"'")
_LEAST, _MOST = 2, 16
"""Words of a text that say which bug it is, and how many of them count."""
SPEAKING = ("crash", "missing_error")
"""Kinds with an error's text."""
OWN_PASS = ("custom_pass", "custom_pre_pass", "custom_post_pass")
"""How the settings end that hold a pass of the user's."""
CPP = "C++"
"""The detail of an error of the C++ compiler, whose text says little."""


@dataclass(frozen=True)
class Identity:
    """What the id is made from. `words`: of the error's text, empty where that says too little; `calls`: what the graph
    calls, empty where the text says enough. `sharp`: nothing in it comes from the rest of a graph that is not
    minimised.
    """

    kind: str
    stage: str = ""
    error: str = ""
    detail: str = ""
    words: str = ""
    calls: tuple[str, ...] = ()
    sharp: bool = True

    @property
    def id(self) -> str:
        """The identity's 8 characters."""
        text = "\n".join([self.kind, self.stage, self.error, self.detail, self.words, " ".join(self.calls)])
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def identity(
    signature: Signature,
    calls: Iterable[Call] | Callable[[], Iterable[Call]],
    *,
    reduced: bool,
    own: Callable[[], tuple[str, ...]] = tuple,
) -> Identity:
    """The identity of a failure. `calls`: of the graph it is seen in, or what gives them, which is asked only where
    they count; `reduced`: that graph is minimised; `own`: the user's passes that it needs, asked for where calls count.
    """
    words = text_words(signature.message) if signature.kind in SPEAKING else ""
    detail = base("call_function", signature.detail) if "." in signature.detail else signature.group()
    known = bool(words) and detail != CPP
    called = () if known else called_by(calls() if callable(calls) else calls) + (own() if reduced else ())
    if not words and signature.frames and signature.kind in SPEAKING:
        words = f"in {signature.frames[0].rpartition(':')[2]}"
    error = signature.error.rpartition(".")[2]
    return Identity(signature.kind, signature.stage, error, detail, words, called, known or reduced)


def of_record(signature: Signature, record: GraphRecord, *, reduced: bool) -> Identity:
    """The identity of a failure in a graph that is read already."""
    return identity(signature, lambda: _calls(record), reduced=reduced, own=lambda: _own_passes(record))


def of_graph(signature: Signature, saved: SavedGraph) -> Identity:
    """The identity of a failure in a saved graph. Raises GraphdbgError where the graph has to be read and cannot be."""
    small = reduced(saved)
    return identity(signature, lambda: _calls(saved.record), reduced=small, own=lambda: _own_passes(saved.record))


def known_id(signature: Signature | None, saved: SavedGraph) -> str:
    """The id for reports on a graph; empty where nothing fails or the failure has none."""
    if signature is None or signature.undecided:
        return ""
    try:
        return of_graph(signature, saved).id
    except GraphdbgError:
        return ""


def reduced(saved: SavedGraph) -> bool:
    """Whether a graph is what a minification left."""
    if saved.run is not None:
        return False
    try:
        known: Any = msgspec.json.decode(read_bytes(saved.path / CASE_FILE))
    except (GraphdbgError, msgspec.MsgspecError, OSError):
        return False
    return isinstance(known, dict) and bool(known.get("original"))


def text_words(message: str) -> str:
    """The words of a normalised error text that every machine and version has in it; empty where they do not say which
    bug it is.

    Without what stands for a number or name, files, quoted names on their own, numbers in a word, and all but the first
    lines.
    """
    lines = [line for line in message.lower().translate(_QUOTES).splitlines() if line.strip()]
    for count in range(1, len(lines) + 1):
        text = _UNTOLD.sub(" ", " ".join(lines[:count]))
        if len(_WORD.findall(_QUOTED.sub(" ", text))) >= _LEAST:
            return " ".join([_NUMBER.sub("", word).strip("_") for word in _WORD.findall(text)][:_MOST])
    return ""


def called_by(calls: Iterable[Call]) -> tuple[str, ...]:
    """The operations of a graph, each once and in alphabetical order; those that only make or unpack values count where
    there are no others."""
    ops = {base(op, target) for op, target in calls if op.startswith("call_")} - {"getitem"}
    return tuple(sorted((ops - _SOURCES) or ops))


def base(op: str, target: str) -> str:
    """One name for an operation at every stage: `aten.sum.dim_IntList`, `torch.sum` and the method `sum` are "sum".
    A library of somebody else's keeps its name."""
    parts = target.split(".")
    if op == "call_method" or parts[0] in _PLAIN or len(parts) == 1:
        space, name = "", parts[-1]
    else:
        space, name = parts[0], parts[1]
    name = _SUFFIX.sub("", name.strip("_")) or name
    return _ONE.get(name, name) if space in ("", *_ATEN) else f"{space}.{name}"


def _calls(record: GraphRecord) -> Iterable[Call]:
    return ((node.op, node.target) for node in nodes(record.graph))


def _own_passes(record: GraphRecord) -> tuple[str, ...]:
    """The user's passes that a minimised graph still needs, each with a digest of its source: another wrong rewrite is
    another bug."""
    hooks = {f"inductor.{hook}" for hook in record.config.get("inductor", {}) if hook.endswith(OWN_PASS)}
    return tuple(
        f"{text} {hashlib.blake2b(definition.program.encode(), digest_size=4).hexdigest()}"
        for definition in record.definitions
        for hook, text in sorted(definition.values.items())
        if hook in hooks
    )
