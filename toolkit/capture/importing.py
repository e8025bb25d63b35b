"""Files that hold a graph, as case folders: torch's repro scripts, exported programs, a graph.py that was edited.

A script runs code of its author and an exported program may carry pickles, so both need `--trust`, and both are opened
in a child that only leaves a case folder behind. This module imports no torch.

For example:

    import_file(Path("repro.py"), Path("case"), trust=True)
    # Imported(path='case', kind='fx_graph_runnable', stage='forward', nodes=12, notes=[])
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...dumps import syntax, temporary
from ...dumps.errors import BadValueError, CannotImportError, ExistsAlreadyError, GraphdbgError, NeedsTrustError
from ...dumps.store import SavedGraph
from ...dumps.trust import bind, trusted

KINDS = {".py": "a script of torch's minifier or an fx_graph_runnable", ".pt2": "an exported program"}
LIMIT_S = 600.0
_ALONE = "run it by itself to see why: python {}"


@dataclass
class Imported:
    """The result of an import: the case folder, the kind of the file, the stage at which the graph enters, notes for
    the reader."""

    path: str
    kind: str
    stage: str
    nodes: int
    inputs: int
    notes: list[str] = field(default_factory=list[str])


def import_file(
    path: Path, out: Path, *, trust: bool, imports: Sequence[str] = (), like: SavedGraph | None = None
) -> Imported:
    """Writes the graph in a file as case folder `out`, after importing the modules `imports`. `like`: the graph whose
    edited graph.py the file is. Raises UsageError for a file of unknown kind, that is not trusted or holds no graph,
    and for an `out` that exists or cannot be written."""
    if not path.is_file():
        raise CannotImportError(f"cannot import {path}", "there is no such file")
    if path.suffix not in KINDS:
        known = "; ".join(f"{suffix}, {what}" for suffix, what in KINDS.items())
        why = f"it is not a structured trace, and its name ends in none of: {known}"
        raise CannotImportError(f"cannot import {path}", why)
    if out.exists():
        fix = "choose another name with -o, or delete it"
        raise ExistsAlreadyError(f"cannot write {out}", "it exists already", fix)
    if not out.resolve().parent.is_dir() or not os.access(out.resolve().parent, os.W_OK):
        raise BadValueError(f"cannot write {out}", f"{out.resolve().parent} is not a writable folder")
    if not trust:
        what = KINDS[path.suffix] if like is None else "a program"
        raise NeedsTrustError(
            f"{path} is not opened",
            f"it is {what}, and opening it can run any code in it",
            f"read it, then run graphdbg import {path}{f' --like {like.name}' if like else ''} --trust",
        )
    if like is not None:
        _parsed(path)
    with temporary.folder("graphdbg-import-") as folder:
        answer = folder / "imported.json"
        files = path.resolve(), out.resolve(), answer, like.path.resolve() if like else ""
        command = [sys.executable, "-m", f"{__package__}.import_child", *map(str, files), *imports]
        try:
            done = subprocess.run(command, cwd=path.resolve().parent, capture_output=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired as error:
            why = f"running it takes more than {LIMIT_S:g} s"
            raise CannotImportError(f"{path} cannot be imported", why, _ALONE.format(path)) from error
        if done.returncode != 0 or not answer.exists():
            raise _failed(path, done, answer)
        if like is not None and trusted(like.path):
            bind(out)
        return Imported(str(out), **json.loads(answer.read_text()))


def _parsed(path: Path) -> None:
    """Raises UsageError with the line where an edited text is no Python."""
    try:
        syntax.parsed(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        at = str(error)
        if isinstance(error, SyntaxError):
            at = f"line {error.lineno}, {(error.text or '').strip()}: {error.msg}"
        raise CannotImportError(f"{path} cannot be imported", at, "correct it and import it again") from error


def _failed(path: Path, done: subprocess.CompletedProcess[bytes], answer: Path) -> GraphdbgError:
    if answer.exists():
        return CannotImportError(f"{path} cannot be imported", json.loads(answer.read_text())["why"])
    lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    end = f"was killed by signal {-done.returncode}" if done.returncode < 0 else f"ended with code {done.returncode}"
    why = f"running it {end}" + (f": {lines[-1].strip()}" if lines else "")
    return CannotImportError(f"{path} cannot be imported", why, _ALONE.format(path))
