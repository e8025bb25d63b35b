"""The outcome of judging a saved graph, kept in the cache folder so that the next command need not judge it again.

Kept under all that it depends on: graph and inputs, rung, check and seed, this torch with the files of its compilers as
they are now, the environment that torch reads. Only sure outcomes are kept: no hang, no amount, nothing that could not
be decided, and nothing judged with modules of the user's, which may differ next time. Imports no torch.

For example:

    remember(saved, "inductor", "auto", 0, outcome)
    known(saved, "inductor", "auto", 0).text  # -> 'fails: wrong numbers'
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ... import __version__
from ...dumps.reading import read_bytes, stored
from ...dumps.written import put_at, taken_at
from ..verdicts.outcome import Outcome

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph

FILE = "judged.json"
SURE = ("crash", "signal", "wrong_numbers", "nan", "metadata", "missing_error")
"""Kinds of failures that do not depend on what else the machine does."""
_COMPILERS = ("_dynamo", "_functorch", "_inductor", "_decomp", "_refs", "_prims", "fx")
_READ = ("GRAPHDBG", "TORCH", "TRITON", "CUDA", "CXX", "CC", "OMP", "PYTORCH")
_MOST_NOTES = 20


def digest(saved: SavedGraph) -> str:
    """A digest of the graph and its inputs as they lie on the disk."""
    seen = hashlib.blake2b(digest_size=16)
    for name in ("graph.json", "inputs.json"):
        if stored(saved.path / name) is not None:
            seen.update(read_bytes(saved.path / name))
    return seen.hexdigest()


def remember(saved: SavedGraph, rung: str, check: str, seed: int, outcome: Outcome) -> None:
    """Keeps an outcome that another judgement would repeat."""
    verdict = outcome.verdict
    if verdict.verdict in ("ok", "rounding") or (verdict.failed and verdict.kind in SURE):
        plain = msgspec.structs.replace(outcome, outputs=None, output="", notes=outcome.notes[:_MOST_NOTES])
        put_at(FILE, _key(saved), {f"{rung} {check} {seed}": msgspec.to_builtins(plain)})


def known(saved: SavedGraph, rung: str, check: str, seed: int) -> Outcome | None:
    """The kept outcome; None where there is none."""
    return taken_at(FILE, _key(saved), Outcome).get(f"{rung} {check} {seed}")


def _key(saved: SavedGraph) -> str:
    names = sorted(name for name in os.environ if name.startswith(_READ))
    given = "\0".join(f"{name}={os.environ[name]}" for name in names)
    seen = "\0".join([digest(saved), __version__, version("torch"), str(_changed()), given])
    return hashlib.blake2b(seen.encode(), digest_size=16).hexdigest()


@cache
def _changed() -> int:
    """When a file of torch's compilers last changed: whoever builds torch changes it in place."""
    spec = find_spec("torch")
    home = Path(spec.origin).parent if spec is not None and spec.origin else None
    if home is None:
        return 0
    files = (file for name in _COMPILERS for file in (home / name).rglob("*.py"))
    return max((file.stat().st_mtime_ns for file in files), default=0)
