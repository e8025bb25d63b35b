"""How a dump is made hostile: its bytes, the structure of its JSON, its files, its archive; each by a seeded random
number.

>>> damage(Path("copy/of/run"), random.Random("1:17"))
['json graph.json $.graph.nodes[3].value.dtype', 'file journal.jsonl fifo']
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from graphdbg.dumps.arguments import KINDS

TEXTS = (
    "",
    "x",
    "a b",
    "../x",
    "/etc/passwd",
    "s0",
    "s1 + 1",
    "2**s0",
    "Eq(s0, 5)",
    "int",
    "float",
    "node",
    "aten.sin.default",
    "operator.getitem",
    "torch.relu",
    "import",
    "__class__",
    "\u001b]52;c;eA==\u0007",
    "\n",
    "\u0000",
    "\uff41",
    "\ud800",
    "'''\"\"\"*/\\",
    "9" * 50,
    "nan",
    "x" * 5000,
    "cuda:0",
    "meta",
    "float64",
    "bfloat16",
    "__import__('os').system('touch ../outside/ran')",
    '"); system("touch ../outside/ran"); ("',
    "$(touch ../outside/ran)",
    "../outside/new",
    "int64",
    "complex64",
    "forward",
    "backward",
    "[",
    "{",
    "\u202e",
    "s" * 300,
    "0" * 40,
)
NUMBERS = (0, 1, -1, 2, 7, 255, 2**31, 2**63 - 1, -(2**63), 2**64, 10**30, 0.5, -0.0, 1e308, 3)
TAGGED = tuple({tag: kind.example} for tag, kind in KINDS.items())
"""An argument of each kind."""
_MOST_PLACES = 4000


def damage(dump: Path, random: Random) -> list[str]:
    """Changes a copy of a dump in one to four ways; what was done."""
    if dump.is_file():
        return [_archive(dump, random)]
    done: list[str] = []
    for _ in range(random.choice((1, 1, 1, 1, 1, 2, 3, 4))):
        paths = sorted(path for path in dump.rglob("*") if path.is_file() and not path.is_symlink())
        if not paths:
            break
        texts = [path for path in paths if ".json" in path.name]
        how = random.choices((_json, _bytes, _file), (12, 2, 1))[0]
        path = random.choice(texts if how is _json and texts else paths)
        done.append(f"{how.__name__.strip('_')} {path.relative_to(dump)} {how(path, random)}")
    return done


def _json(path: Path, random: Random) -> str:
    """Another value, none, or one twice, at some place of a JSON document or of one line."""
    data = _unpacked(path)
    lines = data.split(b"\n") if path.name.endswith("l") else [data]
    at = random.randrange(len(lines))
    try:
        document = json.loads(lines[at])
    except ValueError:
        return _bytes(path, random)
    places = _places(document)
    if not places:
        return "nothing in it"
    place = random.choice(places)
    *parents, last = place
    owner = document
    for key in parents:
        owner = owner[key]
    what = random.choice(("value", "value", "like", "like", "like", "gone", "twice", "other"))
    if what == "gone":
        del owner[last]
    elif what == "twice" and isinstance(owner, list):
        owner.insert(last, owner[last])
    elif what == "other":
        owner[last] = _at(document, random.choice(places))
    elif what == "like":
        owner[last] = _like(owner[last], random)
    else:
        owner[last] = _value(random)
    lines[at] = json.dumps(document).encode()
    _pack(path, b"\n".join(lines))
    return "$" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)[:80] + f" {what}"


def _like(value: Any, random: Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return random.choice((*NUMBERS, value + 1, value * 2))
    if isinstance(value, str):
        return random.choice((*TEXTS, value[::-1], value + value, value.upper()))
    if isinstance(value, list):
        return random.choice(([], value[::-1], value * 2, value[:-1], [value]))
    return {} if isinstance(value, dict) else _value(random)


def _value(random: Random) -> Any:
    deep: Any = random.choice(TEXTS)
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: random.choice(TEXTS),
        lambda: random.choice(NUMBERS),
        lambda: random.choice(TAGGED),
        lambda: None,
        list,
        dict,
        lambda: [random.choice(TEXTS)] * 3,
        lambda: {random.choice(TEXTS): random.choice(NUMBERS)},
        lambda: random.random() < 0.5,
        lambda: _nested(random.choice((5, 60, 300)), deep),
    )
    return random.choice(kinds)()


def _nested(depth: int, value: Any) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def _places(document: Any) -> list[tuple[Any, ...]]:
    results: list[tuple[Any, ...]] = []
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), document)]
    while waiting and len(results) < _MOST_PLACES:
        place, value = waiting.pop()
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, item in inner:
            results.append((*place, key))
            waiting.append(((*place, key), item))
    return results


def _at(document: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        try:
            document = document[key]
        except (KeyError, IndexError, TypeError):
            return None
    return json.loads(json.dumps(document))


def _bytes(path: Path, random: Random) -> str:
    """Bits turned over, a piece cut out, repeated, or put in."""
    data = bytearray(_unpacked(path) if random.random() < 0.6 else path.read_bytes())
    plain = data == path.read_bytes()
    what = random.choice(("bit", "bit", "cut", "end", "twice", "put", "zeros"))
    at = random.randrange(len(data) + 1)
    length = random.choice((1, 2, 8, 64, 1000))
    if what == "bit":
        for _ in range(random.choice((1, 4, 40))):
            if data:
                data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif what == "cut":
        del data[at : at + length]
    elif what == "end":
        del data[at:]
    elif what == "twice":
        data[at:at] = data[at : at + length]
    elif what == "put":
        data[at:at] = random.randbytes(length)
    else:
        data[at : at + length] = bytes(length)
    if plain:
        path.write_bytes(data)
    else:
        _pack(path, bytes(data))
    return f"{what} at {at}"


def _file(path: Path, random: Random) -> str:
    """Something else in the place of a file."""
    what = random.choice(
        ("gone", "empty", "fifo", "folder", "outside", "loop", "holes", "swap", "zero", "large", "hidden")
    )
    if what == "swap":
        other = random.choice(
            sorted(item for item in path.parent.parent.rglob("*") if item.is_file() and not item.is_symlink())
        )
        first, second = path.read_bytes(), other.read_bytes()
        path.write_bytes(second)
        other.write_bytes(first)
        return what
    if what == "hidden":
        path.rename(path.with_name(f".{path.name}"))
        return what
    path.unlink()
    if what == "empty":
        path.touch()
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "outside":
        path.symlink_to(OUTSIDE / random.choice(("secret", "new")))
    elif what == "loop":
        path.symlink_to(path.name)
    elif what == "zero":
        path.symlink_to("/dev/zero")
    elif what == "holes":
        with path.open("wb") as file:
            file.write(b'{"format":1')
            file.truncate(random.choice((1 << 20, 3 << 30)))
    elif what == "large":
        path.write_bytes(gzip.compress(random.choice((b" ", b"[],", b'{"a":1},')) * (60 << 20), 1, mtime=0))
    return what


OUTSIDE = Path("outside")
"""A folder beside the dumps that nobody may read from or write to; the fuzzer sets it."""


def _archive(path: Path, random: Random) -> str:
    """The same with a pack: its bytes, or what lies in it, under names that it should not have."""
    if random.random() < 0.3:
        return f"bytes {_bytes(path, random)}"
    folder = path.with_suffix(".unpacked")
    with zipfile.ZipFile(path) as packed:
        packed.extractall(folder)
    (root,) = folder.iterdir()
    done = damage(root, random)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size < 1 << 28]
    inside = [path for path in files if os.path.realpath(path).startswith(str(folder.resolve()))]
    names = {path: path.relative_to(folder).as_posix() for path in inside}
    if random.random() < 0.3 and names:
        item = random.choice(sorted(names))
        inside_root = (f"{root.name}/{'a' * 300}", f"{root.name}/run.json/x")
        names[item] = random.choice((f"../{item.name}", f"/{item.name}", *inside_root, f"other/{item.name}", "x"))
        done.append(f"name {names[item]}")
    path.unlink()
    with zipfile.ZipFile(path, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as packed:
        for item, name in names.items():
            packed.writestr(name, item.read_bytes())
    shutil.rmtree(folder)
    return "; ".join(done)


def _unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    try:
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError):
        return data


def _pack(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data, 6, mtime=0) if path.suffix == ".gz" else data)
