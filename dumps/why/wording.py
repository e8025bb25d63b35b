"""Parses the texts in which Dynamo explains a graph break or a failed guard, and shortens them.

These texts are written for a log; a text in an unknown form is shown as it is.

>>> guard("0/0: n == 1      # x = x + n  # train.py:13 in forward").place.line
13
"""

from __future__ import annotations

import re
from typing import Any

from ..names import IN_MODULE
from ..wording import AND_THEN, explained
from .model import Break, Guard, ProgramLine

_HINT = re.compile(r"^  Hint: (.*(?:\n      .*)*)", re.MULTILINE)
_LINK = re.compile(r"please visit: (\S+)")
_EMPTY_HINTS = (
    "Please report an issue",
    "This graph break is fundamental",
    "It may be possible to write Dynamo tracing rules",
    "This is likely to be a Dynamo bug",
    "This graph break may have been caused by an earlier graph break",
)

_ENTRY = re.compile(r"^(?:!\d+/)?(\d+/\d+): ")
_COMMENT = re.compile(r"(?:\s{2,}# (?P<code>.*?))?\s+# (?P<file>\S+):(?P<line>\d+) in (?P<function>\S+)")
_FRAME = re.compile(
    r'^  File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)(?:\n    (?P<code>.*))?', re.MULTILINE
)
_TORCH_HINT = re.compile(r"\(HINT: (.*)\)", re.DOTALL)
_MISMATCH = re.compile(
    r"tensor '(?P<name>.+)' (?P<what>size|stride) mismatch at index (?P<dim>\d+)\. expected (?P<was>\S+), "
    r"actual (?P<now>\S+)"
)
_TENSOR = re.compile(
    r"tensor '(?P<name>.+)' (?P<what>dtype|rank|requires_grad) mismatch\. expected (?P<was>.+?)(?:, actual "
    r"(?P<now>.+))?$"
)
_NUMBER = re.compile(r"(?<![\w\[.])(?<!index )-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w\]])")
_STRING = re.compile(r"(?<!\[)(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")(?!\])")
ADDRESS = re.compile(r"0x[0-9a-f]+")
_RAISED = re.compile(r"^\s*- (\d+/\d+: .*)$", re.MULTILINE)
_SCOPE = re.compile(r"\bL\[['\"](\w+)['\"]\]")


def graph_break(text: str, then: str, stack: list[ProgramLine]) -> Break:
    """Parses a graph break's text into title, explanation, useful hints, and link."""
    first = text.partition(AND_THEN)[0]
    title, explanation = explained(text)
    hints = [_joined(hint) for hint in _HINT.findall(first)]
    link = _LINK.search(first)
    useful = [hint for hint in hints if not hint.startswith(_EMPTY_HINTS)]
    return Break(title or "no reason was given", explanation, useful, link[1] if link else "", then, stack)


def guard(text: str) -> Guard:
    """Parses a recompile reason into guard, place and hint."""
    entry = _ENTRY.match(text)
    body = text[entry.end() :] if entry else text
    head, _, stack = body.partition("\nUser stack trace:\n")
    comment = _COMMENT.search(head)
    shown = head[: comment.start()] if comment else head.partition("\n")[0]
    hint = _TORCH_HINT.search(head)
    frames = [_place(frame) for frame in _FRAME.finditer(stack)]
    place = innermost(frames) or (_place(comment) if comment else None)
    of = entry[1].replace("/", "_") if entry else ""
    return Guard(shown.strip(), of, place, hint=_joined(hint[1]) if hint else "")


def raised(error: str) -> list[str]:
    """The recompile reasons in the error that `error_on_recompile` raises."""
    return _RAISED.findall(error)


def _place(frame: re.Match[str]) -> ProgramLine:
    return ProgramLine(frame["file"], int(frame["line"]), frame["function"], (frame["code"] or "").strip())


def innermost(frames: list[ProgramLine]) -> ProgramLine | None:
    """The innermost frame outside torch; the very innermost when all are torch's."""
    return next((frame for frame in reversed(frames) if not of_torch(frame.file)), frames[-1] if frames else None)


def of_torch(file: str) -> bool:
    """Whether a file belongs to an installed torch."""
    return "site-packages/torch/" in file or "dist-packages/torch/" in file


def short(source: str) -> str:
    """A source expression in readable form: `L['self']._modules['a'].x` as `self.a.x`."""
    return IN_MODULE.sub(r".\1", _SCOPE.sub(r"\1", source))


def alike(text: str) -> str:
    """A guard with numbers and strings replaced by "…", so that it is equal for recompiles with the same cause."""
    mismatch = _MISMATCH.match(text)
    if mismatch:
        return f"{mismatch['name']}.{mismatch['what']}()[{mismatch['dim']}] changed"
    if kept := _TENSOR.match(text):
        return f"{kept['what']} of tensor {kept['name']} changed"
    return _STRING.sub("…", _NUMBER.sub("…", ADDRESS.sub("…", text)))


def failed(item: Guard) -> str:
    """One clause on a failed guard: the expected value, and the present one."""
    text = short(item.text)
    sized = _MISMATCH.match(text)
    if sized:
        return f"{sized['name']}.{sized['what']}()[{sized['dim']}] was {sized['was']}, is now {sized['now']}"
    kept = _TENSOR.match(text)
    if kept:
        now = f", is now {kept['now']}" if kept["now"] else ""
        was = {"requires_grad=0": "False", "requires_grad=1": "True"}.get(kept["was"], kept["was"])
        return f"{kept['what']} of tensor {kept['name']} was {was}{now}"
    if text.startswith("tensor '") or (text[:1].isupper() and not text.startswith(("G[", "L[", "Eq(", "Ne("))):
        return text.partition(". ")[0]  # a text in sentences, no expression
    now = ", ".join(f"{short(name)} is now {shown(value)}" for name, value in item.now.items())
    return f"guard {text} failed" + (f", {now}" if now else "")


def present(item: Guard) -> str:
    """The present value of what the guard checks, as text; empty when unknown."""
    sized = _MISMATCH.match(item.text)
    return sized["now"] if sized else ", ".join(map(shown, item.now.values()))


def _is_type(value: object) -> bool:
    return isinstance(value, str) and value.startswith("<") and value.endswith(">")


def shown(value: object) -> str:
    """A value in Python's notation, with short floats; a type in brackets stays as it is."""
    if _is_type(value):
        return str(value)
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def gloss(item: Guard) -> str:
    """A sentence that explains a guard that is hard to read, with advice; empty for other guards."""
    text = item.text
    if "___stack" in text:
        return "___stackN is a value that was carried over a graph break."
    if item.hint:
        return item.hint
    mismatch = _MISMATCH.match(text)
    if mismatch and mismatch["what"] == "size":
        return ""
    for words, meaning in _MEANINGS:
        if words in text:
            return meaning
    value = next(iter(item.now.values()), None)
    if isinstance(value, str) and not _is_type(value):
        return "Each new string compiles again: strings are constants of a graph."
    return ""


_MEANINGS = (
    (
        "___check_obj_id",
        "The code was compiled for one object and now gets another: create the object once, outside of the step.",
    ),
    ("___check_type_id", "Its type changed."),
    ("GLOBAL_STATE changed: grad_mode", "The same code runs with and without grad (torch.no_grad, model.eval)."),
    ("GLOBAL_STATE changed", "A global setting of torch changed between two calls."),
    ("BACKEND_MATCH", "torch.compile was called again with another backend object: call it once, outside of the loop."),
    ("dispatch key set", "The kind of the tensor changed (device, autocast, inference mode, or a subclass)."),
    ("requires_grad mismatch", "It is called with and without tensors that require grad."),
    (".training", "model.train() and model.eval() compile separately."),
    ("Unexpected recompilation", "A compiled version fits by now: another thread compiled it in the meantime."),
    ("Cache line invalidated", "The module or tensor that it was compiled for was freed."),
)


def restarted(error: str, text: str) -> str:
    """Why Dynamo abandoned an attempt, in a few words."""
    known = {
        "SpeculationRestartAnalysis": "to stop at the graph break",
        "UnspecializeRestartAnalysis": "to make a number variable that it had assumed constant",
        "TensorifyScalarRestartAnalysis": "with a Python float as a constant: another value of it compiles again",
        "CompileCollectiveRestartAnalysis": "because the ranks disagreed on what is dynamic",
    }
    return known.get(error) or f"because of {_joined(text) or error}"


_NEW_NODE = re.compile(r"Cache miss due to new autograd node: (.+) with key size (\d+), previous key sizes=\[(.*)\]")
_NEW_SIZES = re.compile(r"Cache miss due to \d+ changed tensor shapes \(total of \d+\): (.*)")


def captured(reason: str, node_of_size: dict[str, Any]) -> str:
    """Why compiled autograd captured a backward, and what became dynamic; empty for the first backward.

    `node_of_size`: size in the reason -> the autograd node that it belongs to.
    """
    new_node = _NEW_NODE.search(reason)
    if new_node:
        name, key_bytes = new_node[1], new_node[2]
        earlier = [f"{size} bytes" for size in new_node[3].split(",") if size.strip()]
        if "GraphRoot" in name:
            return "no earlier backward began like this one" if earlier else ""
        sizes_seen = f"a key of {key_bytes} bytes, not {', '.join(earlier)}"
        known = f"it differs from earlier ones in the values that it saved, or in its next node ({sizes_seen})"
        return f"at {name}, {known if earlier else 'which no earlier backward had there'}"
    changed = _NEW_SIZES.search(reason)
    if changed is None:
        return _joined(reason)
    sizes_of_node: dict[str, list[str]] = {}
    for size in map(str.strip, changed[1].split(",")):
        sizes_of_node.setdefault(str(node_of_size.get(size, "")), []).append(size)
    changes = "; ".join(f"{', '.join(sizes)}{f' of {node}' if node else ''}" for node, sizes in sizes_of_node.items())
    return f"sizes changed and are dynamic from here on: {changes}"


def nothing(reason: str) -> str:
    """A skip reason without Dynamo's introduction."""
    return (
        reason.removeprefix("Dynamo decided to skip the frame while tracing: ")
        .removesuffix(" `torch.compile` will skip the frame and fall back to eager.")
        .rstrip(".")
    )


def _joined(text: str) -> str:
    return " ".join(text.split())
