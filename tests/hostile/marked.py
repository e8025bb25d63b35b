"""Marks the text fields of a record: whatever the schema has, one mark at a time or many at once.

A place is where a text stands or could stand in the record's full JSON form, defaults included: a string, a None, an
end of a list, a key of a dict. A field that the schema gets tomorrow is a place by itself.

>>> [place for place in places(full(record)) if place.kind == "graph.nodes.*.name"]
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

Path = tuple[str | int, ...]
ENDS = ("'", '"', "\\", "\n", "*/", "'''", '"""', ')"', "\x1b", "\u2028")
LEFT = re.compile(r"""zq(\d+)(?:['"\\\n\x1b\u2028]|\*/|\)")""")
"""A mark that stands where it could end something."""
_APART = ("args", "kwargs", "meta", "from_node")
"""What means another thing on each node, and at each place."""


class Place(NamedTuple):
    """Where a mark goes: `kind` is the path without what counts; `what` is set, append, key, or nest (a dict of lists
    of it)."""

    kind: str
    path: Path
    what: str


def mark(number: int) -> str:
    """The text of a mark: all that could end a literal or a comment, with a word before each."""
    return "".join(f"zq{number}{end}" for end in ENDS) + f"zq{number}."


def full(held: Any) -> Any:
    """The JSON form of a record with all fields, also those that are as they always are."""
    if isinstance(held, msgspec.Struct):
        config = held.__struct_config__
        tag = {config.tag_field: config.tag} if config.tag_field else {}
        return tag | {field: full(getattr(held, field)) for field in held.__struct_fields__}
    if isinstance(held, (list, tuple)):
        return [full(item) for item in held]
    return {key: full(item) for key, item in held.items()} if isinstance(held, dict) else held


def places(form: Any) -> list[Place]:
    """The first place of each kind; those of arguments and metadata for each target."""
    results: dict[str, Place] = {}
    for place in _places(form, (), "", ""):
        results.setdefault(f"{place.kind} {place.what}", place)
    return list(results.values())


def _places(form: Any, path: Path, kind: str, node: str) -> Iterator[Place]:
    inside, apart = f"{kind}." if kind else "", "(" in kind
    if form is None or isinstance(form, str):
        yield Place(kind, path, "set")
    elif isinstance(form, list):
        if path[-1] not in ("args", "kwargs"):
            yield Place(kind, path, "append")
        for index, item in enumerate(form):
            yield from _places(item, (*path, index), f"{inside}{index if apart else '*'}", node)
    elif isinstance(form, dict):
        if not path or path[-1] not in ("value", "kwargs"):
            yield Place(kind, path, "key")
        node = form.get("target", node)
        for key, item in form.items():
            named = f"{inside}{key}({node})" if key in _APART and not apart else f"{inside}{key}"
            yield from _places(item, (*path, key), named, node)


def nested(path: Path, keys: Iterable[str]) -> list[Place]:
    """Places for a dict under each of `keys` of a dict at `path`: metadata, of which each key is read by other code."""
    return [Place(f"{'.'.join(map(str, path))}.{key}", (*path, key), "nest") for key in sorted(keys)]


def put(form: Any, marks: dict[Place, str]) -> Any:
    """The form with marks in places."""
    result = copy.deepcopy(form)
    for place, text in marks.items():
        at = result
        for step in place.path[:-1] if place.what in ("set", "nest") else place.path:
            at = at[step]
        if place.what == "set":
            at[place.path[-1]] = text
        elif place.what == "nest":
            at[place.path[-1]] = {"dict": [[text, [text, {"tuple": [text]}]]]}
        elif place.what == "append":
            at.append(text)
        else:
            at[text] = text
    return result
