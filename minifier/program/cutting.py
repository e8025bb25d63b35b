"""Cuts a repro.py of a call: statements are removed, or replaced by what they hold, and tensors become half as long,
while the failure stays.

Each candidate is run in a process of its own, with torch imported; it has to print the same kind of failure, and to
pass with the backend before it. Only functions, classes and calls() are cut, not what compares. Imports no torch.

For example: `cut(Path("found/repro/repro.py"), "dynamo", deadline)`.
"""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...dumps.atomic import write_file
from ...toolkit.isolation import ForkServer
from ..report.verify import BUG, GONE, run_once

KEPT = {"made", "put", "leaves", "left", "everything", "differs", "main"}
BEFORE = {"aot_eager": "eager", "aot_eager_decomp_partition": "aot_eager", "inductor": "aot_eager_decomp_partition"}
LIMIT_S = 120.0


class Cutting:
    """One program that is cut. `asked`: how many candidates were run."""

    def __init__(self, program: Path, deadline: float, bare: ForkServer | None = None) -> None:
        self.program, self.deadline, self.bare = program, deadline, bare
        self.text, self.asked = program.read_text(encoding="utf-8"), 0
        backend = re.search(r"^BACKEND = '(\w+)'", self.text, re.MULTILINE)
        self.before = BEFORE.get(backend[1], "") if backend else ""
        self.kind = self._kind(program)

    def _kind(self, program: Path, *flags: str) -> str:
        trial = run_once(program, *flags, limit_s=LIMIT_S, bare=self.bare)
        said = re.search(r"^FAILS \(([^)]*)\)", trial.output, re.MULTILINE)
        return said[1] if trial.code == BUG and said else f"code {trial.code}"

    def fails(self, text: str) -> bool:
        """Whether a candidate fails the same way."""
        self.asked += 1
        candidate = self.program.with_name("candidate.py")
        write_file(candidate, text.encode())
        try:
            if self._kind(candidate) != self.kind:
                return False
            return not self.before or self._kind(candidate, "--backend", self.before) == f"code {GONE}"
        finally:
            candidate.unlink()

    def run(self) -> str:
        """Cuts until nothing more can go, or the time is over; writes the program and returns its text."""
        before = ""
        while before != self.text and time.monotonic() < self.deadline:
            before = self.text
            for proposals in (_deletions, _bodies, _elements, _halves):
                at = 0
                while time.monotonic() < self.deadline:
                    candidate = next(
                        (proposal for place, proposal in enumerate(proposals(self.text)) if place >= at), None
                    )
                    if candidate is None:
                        break
                    if candidate != self.text and self.fails(candidate):
                        self.text = candidate
                    else:
                        at += 1
        write_file(self.program, self.text.encode())
        return self.text


def _blocks(tree: ast.Module) -> list[list[ast.stmt]]:
    """The lists of statements that may be cut, outermost first."""
    blocks = [tree.body]
    for node in tree.body:
        if not (isinstance(node, ast.FunctionDef) and node.name in KEPT) and not isinstance(node, ast.If):
            blocks += [
                body
                for child in ast.walk(node)
                for name in ("body", "orelse")
                if isinstance(body := getattr(child, name, None), list) and body
            ]
    return blocks


def _fixed(node: ast.stmt) -> bool:
    names = [target.id for target in getattr(node, "targets", []) if isinstance(target, ast.Name)]
    own = isinstance(node, ast.FunctionDef) and node.name in {*KEPT, "calls"}
    return own or isinstance(node, (ast.Import, ast.Pass)) or any(name.isupper() for name in names)


def _deletions(text: str) -> Iterator[str]:
    """Texts without a run of statements: halves of a block first, then shorter ones, from the end."""
    shape = [len(block) for block in _blocks(ast.parse(text))]
    for number, length in enumerate(shape):
        size = length
        while size:
            for first in range(length - size, -1, -size):
                tree = ast.parse(text)
                block = _blocks(tree)[number]
                gone = block[first : first + size]
                main = number == 0 and any(isinstance(statement, (ast.If, ast.Expr)) for statement in gone)
                if main or any(_fixed(statement) for statement in gone):
                    continue
                block[first : first + size] = [] if length > size else [ast.Pass()]
                yield ast.unparse(tree)
            size //= 2


def _bodies(text: str) -> Iterator[str]:
    """Texts with a statement replaced by its body."""
    for number, block in enumerate(_blocks(ast.parse(text))[1:], 1):
        for at, node in enumerate(block):
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) and (body := getattr(node, "body", None)):
                tree = ast.parse(text)
                held = getattr(_blocks(tree)[number][at], "body", body)
                _blocks(tree)[number][at : at + 1] = held
                yield ast.unparse(tree)


def _elements(text: str) -> Iterator[str]:
    """Texts without one element of a returned tuple or list."""
    for number, block in enumerate(_blocks(ast.parse(text))):
        for at, node in enumerate(block):
            returned: Any = node.value if isinstance(node, ast.Return) else None
            if isinstance(returned, (ast.Tuple, ast.List)):
                for place in reversed(range(len(returned.elts))):
                    tree = ast.parse(text)
                    cut: Any = _blocks(tree)[number][at]
                    del cut.value.elts[place]
                    yield ast.unparse(tree)


def _halves(text: str) -> Iterator[str]:
    """Texts with a saved tensor half as long in its first or second dimension, wherever it is read."""
    for dim in range(2):
        for name in dict.fromkeys(re.findall(r"T\['(\w+)'\]", text)):
            part = f".narrow({dim}, 0, (T['{name}'].shape[{dim}] + 1) // 2).clone()"
            whole = f"T['{name}']"
            if part not in text:
                yield re.sub(re.escape(whole) + r"(?!\.)", lambda _, to=whole + part: to, text)
