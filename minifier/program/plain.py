"""The cut repro of a program as a plain script: its calls one after another, and what differs compared in a few lines.

Texts alone, by `ast`. Whether a script shows the failure is for the caller to run; what has no such form has no script.

For example: `next(scripts(text, "values", "result is off by 0.98, relative to its size"))` runs `result = call(x)`
under eager and compiled, and compares both.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ...dumps import syntax

SEED = "torch.manual_seed(0)"
"""Stays in a script, in which tensors may be drawn."""
SMALL = 32
"""So many elements of a tensor stand in the text."""
_JUDGES = {"unsure", "leaves", "left", "everything", "differs", "main", "calls"}
_SETS = {"sys.excepthook", "os.environ['TORCHINDUCTOR_FORCE_DISABLE_CACHES']"}
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
print(f"eager:\\n{eager}\\ncompiled:\\n{actual}")
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


def scripts(text: str, kind: str, said: str) -> Iterator[str]:
    """Plain scripts for a repro that fails this way, the plainest first. `said`: what it printed of the difference."""
    tree = syntax.parsed(text)
    constants: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and (name := ast.unparse(node.targets[0])) in _CONSTANTS - {"HERE"}:
            constants[name] = ast.literal_eval(node.value)
    calls = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "calls")
    whole = ast.unparse(calls)
    for source in dict.fromkeys((whole.replace("._wrapped_call_impl", ""), whole)):  # what a compiled module calls
        body, last = _straight(source)
        for lines, ending in _endings(kind, said, last, constants) if last is not None else ():
            yield _script(tree, [*body, *lines], ending, constants)


def replaced(script: str, name: str, tensor: torch.Tensor) -> Iterator[str]:
    """Scripts in which a tensor stands that lay in the file beside: of ones, drawn, then the values themselves."""
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
        made = re.sub(re.escape(half[0]) if half is not None else read, lambda _, form=form: form, script)
        if not re.search(r"\bT\[", made):
            made = made.replace(f"    {_LOAD}\n", "").replace("import pathlib\n", "")
        yield made


def entries(text: str) -> Iterator[str]:
    """Scripts without some entries of a dictionary: halves of it first."""
    for number, held in enumerate(_inside(text, ast.Dict)):
        size = length = len(held.keys)
        while size:
            for first in range(0, length, size):
                tree = syntax.parsed(text)
                part = _inside(tree, ast.Dict)[number]
                del part.keys[first : first + size], part.values[first : first + size]
                yield ast.unparse(tree)
            size //= 2


def constructors(text: str) -> Iterator[str]:
    """Scripts in which a module of torch's is made by its class, with weights of its own, in place of `rebuilt`."""
    for number, call in enumerate(_inside(text, ast.Call)):
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
            made = ast.Call(call.func, [], call.keywords)
            call.func, call.keywords = ast.Attribute(made, "cuda"), []
            yield ast.unparse(tree)


def _inside(tree: Any, kind: type[Any]) -> list[Any]:
    """The parts of one kind in `run` of a script."""
    body = (syntax.parsed(tree) if isinstance(tree, str) else tree).body
    runs = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == "run"]
    return [part for node in runs for part in ast.walk(node) if isinstance(part, kind)]


def _straight(calls: str) -> tuple[list[ast.stmt], ast.Tuple | None]:
    """The statements of `calls`, with a call for each `yield`; and what the last one hands out."""
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
    """Statements that return what differs, with the comparison; none where it has no expression."""
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
    """An expression for a part of what a call begins with, `['x'].weight` say; `['it']` is the function itself."""
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
        elif name not in _JUDGES | _CONSTANTS | _SETS and not isinstance(node, ast.If):
            definitions[name or ast.unparse(node)] = ast.unparse(node)
    for helper in ("restore", "rebuilt"):
        if f"{helper}(" not in "".join([inner, *(text for name, text in definitions.items() if name != helper)]):
            definitions.pop(helper, None)
    imports |= {"import pathlib"} if _LOAD in inner else set()
    imports |= {"import traceback"} if "traceback." in ending else set()
    used = "\n".join([*definitions.values(), inner, ending, "sys torch"])
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
