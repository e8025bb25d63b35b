"""`minify -- CMD`: the program is triaged; where the fault is outside its graphs its repro is cut, else that graph is
minified.

Also: its `issue.md`, in the sections of PyTorch's bug form.

For example: `minify_program(["python", "train.py"], "out", 600.0, as_json=False)` gives `0`.
"""

from __future__ import annotations

import ast
import contextlib
import re
import shlex
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import torch

from ...dumps import opening, syntax, written
from ...dumps.atomic import free_path, write_file
from ...dumps.output import emit, say
from ...dumps.pack.redact import Redactor
from ...dumps.wording import counted, shown_path, size_text
from ...toolkit.isolation import ForkServer, programs
from ...toolkit.isolation.fresh import BUG, GONE, run_once
from ...toolkit.isolation.heartbeat import BEAT_S
from ...toolkit.program.concluding import ProgramTriage, Repro, shown
from ...toolkit.program.run import triage_program
from ...toolkit.verdicts import verdict_words
from ..report.bundle import ISSUES, phrase
from ..report.environment import versions_text
from ..report.issue import ISSUE, fenced, framed, inline, shorten
from .plain import SEED, constructors, entries, replaced, scripts

KEPT = {"unsure", "leaves", "left", "everything", "differs", "main"}
"""Functions of the repro that judge, which are not cut."""
HELPERS = {"rebuilt", "restore"}
"""Functions of the repro that go as a whole, where nothing calls them."""
SET = {"sys.excepthook", "os.environ['TORCHINDUCTOR_FORCE_DISABLE_CACHES']"}
"""What the repro sets for the sake of its exit code, which is not cut."""
BEFORE = {"aot_eager": "eager", "aot_eager_decomp_partition": "aot_eager", "inductor": "aot_eager_decomp_partition"}
LIMIT_S = 120.0


class Cutting:
    """One program that is cut. `asked`: how many candidates were run."""

    def __init__(self, program: Path, deadline: float, bare: ForkServer | None = None) -> None:
        self.program, self.deadline, self.bare = program, deadline, bare
        self.word = time.monotonic() + BEAT_S
        self.text, self.asked, self.said, self.plain = program.read_text(encoding="utf-8"), 0, "", False
        backend = re.search(r"^BACKEND = '(\w+)'", self.text, re.MULTILINE)
        self.before = BEFORE.get(backend[1], "") if backend else ""
        self.kind = self._kind(program)
        if self.before and self._kind(program, "--backend", self.before) == self.kind:
            self.before = ""  # a guard is missing, say: every backend shows it

    def _kind(self, program: Path, *flags: str) -> str:
        trial = run_once(program, *flags, limit_s=LIMIT_S, bare=self.bare)
        said = re.search(r"^FAILS \(([^)]*)\)(?:: call \d+ of \d+: (.*))?", trial.output, re.MULTILINE)
        if trial.code == BUG and said:
            self.said = self.said or said[2] or ""
            return said[1]
        return f"code {trial.code}"

    def fails(self, text: str) -> bool:
        """Whether a candidate fails the same way."""
        self.asked += 1
        if time.monotonic() > self.word:
            self.word = time.monotonic() + BEAT_S
            say(f"{counted(self.asked, 'candidate')} run: {counted(len(self.text.splitlines()), 'line')} left so far")
        if self.plain:
            return self._shows(text)
        with self._candidate(text) as candidate:
            if self._kind(candidate) != self.kind:
                return False
            return not self.before or self._kind(candidate, "--backend", self.before) == f"code {GONE}"

    @contextlib.contextmanager
    def _candidate(self, text: str) -> Generator[Path]:
        candidate = self.program.with_name("candidate.py")
        write_file(candidate, text.encode())
        try:
            yield candidate
        finally:
            candidate.unlink()

    def straighten(self) -> None:
        """Makes the text the plainest script that shows the failure as it does; leaves it where none does."""
        self.plain = True
        script = next(filter(self.fails, scripts(self.text, self.kind, self.said)), None)
        self.plain, self.text = script is not None, script or self.text

    def inline(self) -> None:
        """Writes tensors into a plain script, and drops from the file beside it what is not read."""
        beside = self.program.with_suffix(".pt")
        tensors: dict[str, torch.Tensor] = torch.load(beside, weights_only=True) if self.plain else {}
        for name in [name for name in tensors if f"T[{name!r}]" in self.text]:
            if time.monotonic() < self.deadline:
                self.text = next(filter(self.fails, replaced(self.text, name, tensors[name])), self.text)
        write_file(self.program, self.text.encode())
        left = {name: tensor for name, tensor in tensors.items() if f"T[{name!r}]" in self.text}
        if self.plain:
            torch.save(left, beside) if left else beside.unlink()

    def _shows(self, script: str) -> bool:
        """Whether a plain script shows the failure, and nothing without the fault or under the backend before."""
        with self._candidate(script) as candidate:
            trial = run_once(candidate, limit_s=LIMIT_S, bare=self.bare)
            if trial.code != BUG or not re.search(r"^BUG: ", trial.output, re.MULTILINE):
                return False
            if run_once(candidate, "--without-fault", limit_s=LIMIT_S, bare=self.bare).code != GONE:
                return False
        if not self.before:
            return True
        with self._candidate(re.sub(r"backend='\w+'", f"backend={self.before!r}", script)) as candidate:
            return run_once(candidate, limit_s=LIMIT_S, bare=self.bare).code == GONE

    def run(self) -> str:
        """Cuts until nothing more can go, or the time is over; writes the program and returns its text."""
        before = ""
        while before != self.text and time.monotonic() < self.deadline:
            before = self.text
            for proposals in (constructors, _deletions, _bodies, _elements, entries, _halves):
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
        if not (isinstance(node, ast.FunctionDef) and node.name in {*KEPT, *HELPERS}) and not isinstance(node, ast.If):
            blocks += [
                body
                for child in ast.walk(node)
                for name in ("body", "orelse")
                if isinstance(body := getattr(child, name, None), list) and body
            ]
    return blocks


def _fixed(node: ast.stmt) -> bool:
    names = [ast.unparse(target) for target in getattr(node, "targets", [])]
    own = isinstance(node, ast.FunctionDef) and node.name in {*KEPT, "calls", "run", "compiled"}
    named = any(name.isupper() or name in SET for name in names) or ast.unparse(node) == SEED
    return own or isinstance(node, (ast.Import, ast.Pass)) or named


def _deletions(text: str) -> Iterator[str]:
    """Texts without a run of statements: halves of a block first, then shorter ones, from the end."""
    shape = [len(block) for block in _blocks(syntax.parsed(text))]
    for number, length in enumerate(shape):
        size = length
        while size:
            for first in range(length - size, -1, -size):
                tree = syntax.parsed(text)
                block = _blocks(tree)[number]
                gone = block[first : first + size]
                main = number == 0 and any(isinstance(statement, (ast.If, ast.Expr)) for statement in gone)
                if main or any(_fixed(statement) for statement in gone):
                    continue
                block[first : first + size] = [] if length > size else [ast.Pass()]
                yield ast.unparse(tree)
            size //= 2


def _bodies(text: str) -> Iterator[str]:
    """Texts with a statement replaced by its body, or by what it does else."""
    for number, block in enumerate(_blocks(syntax.parsed(text))[1:], 1):
        for at, node in enumerate(block):
            for name in ("body", "orelse"):
                if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) and (body := getattr(node, name, None)):
                    tree = syntax.parsed(text)
                    held = getattr(_blocks(tree)[number][at], name, body)
                    _blocks(tree)[number][at : at + 1] = held
                    yield ast.unparse(tree)


def _elements(text: str) -> Iterator[str]:
    """Texts without one element of a returned tuple or list."""
    for number, block in enumerate(_blocks(syntax.parsed(text))):
        for at, node in enumerate(block):
            returned: Any = node.value if isinstance(node, ast.Return) else None
            if isinstance(returned, (ast.Tuple, ast.List)):
                for place in reversed(range(len(returned.elts))):
                    tree = syntax.parsed(text)
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


DEFAULT_TIME_S, CUTTING = 600.0, 0.75
"""The time for all of it, and the part of it for cutting; the rest is for tensors that can stand in the text."""


def triaged(command: list[str], out: str | None, max_time_s: float | None, *, quiet: bool) -> ProgramTriage:
    """The program compared with eager, its calls watched for that long; its files are in OUT."""
    folder = Path(out) if out else free_path("minified-program", first=2)
    return triage_program(command, output=folder, max_time_s=max_time_s, quiet=quiet, report=say)


def left_of(max_time_s: float | None, triaged: ProgramTriage) -> float | None:
    """The seconds that are left for cutting, at least one."""
    return None if max_time_s is None else max(float(round(max_time_s - triaged.seconds)), 1.0)


def failing_graph(triaged: ProgramTriage) -> str:
    """The graph that fails, where one does and Dynamo alone does not depart; else ""."""
    by_dynamo = triaged.at is not None and triaged.at.failed is not None and triaged.at.failed.rung == "dynamo"
    where = triaged.verdict.where
    return where.graph if triaged.verdict.failed and where is not None and not by_dynamo else ""


def cut_repro(triaged: ProgramTriage, max_time_s: float | None, as_json: bool) -> int:
    """Cuts the repro of the departure, and runs it 3 times; returns the exit code."""
    repro, began, asked = triaged.repro, time.monotonic(), 0
    if triaged.verdict.failed and repro.says == "shows":
        say(f"the fault is outside its graphs; cutting {shown_path(Path(repro.path))}")
        seconds = max_time_s or DEFAULT_TIME_S
        with programs() as bare:
            cutting = Cutting(Path(repro.path), began + CUTTING * seconds, bare)
            lines, interrupted = len(cutting.text.splitlines()), False
            try:
                cutting.straighten()
                cutting.run()
                cutting.deadline = began + seconds
                cutting.inline()
            except KeyboardInterrupt:
                write_file(cutting.program, cutting.text.encode())
                interrupted = True
        asked = cutting.asked
        left = counted(len(cutting.text.splitlines()), "line")
        over = "" if asked else "; the time was over before it was cut (--max-time)"
        say(f"{counted(asked, 'candidate')} run: of {counted(lines, 'line')} {left} left{over}")
        written.remember(Path(repro.path))
        if interrupted:
            say(f"interrupted; what was cut so far is kept: {shown_path(Path(repro.path))}")
            return 130
        repro = shown(Path(repro.path), sys.executable)
    failed = triaged.verdict.failed
    code = (0 if repro.says == "shows" else 1) if failed or triaged.verdict.verdict in ("ok", "rounding") else 4
    tried = shlex.join(["python", shown_path(Path(repro.path))]) if repro.says == "shows" else ""
    issue = write_issue(triaged, repro, Path(triaged.folder)) if tried else None
    if as_json:
        done = {"event": "done", **triaged.verdict.flat(), **repro.plain(), "queries": asked}
        done |= {"issue": str(issue) if issue else None}
        emit(done | ({"next": [tried]} if tried else {}), as_json=True)
        return code
    say(triaged.verdict.reason or triaged.summary)
    if failed:
        say(repro.sentence)
    if issue:
        say(f"issue: {shown_path(issue)}")
        say(f"try it: {tried}")
        emit(repro.path, as_json=False)
    return code


def write_issue(triaged: ProgramTriage, repro: Repro, out: Path) -> Path:
    """Writes the issue of a repro that shows the failure; returns its path."""
    verdict, call, program = triaged.verdict, triaged.at, Path(repro.path)
    redactor = Redactor()
    words = phrase(redactor.text(verdict.reason.partition(" raises ")[2])) if verdict.kind == "crash" else ""
    kind = verdict_words.searched("", verdict.kind or "")
    asked = f'is:issue "{words}"' if words else f"is:issue {verdict.layer or 'torch.compile'} {kind}".strip()
    beside = [part.name for part in (program.with_suffix(".pt"), program.with_name("modules")) if part.exists()]
    rate = f"{repro.codes.count(BUG)} of {counted(len(repro.codes), 'fresh process')}"
    lines = [
        inline(verdict.reason, 600),
        "",
        "- Expected: what eager does.",
        f"- First failing layer: {verdict.layer or 'torch.compile'}.",
        f"- Seen in {call.place if call is not None else 'a call'} of a program, beside eager from the same start.",
        f"- The program below shows it in {rate}, each without compile caches; without torch.compile it passes.",
    ]
    if beside:
        sizes = [f"{name} ({size_text(_size(program.with_name(name)))})" for name in beside]
        lines.append(f"- It reads {' and '.join(sizes)}, which must be attached.")
    parts = [
        "### 🐛 Describe the bug",
        "\n".join(lines),
        "`repro.py` (exit code 1 while the bug is there, 0 when it is gone, 2 when it cannot tell; for `git bisect "
        f"run`: --git-bisect):\n\n{fenced(opening.read_text(program).rstrip(), 'python')}",
        "### Error logs",
        fenced(shorten(repro.printed)),
        "### Versions",
        fenced(versions_text()),
    ]
    title = f"[{verdict.layer or 'torch.compile'}] {verdict_words.does(verdict)}: {call.function if call else ''}()"
    write_file(out / ISSUE, framed(title, parts, f"{ISSUES}?q={quote_plus(asked)}", redactor).encode())
    return out / ISSUE


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else sum(part.stat().st_size for part in path.iterdir())
