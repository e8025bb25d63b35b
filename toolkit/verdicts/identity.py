"""Computes the identity of a failure, in 8 characters: the same on two machines and under two versions of torch, and
another for another failure.

Made from what does not depend on machine or version: the kind, where in the stack, the exception's class, the words of
its message, and, where the message does not identify the bug, what the graph calls. So a graph that is not minimised
has an id of its own for wrong numbers, since its other calls are part of the id. Does not read the graph where the
message is enough. Imports no torch.

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
"""(op, target) of a node."""

CASE_FILE = "case.json"
"""A file that a minification writes beside its graph; a key `original` in it says that the graph was reduced."""

_PLAIN = ("torch", "operator", "math", "builtins")
_ATEN = ("aten", "prims", "_refs")
_SOURCES = words("""
    full full_like scalar_tensor zeros ones empty zeros_like ones_like empty_like tensor lift_fresh
    lift_fresh_copy""")
"""Operations that only create values: one search keeps such a call where another replaces it by an input."""
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
"""Names of one operation at different stages of a compile -> the common name."""
_SUFFIX = re.compile(r"_with_indices$|_copy$|_backward_data$|_+$")

_UNTOLD = re.compile(r"<[^<>\s]*>|[\[(]\.+[\])]|\.\.+|\S+\.(?:py|cpp|cc|h|so|cu)\b\S*")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_WORD = re.compile(r"[^\W\d][\w]*")
_NUMBER = re.compile(r"\d+(?![dD](?:_|\b))")
_QUOTES = str.maketrans("‘’“”`", "''\"\"'")
_LEAST, _MOST = 2, 16
"""The fewest words with which a message identifies the bug, and the most that are used."""
SPEAKING = ("crash", "missing_error")
"""Kinds of failure that have an error message."""
OWN_PASS = ("custom_pass", "custom_pre_pass", "custom_post_pass")
"""Suffixes of the names of settings that hold a user's pass."""
CPP = "C++"
"""The detail of a C++ compiler error, whose message does not identify the bug."""


@dataclass(frozen=True)
class Identity:
    """The parts of an id. `words`: of the error message, "" where that does not identify the bug; `calls`: the
    operations of the graph, empty where the message is enough. `sharp`: whether the id is independent of the unrelated
    rest of a graph that is not minimised.
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
    """Computes the identity of a failure. `calls`: of the graph in which it occurs, or a function that gives them,
    called only where they count; `reduced`: whether that graph is minimised; `own`: gives the user's passes that a
    minimised graph needs.
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
    """The identity of a failure in a graph whose record is already read."""
    return identity(signature, lambda: _calls(record), reduced=reduced, own=lambda: _own_passes(record))


def of_graph(signature: Signature, saved: SavedGraph) -> Identity:
    """The identity of a failure in a saved graph. Raises GraphdbgError where the graph is needed but cannot be read."""
    small = reduced(saved)
    return identity(signature, lambda: _calls(saved.record), reduced=small, own=lambda: _own_passes(saved.record))


def known_id(signature: Signature | None, saved: SavedGraph) -> str:
    """The id for reports on a graph; "" where nothing fails or the failure has no id."""
    if signature is None or signature.undecided:
        return ""
    try:
        return of_graph(signature, saved).id
    except GraphdbgError:
        return ""


def reduced(saved: SavedGraph) -> bool:
    """Whether a graph is the result of a minification."""
    if saved.run is not None:
        return False
    try:
        known: Any = msgspec.json.decode(read_bytes(saved.path / CASE_FILE))
    except (GraphdbgError, msgspec.MsgspecError, OSError):
        return False
    return isinstance(known, dict) and bool(known.get("original"))


def text_words(message: str) -> str:
    """The words of a normalised error message that are the same on every machine and version; "" where they do not
    identify the bug.

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
    """The operations of a graph, sorted, without repeats; those that only create or unpack values only where there are
    no others."""
    ops = {base(op, target) for op, target in calls if op.startswith("call_")} - {"getitem"}
    return tuple(sorted((ops - _SOURCES) or ops))


def base(op: str, target: str) -> str:
    """One name for an operation at every stage: `aten.sum.dim_IntList`, `torch.sum` and the method `sum` are "sum". An
    operation of another library keeps its full name."""
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
