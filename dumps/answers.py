"""The common form of every `--json` answer: a `next` field with commands to paste, and at most 6 kB, unless `--full`
was given.

An answer that is too long is cut, the largest part first: a list at its end, a text in its middle. `cut` gives for each
cut field how many items or letters were left out, and `next` ends with the command that prints everything. A line of a
stream (it has an `event`) is left as it is, except for the last line of a minification. docs/json.md describes the
answers. Prints nothing.

>>> finished({"run": "myrun"}, ["graphdbg triage myrun"], json.dumps)
{'run': 'myrun', 'next': ['graphdbg triage myrun']}
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import click

KEPT_ELSEWHERE = "_GRAPHDBG_KEPT_ELSEWHERE"
"""Environment variable that is set for commands whose findings nobody needs to keep. (Not named GRAPHDBG_...: variables
with that prefix may change a judgement.)"""

Keeper = Callable[[str, str, Iterable[dict[str, Any]], int], object]
_keepers: list[Keeper] = []


def keep_by(keeper: Keeper) -> None:
    """Sets the function that keeps the findings from now on."""
    _keepers[:] = [keeper]


def found(asked: str, target: str, lines: Iterable[dict[str, Any]], code: int) -> None:
    """Hands the findings of a command to the keeper. `asked`: the run or graph as typed; `target`: its path; `lines`:
    the findings as `--json-lines` (bisect and check: `--json`) prints them; `code`: the command's exit code."""
    for keeper in _keepers:
        keeper(asked, target, lines, code)


MOST_BYTES = 6000
_TEXT = 240
"""Length, in letters, down to which a long text is cut while another part can still be cut."""
_LEAST = 120
"""A text of at most so many letters is never cut."""
_FIXED = ("where",)
"""Fields that are mappings with few entries, none of which is dropped."""
_MANY = MOST_BYTES // 3
_LAST, _START = "done", 500
"""The event of the line that is an answer, and the bytes reserved for the line printed before it."""
_FULL, _TYPED = "graphdbg.full", "graphdbg.typed"
_MAKES = {"minify": "", "demo": "", "import": "", "report": "", "draw": "output", "pack": "output", "show": "save"}
"""Command -> the option with which the command cannot be repeated, because it creates a file or folder that must not
exist yet; "": the command can never be repeated."""


def keep_full(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    """Notes that `--full` was given."""
    context.meta[_FULL] = given


def typed(context: click.Context, words: Sequence[str]) -> None:
    """Keeps the command's name and its arguments as they were typed."""
    context.meta[_TYPED] = tuple(words)


def is_whole() -> bool:
    """Whether the answer is printed uncut: `--full` was given, or the caller is a program."""
    context = click.get_current_context(silent=True)
    return context is None or bool(context.meta.get(_FULL)) or KEPT_ELSEWHERE in os.environ


def finished(data: Any, next: Sequence[str], text_of: Callable[[Any], str]) -> Any:
    """Returns the answer as it is printed: cut to size, with `next` as its commands to paste where it has none of its
    own."""

    def size(value: Any) -> int:
        return len(text_of(value).encode("utf-8", "backslashreplace"))

    given = cast("dict[str, Any]", data)
    if not isinstance(data, dict):
        return given
    if given.get("event", _LAST) != _LAST:
        return given
    answer: dict[str, Any] = {**given, "next": [*(given.get("next") or next)]}
    context, most = click.get_current_context(silent=True), MOST_BYTES - (_START if "event" in answer else 0)
    if context is None or is_whole() or size(answer) <= most:
        return answer
    again = _again(context)
    room = most - (size(again) if again else 0)
    cut: dict[str, int] = {}
    answer["cut"] = cut
    while (over := size(answer) - room) > 0 and (largest := _largest(answer, size)) is not None:
        holder, key, path = largest
        gone, holder[key] = _shorter(holder[key], over, size)
        cut[path] = cut.get(path, 0) + gone
    answer["next"] += again
    return answer


def _again(context: click.Context) -> list[str]:
    """The command with --full, as a list of one line to paste; empty where it cannot be repeated."""
    words: tuple[str, ...] = context.meta.get(_TYPED, ())
    option = _MAKES.get(words[0]) if words else ""
    if not words or option == "" or (option and context.params.get(option)):
        return []
    return [shlex.join(["graphdbg", words[0], "--full", *words[1:]])]


def _largest(answer: dict[str, Any], size: Callable[[Any], int]) -> tuple[Any, Any, str] | None:
    """Finds the largest part that can be cut, and returns its holder, its key there, and its path. A mapping, or the
    only item of a list, is chosen only where nothing else can be cut."""
    parts: list[tuple[bool, int, Any, Any, str]] = []

    def look(holder: Any, key: Any, path: str) -> None:
        value: Any = holder[key]
        if isinstance(value, str):
            parts.extend([(len(value) > 2 * _TEXT, size(value), holder, key, path)] if len(value) > _LEAST else [])
        elif isinstance(value, dict):
            holder[key] = inside = dict(cast("dict[str, Any]", value))  # the caller's own stays as it is
            parts.extend([(False, size(inside), holder, key, path)] if inside and path not in _FIXED else [])
            for name in [*inside] if len(inside) < _MANY else ():
                look(inside, name, f"{path}.{name}")
        elif isinstance(value, (list, tuple)):
            holder[key] = inside = [*cast("list[Any]", value)]
            parts.extend([(len(inside) > 1, size(inside), holder, key, path)] if inside else [])
            for place in range(len(inside)) if len(inside) < _MANY else ():  # so many are cut themselves, first
                look(inside, place, path)

    for name in answer:
        if name not in ("next", "cut"):
            look(answer, name, name)
    best = max(parts, key=lambda part: part[:2], default=None)
    return best and best[2:]


def _shorter(value: str | list[Any] | dict[str, Any], over: int, size: Callable[[Any], int]) -> tuple[int, Any]:
    """Cuts a part by about `over` bytes, at most three quarters at once; returns how many items or letters were left
    out, and the part that is left."""
    count, whole = len(value), size(value)
    keep = count * max(whole - over, whole // 4) // whole
    if isinstance(value, str):
        keep = max(_TEXT if count > 2 * _TEXT else _LEAST // 2, min(keep - 40, count - 1))
        head = keep * 2 // 3
        return count - keep, f"{value[:head]} [... {count - keep} letters ...] {value[count - keep + head :]}"
    keep = max(min(keep, count - 1), 1 if isinstance(value, list) and count > 1 else 0)
    return count - keep, value[:keep] if isinstance(value, list) else dict([*value.items()][:keep])
