"""Cuts the repro of a program: makes it a plain script where one shows the failure, then makes that smaller.

A plain script makes the calls one after another, and compares the differing value in a few lines; a repro without such
a form stays as it was. Texts are made by `ast`, and each is run before it is kept.

For example: `next(scripts(text, "values", "result is off by 0.98, relative to its size"))` runs `result = call(x)`
under eager and compiled, and compares both.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import inspect
import re
import textwrap
import time
from collections.abc import Generator, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from ...dumps import syntax
from ...dumps.atomic import write_file
from ...dumps.output import say
from ...dumps.wording import counted, like, words_of
from ...toolkit.isolation import ForkServer
from ...toolkit.isolation.fresh import BUG, GONE, run_once
from ...toolkit.isolation.heartbeat import BEAT_S
from ...toolkit.program.comparing import OF_FAKE
from ...toolkit.program.source import Unannotated

KEPT = {"unsure", "leaves", "left", "everything", "differs", "main"}
"""Functions of the repro that judge, which are not cut."""
HELPERS = {
    "whole": "def whole(value):\n    return value",
    "restore": """\
def restore(old, new):
    if isinstance(old, torch.Tensor):
        old.data = new.detach()
    else:
        old.__dict__.update(new.__dict__)""",
    "rebuilt": """\
def rebuilt(kind, state):
    instance = kind.__new__(kind)
    if isinstance(instance, torch.nn.Module):
        torch.nn.Module.__init__(instance)
        for name in ('_parameters', '_buffers', '_modules'):
            instance.__dict__[name].update(state.pop(name, {}))
    instance.__dict__.update(state)
    return instance""",
}
"""Functions of the repro that are dropped as a whole, where nothing calls them -> a shorter form, which does for
most."""
SET = {"sys.excepthook", "os.environ['TORCHINDUCTOR_FORCE_DISABLE_CACHES']"}
"""Names that the repro sets for the sake of its exit code, which are not cut."""
BEFORE = {"aot_eager": "eager", "aot_eager_decomp_partition": "aot_eager", "inductor": "aot_eager_decomp_partition"}
LIMIT_S = 120.0
SEED = "torch.manual_seed(0)"
"""Stays in a script, in which tensors may be drawn."""
SMALL = 32
"""Tensors of at most so many elements are written into the text."""
_CONSTANTS = {"BACKEND", "COMPILE", "RAISES", "STRIDES", "TOLERANCE", "HERE"}
_LOAD = "T = torch.load(pathlib.Path(__file__).with_name('repro.pt'), weights_only=True)"
_ROOTS = "roots = [root for root in torch.utils._pytree.tree_leaves(result) if getattr(root, 'requires_grad', False)]"

SCRIPT = '''\
"""{head}
Exit code 1 while it shows, 0 when it does not, 2 when it cannot tell (with --git-bisect 125). With --without-fault
nothing is compiled, which ends with 0.
"""

{imports}

FAULT, UNSURE = "--without-fault" not in sys.argv, 125 if "--git-bisect" in sys.argv else 2
sys.excepthook = lambda t, e, b: (sys.__excepthook__(t, e, b), print(f"cannot tell: {{e!r}}"), sys.exit(UNSURE))

{definitions}


def run(compile):
    {seed}
{body}


def compiled(function):
    return torch.compile(function, {options}) if FAULT else function


{ending}
'''
_EAGER = """\
eager, actual = run(lambda function: function), run(compiled)
print(f"eager:\\n{eager}\\ncompiled:\\n{actual}", flush=True)
"""
_NUMBERS = f"""{_EAGER}\
eager, actual = (x.detach().to(torch.complex128 if x.is_complex() else torch.float64) for x in (eager, actual))
if not (actual - eager).norm() <= TOLERANCE * eager.norm():
    sys.exit("BUG: what is compiled leaves another value than eager")
print("gone: both agree")"""
_EQUAL = f"""{_EAGER}\
if eager != actual:
    sys.exit("BUG: what is compiled leaves another value than eager")
print("gone: both agree")"""
_RAISES = """\
run(lambda function: function)
try:
    run(compiled)
except Exception as error:
    if type(error).__name__ != "NAME":
        raise
    traceback.print_exc()
    sys.exit("BUG: what is compiled raises NAME, eager does not")
print("gone: it compiles and runs")"""
_MISSING = """\
for kind in (lambda function: function, compiled):
    try:
        run(kind)
    except Exception as error:
        print(f"raises {error!r}")
        continue
    if kind is not compiled:
        raise AssertionError("eager raises nothing")
    sys.exit("BUG: what is compiled raises nothing, eager does")
print("gone: both raise")"""


class ProgramCutting:
    """One program that is cut. `asked`: how many candidates were run."""

    def __init__(self, program: Path, deadline: float, bare: ForkServer | None = None) -> None:
        self.program, self.deadline, self.bare = program, deadline, bare
        self.word = time.monotonic() + BEAT_S
        self.refused: set[str] = set()
        self.text, self.asked, self.said, self.plain = program.read_text(encoding="utf-8"), 0, "", False
        self.words: set[str] = set()
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
            if not self.words and said[1].startswith("error "):
                self.words = words_of(_message(trial.output) or self.said.partition(": ")[2].partition(", eager ")[0])
            return said[1] if like(self.words, _message(trial.output) or trial.output) else "another error"
        return f"code {trial.code}"

    def fails(self, text: str) -> bool:
        """Whether a candidate fails the same way; one that was refused before, or reads a name that nothing binds, is
        not run."""
        if text in self.refused or not _unbound(text) <= _unbound(self.text):
            return False
        if not self._fails(text):
            self.refused.add(text)
            return False
        return True

    def _fails(self, text: str) -> bool:
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
        """Replaces the text by the plainest script that shows the same failure; leaves it where none does."""
        self.plain = True
        script = next(filter(self.fails, scripts(self.text, self.kind, self.said)), None)
        self.plain = script is not None
        self._keep(script or self.text)

    def _keep(self, text: str) -> None:
        """Takes a text as the best so far, and writes it at once: it is not lost, however the process ends."""
        self.text = text
        write_file(self.program, text.encode())

    def inline(self) -> None:
        """Writes tensors into a plain script, and drops from the file beside it what is not read."""
        beside = self.program.with_suffix(".pt")
        tensors: dict[str, torch.Tensor] = torch.load(beside, weights_only=True) if self.plain else {}
        for name in [name for name in tensors if f"T[{name!r}]" in self.text]:
            if time.monotonic() < self.deadline:
                self._keep(next(filter(self.fails, replaced(self.text, name, tensors[name])), self.text))
        left = {name: tensor for name, tensor in tensors.items() if f"T[{name!r}]" in self.text}
        if self.plain:
            torch.save(left, beside) if left else beside.unlink()
            self._keep(_laid_out(self.text))

    def _shows(self, script: str) -> bool:
        """Whether a plain script shows the failure, and nothing without the fault or under the backend before."""
        with self._candidate(script) as candidate:
            trial = run_once(candidate, limit_s=LIMIT_S, bare=self.bare)
            if trial.code != BUG or not re.search(r"^BUG: ", trial.output, re.MULTILINE):
                return False
            if not like(self.words, _message(trial.output) or trial.output):
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
            for proposals in _PROPOSALS:
                at = 0
                while time.monotonic() < self.deadline:
                    candidate = next(islice(proposals(self.text), at, None), None)
                    if candidate is None:
                        break
                    if candidate != self.text and self.fails(candidate):
                        self._keep(candidate)
                    else:
                        at += 1
        return self.text


def _laid_out(text: str) -> str:
    """A script with empty lines around its definitions, and behind its imports."""
    lines, before = "", None
    for node in syntax.parsed(text).body:
        both = (before, node)
        apart = any(isinstance(part, (ast.FunctionDef, ast.ClassDef)) for part in both)
        imports = {isinstance(part, ast.Import) for part in both}
        gap = 3 if apart else 2 if imports == {True, False} else 1
        lines += "\n" * (gap if before else 0) + ast.unparse(ast.Module([node], [])).strip()
        before = node
    return f"{lines}\n"


def _message(output: str) -> str:
    """What an operator's fake function raised, as Dynamo's explanation in an output repeats it; "" where none did."""
    inner = OF_FAKE.search(output)
    return f"{inner[1]}: {inner[2]}" if inner else ""


def _blocks(tree: ast.Module) -> list[list[ast.stmt]]:
    """The lists of statements that may be cut, outermost first."""
    blocks = [tree.body]
    for node in tree.body:
        judges = isinstance(node, ast.FunctionDef) and node.name in {*KEPT, *HELPERS}
        if not judges and not isinstance(node, (ast.If, ast.Try, ast.For)):
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
    named = any(name in {*_CONSTANTS, *SET, "(FAULT, UNSURE)"} for name in names) or ast.unparse(node) == SEED
    return own or isinstance(node, (ast.Import, ast.Pass)) or named


def _unbound(text: str) -> set[str]:
    """The names that a text reads and does not bind anywhere."""
    bound, read = {"__file__", "__name__", *dir(builtins)}, set[str]()
    for node in ast.walk(syntax.parsed(text)):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name.partition(".")[0])
        else:
            bound |= {name for key in ("name", "arg") if isinstance(name := getattr(node, key, None), str)}
    return read - bound


def unused(text: str) -> Iterator[str]:
    """The text without the definitions, aliases and imports that nothing in it reads."""
    tree = syntax.parsed(text)
    reads = {
        id(node): {ast.unparse(part) for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute))}
        for node in tree.body
    }
    named = {id(node): names for node in tree.body if (names := _named(node))}
    needed: set[str] = set()
    left = [node for node in tree.body if id(node) not in named]
    while left:
        needed |= set[str]().union(*(reads[id(node)] for node in left))
        left = [node for node in tree.body if (names := named.get(id(node))) and names & needed]
        for node in left:
            del named[id(node)]
    if named:
        tree.body = [node for node in tree.body if id(node) not in named]
        yield ast.unparse(tree)


def _named(node: ast.stmt) -> set[str]:
    """The names that a statement binds without side effects; none for other statements."""
    if isinstance(node, ast.Import):
        return {alias.asname or alias.name for alias in node.names}
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name not in {*KEPT, "calls", "run"}:
        return set() if node.decorator_list else {node.name}
    if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute, ast.Constant)):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()


def _with(tree: ast.Module, part: slice, instead: list[Any], *blocks: list[Any]) -> str:
    """The text with a part of some lists of the tree replaced; the tree stays as it is."""
    kept = [list(block) for block in blocks]
    for block in blocks:
        block[part] = instead
    text = ast.unparse(tree)
    for block, whole in zip(blocks, kept, strict=True):
        block[:] = whole
    return text


def shorter(text: str) -> Iterator[str]:
    """Texts in which a helper has its shorter form."""
    tree = syntax.parsed(text)
    for at, node in enumerate(tree.body):
        if isinstance(node, ast.FunctionDef) and node.name in HELPERS:
            yield _with(tree, slice(at, at + 1), syntax.parsed(HELPERS[node.name]).body, tree.body)


def _deletions(text: str) -> Iterator[str]:
    """Texts without a run of statements: halves of a block first, then shorter ones, from the end."""
    tree = syntax.parsed(text)
    for block in _blocks(tree):
        size = length = len(block)
        while size:
            for first in range(length - size, -1, -size):
                gone = block[first : first + size]
                main = block is tree.body and any(isinstance(statement, (ast.If, ast.Expr)) for statement in gone)
                if not main and not any(_fixed(statement) for statement in gone):
                    yield _with(tree, slice(first, first + size), [] if length > size else [ast.Pass()], block)
            size //= 2


def _bodies(text: str) -> Iterator[str]:
    """Texts with a statement replaced by its body, or by its `else` part."""
    tree = syntax.parsed(text)
    for block in _blocks(tree)[1:]:
        for at, node in enumerate(block):
            for name in ("body", "orelse"):
                if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) and (body := getattr(node, name, None)):
                    yield _with(tree, slice(at, at + 1), body, block)


def _elements(text: str) -> Iterator[str]:
    """Texts without one element of a returned tuple or list."""
    tree = syntax.parsed(text)
    for returned in (node.value for block in _blocks(tree) for node in block if isinstance(node, ast.Return)):
        if isinstance(returned, (ast.Tuple, ast.List)):
            for place in reversed(range(len(returned.elts))):
                yield _with(tree, slice(place, place + 1), [], returned.elts)


def operands(text: str) -> Iterator[str]:
    """Texts with a call or an operation replaced by one of its operands, outermost first."""
    tree = syntax.parsed(text)
    simple = [node for block in _blocks(tree)[1:] for node in block if not getattr(node, "body", None)]
    statements = [node for node in simple if not _fixed(node) and "T[" not in ast.unparse(node)]
    for parent in [part for statement in statements for part in ast.walk(statement)]:
        for name, held in ast.iter_fields(parent):
            block: list[Any] = [*held] if isinstance(held, list) else [held]
            for at, node in enumerate(block):
                given: list[Any] = [getattr(node, "left", None), getattr(node, "right", None)]
                if isinstance(node, ast.Call):
                    given = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
                for operand in given:
                    if isinstance(operand, ast.expr) and not isinstance(operand, (ast.Constant, ast.Starred)):
                        instead: list[Any] = [*block[:at], operand, *block[at + 1 :]]
                        setattr(parent, name, instead if isinstance(held, list) else operand)
                        candidate = ast.unparse(tree)
                        setattr(parent, name, held)
                        yield candidate


def _halves(text: str) -> Iterator[str]:
    """Texts with a saved tensor half as long in its first or second dimension, wherever it is read."""
    for dim in range(2):
        for name in dict.fromkeys(re.findall(r"T\['(\w+)'\]", text)):
            part = f".narrow({dim}, 0, (T['{name}'].shape[{dim}] + 1) // 2).clone()"
            whole = f"T['{name}']"
            if part not in text:
                yield re.sub(re.escape(whole) + r"(?!\.)", lambda _, to=whole + part: to, text)


def scripts(text: str, kind: str, said: str) -> Iterator[str]:
    """Plain scripts for a repro that fails this way, the plainest first. `said`: the difference as the repro printed
    it."""
    trees = [Unannotated().visit(syntax.parsed(text)), syntax.parsed(text)]  # an operator's schema may be in them
    if not any(getattr(node, "annotation", None) or getattr(node, "returns", None) for node in ast.walk(trees[1])):
        del trees[1]
    constants: dict[str, Any] = {}
    for node in trees[0].body:
        if isinstance(node, ast.Assign) and (name := ast.unparse(node.targets[0])) in _CONSTANTS - {"HERE"}:
            constants[name] = ast.literal_eval(node.value)
    calls = next(node for node in trees[0].body if isinstance(node, ast.FunctionDef) and node.name == "calls")
    whole = ast.unparse(calls)
    for source in dict.fromkeys((whole.replace("._wrapped_call_impl", ""), whole)):  # what a compiled module calls
        body, last = _straight(source)
        for lines, ending in _endings(kind, said, last, constants) if last is not None else ():
            yield from (_script(tree, [*body, *lines], ending, constants) for tree in trees)


def replaced(script: str, name: str, tensor: torch.Tensor) -> Iterator[str]:
    """Scripts with a tensor of the file beside written into the text: as ones, zeros, random numbers, then by its
    values."""
    read = re.escape(f"T[{name!r}]")
    half = re.search(rf"{read}\.narrow\((\d), 0, \({read}\.shape\[\d\] \+ 1\) // 2\)\.clone\(\)", script)
    value: Any = tensor.detach()
    if half is not None:
        value = value.narrow(int(half[1]), 0, (value.shape[int(half[1])] + 1) // 2)
    size = ", ".join(map(str, value.shape)) or "()"
    kind = f", dtype={value.dtype}" if value.dtype != torch.float32 else ""
    kind += f", device={str(value.device)!r}" if value.device.type != "cpu" else ""
    forms = [f"torch.ones({size}{kind})", f"torch.zeros({size}{kind})"]
    forms += [f"torch.randn({size}{kind})"] if value.is_floating_point() or value.is_complex() else []
    if value.numel() <= SMALL:
        numbers = re.sub(r"\b(nan|inf)\b", r"float('\1')", str(value.tolist()))
        forms.append(f"torch.tensor({numbers}, dtype={value.dtype}{kind.partition(', dtype')[0]})")
    if isinstance(tensor, torch.nn.Parameter):
        forms = [f"torch.nn.Parameter({form}{'' if tensor.requires_grad else ', False'})" for form in forms]
    for form in forms:
        reduced = re.sub(re.escape(half[0]) if half is not None else read, lambda _, form=form: form, script)
        if not re.search(r"\bT\[", reduced):
            reduced = reduced.replace(f"    {_LOAD}\n", "").replace("import pathlib\n", "")
        yield reduced


def entries(text: str) -> Iterator[str]:
    """Scripts without some entries of a dictionary: halves of it first."""
    tree = syntax.parsed(text)
    for held in _inside(tree, ast.Dict):
        size = length = len(held.keys)
        while size:
            for first in range(0, length, size):
                yield _with(tree, slice(first, first + size), [], held.keys, held.values)
            size //= 2


def constructors(text: str) -> Iterator[str]:
    """Scripts in which a module of torch's is made by its class, with weights of its own, in place of `rebuilt`."""
    for number, call in enumerate(_inside(syntax.parsed(text), ast.Call)):
        name = ast.unparse(call.args[0]) if ast.unparse(call.func) == "rebuilt" else ""
        if not name.startswith("torch.nn."):
            continue
        tree = syntax.parsed(text)
        call = _inside(tree, ast.Call)[number]
        state: Any = call.args[1]
        held: dict[str, Any] = dict(zip(map(ast.unparse, state.keys), state.values, strict=True))
        weights = held.get("'_parameters'")
        if isinstance(weights, ast.Dict) and "'bias'" not in map(ast.unparse, filter(None, weights.keys)):
            held["'bias'"] = ast.Constant(False)
        kind: Any = getattr(torch.nn, name.removeprefix("torch.nn."), None)
        wanted: Any = inspect.signature(kind).parameters if isinstance(kind, type) else {}
        call.func, call.args = call.args[0], []
        for word, parameter in wanted.items():
            given = held.get(repr(word))
            if given is not None and ast.unparse(given) != repr(parameter.default):
                call.keywords.append(ast.keyword(word, given))
        yield ast.unparse(tree)
        if torch.cuda.is_available():
            on_cpu = ast.Call(call.func, [], call.keywords)
            call.func, call.keywords = ast.Attribute(on_cpu, "cuda"), []
            yield ast.unparse(tree)


def _inside(tree: ast.Module, kind: type[Any]) -> list[Any]:
    """The parts of one kind in `run` of a script."""
    runs = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "run"]
    return [part for node in runs for part in ast.walk(node) if isinstance(part, kind)]


def _straight(calls: str) -> tuple[list[ast.stmt], ast.Tuple | None]:
    """The statements of `calls`, with a call for each `yield`; and the tuple of the last `yield`."""
    yields: list[ast.Tuple] = []
    known: dict[str, str] = {}

    class Calls(ast.NodeTransformer):
        def visit_Expr(self, node: ast.Expr) -> Any:
            handed = node.value.value if isinstance(node.value, ast.Yield) else None
            if not isinstance(handed, ast.Tuple):
                return node
            yields.append(handed)
            function, args, kwargs = (ast.unparse(part) for part in handed.elts[:3])
            name = known.get(function, f"call{len(known) or ''}")
            lines = [] if function in known else [f"{name} = compile({function})"]
            known[function] = name
            if isinstance(handed.elts[1], ast.Tuple):
                words = [ast.unparse(part) for part in handed.elts[1].elts]
            else:
                words = [f"*{args}"]
            words += [f"**{kwargs}"] if kwargs != "{}" else []
            return syntax.parsed("\n".join([*lines, f"result = {name}({', '.join(words)})"])).body

    inner: Any = Calls().visit(syntax.parsed(calls)).body[0]
    own = [node for node in inner.body if not ast.unparse(node).startswith("T = ")]
    return own, yields[-1] if yields else None


def _endings(
    kind: str, said: str, last: ast.Tuple, constants: Mapping[str, Any]
) -> Iterator[tuple[list[ast.stmt], str]]:
    """Pairs of statements that return the differing value, and the code that compares it; none where the value has no
    expression."""
    if kind.startswith("error raises "):
        yield [], _RAISES.replace("NAME", kind.removeprefix("error raises "))
    if kind == "missing error":
        yield [], _MISSING
    match = re.match(r"(gradient of )?(.*?)( afterwards)?( requires grad)? is (?:off by|.*, eager's is )", said)
    if match is None or kind not in ("values", "metadata"):
        return
    gradient, name, _, requires = match.groups()
    value = name if name.startswith("result") else _of_state(name, last)
    numbers = kind == "values" and "is off by" in said and not requires
    ending = _NUMBERS.replace("TOLERANCE", repr(constants.get("TOLERANCE") or 0.0)) if numbers else _EQUAL
    lines = list[list[str]]()
    if gradient:
        given: Any = last.elts[4]
        keys, arrived = ([ast.unparse(part) for part in parts] for parts in (given.keys, given.values))
        if len(keys) == 1:
            lines.append([f"return torch.autograd.grad(result, {value}, {arrived[0]})[0]"])
            lines.append([f"return torch.autograd.grad(result[{keys[0]}], {value}, {arrived[0]})[0]"])
        into = f"[roots[at] for at in ({', '.join(keys)},)]"
        lines.append([_ROOTS, f"return torch.autograd.grad({into}, {value}, [{', '.join(arrived)}])[0]"])
    elif kind == "metadata":
        forms = (f"{value}.dtype", f"tuple({value}.shape)", f"{value}.stride()", f"{value}.device")
        lines += [[f"return {form}"] for form in forms]
    else:
        lines.append([f"return {value}{'.requires_grad' if requires else ''}"])
    for statements in lines:
        try:
            yield list(syntax.parsed("\n".join(statements)).body), ending
        except (SyntaxError, ValueError):  # a name that is no expression
            return


def _of_state(name: str, last: ast.Tuple) -> str:
    """An expression for a part of the state that a call begins with, `['x'].weight` say; `['it']` is the function
    itself."""
    match = re.fullmatch(r"\['(\w+)'\](.*)", name, re.DOTALL)
    if match is None:
        return "?"
    state: Any = last.elts[3]
    function = last.elts[0]
    held = dict(zip(map(ast.unparse, state.body.keys), map(ast.unparse, state.body.values), strict=True))
    own = ast.unparse(function.value if isinstance(function, ast.Attribute) else function)  # a method's: its object's
    rest = re.sub(r"\._(?:modules|parameters|buffers)\['(\w+)'\]", r".\1", match[2])
    return held.get(repr(match[1]), own) + re.sub(r"\.(\d+)\b", r"[\1]", rest)


def _script(tree: ast.Module, body: list[ast.stmt], ending: str, constants: Mapping[str, Any]) -> str:
    lines = "\n".join(map(ast.unparse, body))
    inner = textwrap.indent(f"{_LOAD}\n{lines}" if re.search(r"\bT\[", lines) else lines, "    ")
    imports, definitions = {"import sys", "import torch"}, dict[str, str]()
    for node in tree.body[1:]:
        targets = [ast.unparse(target) for target in getattr(node, "targets", [])]
        name = getattr(node, "name", targets[0] if targets else "")
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imports.add(ast.unparse(node))
        elif name not in {*KEPT, "calls"} | _CONSTANTS | SET and not isinstance(node, ast.If):
            definitions[name or ast.unparse(node)] = ast.unparse(node)
    for helper in HELPERS:
        if f"{helper}(" not in "".join([inner, *(text for name, text in definitions.items() if name != helper)]):
            definitions.pop(helper, None)
    imports |= {"import pathlib"} if _LOAD in inner else set()
    imports |= {"import traceback"} if "traceback." in ending else set()
    used = "\n".join([*definitions.values(), inner, ending, "sys torch annotations"])
    words = {f"backend={constants['BACKEND']!r}": True}
    words |= {f"{name}={value!r}": value not in (None, False) for name, value in constants["COMPILE"].items()}
    return SCRIPT.format(
        head=(ast.get_docstring(tree) or "").partition("\nExit code ")[0],
        imports="\n".join(sorted(line for line in imports if line.split()[-1].partition(".")[0] in used)),
        definitions="\n\n\n".join(definitions.values()),
        body=inner,
        seed=SEED,
        options=", ".join(word for word, wanted in words.items() if wanted),
        ending=ending,
    )


_PROPOSALS = (unused, shorter, constructors, _deletions, _bodies, _elements, operands, entries, _halves)
