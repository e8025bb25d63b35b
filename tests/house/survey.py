"""How many mechanisms do the same thing, counted by rules over the source: what is one thing should be counted once.

    python -m tests.house.survey                      # this checkout
    python -m tests.house.survey OLD/graphdbg --brief # any other: the figures alone

Every rule looks at what the code does (constructs a fork server, sets an attribute and puts it back, appends a unit),
not at how it is called; the text of a rule stands above its findings. Reads source, imports nothing of the checkout.
Tests are not counted.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from .source_tree import ROOMS, nodes, parsed

_UNIT = re.compile(r"(?<![A-Za-z])(KiB|MiB|GiB|kB|MB|GB)(?![A-Za-z])")
_PRIVATE_TEXT = re.compile(r"^torch(\.\w+)*\._[a-z]\w*(\.\w+)*$")
_TASK = re.compile(r"^[A-Za-z_][\w.]*:\w+$")
_PYTHON = re.compile(
    r"(^|\n)\s*(import torch\b[^\n]*\n|class \w*.*\(torch\.nn\.Module\)|(async )?def \w*.*\(.*\).*:)|^[ "
    r"{}]*def (forward|f)\("
)
_WORD = re.compile(r"@[A-Z][A-Z_]*(:[A-Z]+)?@")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class File:
    """One module of the product."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def tree(self) -> ast.Module:
        return parsed(self.path)

    @property
    def nodes(self) -> list[ast.AST]:
        return nodes(self.path)

    @cached_property
    def prose(self) -> set[int]:
        """Ids of the strings that stand alone as statements: docstrings."""
        return {id(n.value) for n in self.nodes if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}

    def functions(self, *, inner: bool = False) -> Iterator[tuple[str, Function]]:
        """The module's functions and methods with their names, each with all that is defined inside it."""
        stack: list[tuple[str, ast.AST]] = [("", self.tree)]
        while stack:
            prefix, node = stack.pop()
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield prefix + child.name, child
                    if inner:
                        stack.append((f"{prefix}{child.name}.", child))
                elif isinstance(child, ast.ClassDef):
                    stack.append((f"{prefix}{child.name}.", child))
                elif isinstance(child, ast.stmt):
                    stack.append((prefix, child))

    def classes(self) -> Iterator[ast.ClassDef]:
        return (node for node in self.nodes if isinstance(node, ast.ClassDef))

    def texts(self, within: ast.AST | None = None) -> Iterator[ast.Constant]:
        """String constants that are no docstrings."""
        for node in self.nodes if within is None else ast.walk(within):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in self.prose:
                yield node


def files(root: Path) -> list[File]:
    """The product's modules: the rooms and the modules at the root."""
    result = [path for room in ROOMS for path in (root / room).rglob("*.py")] + list(root.glob("*.py"))
    return [File(".".join(path.relative_to(root).with_suffix("").parts), path) for path in sorted(result)]


def calls(node: ast.AST, *names: str) -> Iterator[ast.Call]:
    """Calls of a function or method of one of the names."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and _last(call.func) in names:
            yield call


def _last(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def dotted(node: ast.expr) -> str | None:
    """`a.b.c` of an attribute chain on a plain name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def members(node: ast.ClassDef) -> dict[str, str]:
    """What instances of a class hold, by name, with the annotation: fields, properties, and what __init__ sets on
    self."""
    result: dict[str, str] = {}
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            result[item.target.id] = ast.unparse(item.annotation)
        if isinstance(item, ast.FunctionDef):
            if any(_last(d) in ("property", "cached_property") for d in item.decorator_list):
                result[item.name] = ast.unparse(item.returns) if item.returns else ""
            if item.name == "__init__":
                result.update(_set_on_self(item))
    return result


def _set_on_self(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    given = {a.arg: ast.unparse(a.annotation) for a in [*function.args.args, *function.args.kwonlyargs] if a.annotation}
    for node in ast.walk(function):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(part, ast.Attribute) and dotted(part) == f"self.{part.attr}":
                    annotation = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
                    yield part.attr, annotation or given.get(ast.unparse(node.value) if node.value else "", "")


# -- the rules
# -----------------------------------------------------------------------------------------------------------------

_COLLECTION = re.compile(r"^(?:list|dict|tuple|Sequence|Mapping|Iterable|set|frozenset)\[(.*)\]$", re.IGNORECASE)


def graphs(every: list[File]) -> Iterator[str]:
    """Representations of a graph: a class that holds a collection of node-like things (a class with `name` and two of
    `op`, `target`, `args`, `inputs`, `users`), or three parallel columns or more of what nodes have (`name`, `op`,
    `target`, `inputs`, `users`, `dtype`, `shape`, `values`, in the plural too); and each file form of a graph that a
    constant names."""
    held = {(file.name, node.name): members(node) for file in every for node in file.classes()}
    node_like = {
        key
        for key, having in held.items()
        if having.get("name") == "str"
        and sum(word in having for word in ("op", "target", "args", "inputs", "users")) >= 2
    }
    for file in every:
        for node in file.classes():
            having = held[file.name, node.name]
            inside = {
                word for kind in having.values() if (m := _COLLECTION.match(kind)) for word in re.findall(r"\w+", m[1])
            }
            columns = [
                name for name, kind in having.items() if kind.startswith("list") and name.rstrip("s") in _COLUMNS
            ]
            if len(columns) >= 3 or any(_home(file, word) in node_like for word in inside):
                yield f"{file.name}.{node.name}"
        for item in file.tree.body:
            held_text = (
                str(item.value.value) if isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant) else ""
            )
            if isinstance(item, ast.Assign) and re.fullmatch(r"graph\.(json|py)|table\.msgpack", held_text):
                yield f"{file.name}: {held_text}"


_COLUMNS = ("name", "op", "target", "input", "user", "dtype", "shape", "value")


def _home(file: File, name: str) -> tuple[str, str]:
    """The module and name of a class that a module names: its own, or what it imports of ours."""
    for node in file.nodes:
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    package = file.name.split(".")[: -node.level]
                    return ".".join([*package, node.module]), alias.name
    return file.name, name


def cases(every: list[File]) -> Iterator[str]:
    """Representations of a case: a class that holds both a graph (a member `gm`, `graph`, `module`, `record`, `saved`
    of the type GraphModule, GraphRecord, SavedGraph, Any or none) and its inputs (`inputs`, `fakes`, `values`,
    `inputs_record`)."""
    for file in every:
        for node in file.classes():
            held = members(node)
            graph = [n for n in ("gm", "graph", "module", "record", "saved") if n in held and _is_graph(held[n])]
            if graph and any(name in held for name in ("inputs", "fakes", "values", "inputs_record")):
                yield f"{file.name}.{node.name}"


def _is_graph(annotation: str) -> bool:
    return not annotation or bool(re.search(r"\b(GraphModule|GraphRecord|SavedGraph|Any)\b", annotation))


_RESULT_WORDS = (
    "verdict",
    "verdicts",
    "ok",
    "status",
    "signature",
    "failure",
    "error",
    "answer",
    "outcome",
    "verified",
    "rate",
    "report",
    "first_failing",
    "fault",
    "kind",
    "layer",
    "reason",
)


def results(every: list[File]) -> Iterator[str]:
    """Representations of a result: a class that holds two or more of how something ended: `verdict`, `verdicts`, `ok`,
    `status`, `signature`, `failure`, `error`, `answer`, `outcome`, `verified`, `rate`, `report`, `first_failing`,
    `fault`, `layer`, `reason`."""
    for file in every:
        if file.name.startswith("tui."):
            continue
        for node in file.classes():
            held = members(node)
            if sum(word in held for word in _RESULT_WORDS if word != "kind") >= 2:
                yield f"{file.name}.{node.name}"


def askers(every: list[File]) -> Iterator[str]:
    """Askers: modules outside isolation/ that hand a task ("module:function", or a constant of capitals) to
    `X.call(...)` or `X.submit(...)` of a server themselves. (The one `ask` lies inside isolation/.)"""
    for file in every:
        if "isolation" in file.name.split("."):
            continue
        for call in calls(file.tree, "call", "submit"):
            if isinstance(call.func, ast.Attribute) and call.args and _is_task(call.args[0], file):
                yield file.name
                break


def _is_task(node: ast.expr, file: File) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and bool(_TASK.match(node.value))
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.Constant) and str(part.value).startswith(":") for part in node.values)
    if isinstance(node, ast.Name) and not node.id.isupper():  # a parameter that is handed on
        return any(function.args.args and node.id in ("task", "function") for _, function in file.functions())
    return isinstance(node, ast.Name | ast.Attribute) and _last(node).isupper()


def starts(every: list[File]) -> Iterator[str]:
    """Places that start a fork server: calls of `ForkServer(...)`."""
    for file in every:
        for call in calls(file.tree, "ForkServer"):
            yield f"{file.name}:{call.lineno}"


def servers(every: list[File]) -> Iterator[str]:
    """Fork servers: modules that fork more than once: os.fork() in a loop, or in a method of a class that reads
    requests."""
    for file in every:
        loops = [node for node in file.nodes if isinstance(node, ast.While | ast.For)]
        in_loop = any(dotted(call.func) == "os.fork" for loop in loops for call in calls(loop, "fork"))
        in_class = any(dotted(call.func) == "os.fork" for node in file.classes() for call in calls(node, "fork"))
        if in_loop or in_class:
            yield file.name


def printers(every: list[File]) -> Iterator[str]:
    """Printers of Python: modules that hold Python source in string constants outside docstrings: a line `import torch`
    and more, the head of a function, or the head of a torch.nn.Module. The modules of one package `program` count as
    one. No printer: what is looked for in a text (`in`, `partition`, ...), what is parsed at once, and a script of ours
    that a child runs with `-c`."""
    for file in every:
        away = _not_printed(file)
        held = [text for text in file.texts() if _PYTHON.search(text.value) and not _is_regex(file, text)]
        held += [
            node
            for node in file.nodes
            if isinstance(node, ast.JoinedStr)
            and node.values
            and isinstance(node.values[0], ast.Constant)
            and re.match(r"\s*(class |def )", str(node.values[0].value))
        ]
        if any(id(node) not in away for node in held):
            package, inside, _ = file.name.partition(".program.")
            yield f"{package}.program" if inside else file.name


def _not_printed(file: File) -> set[int]:
    """Ids of texts that are looked for, parsed, or run with `-c`."""
    nodes = file.nodes
    looking = ("end_of", "find", "index", "partition", "rpartition", "split", "startswith", "endswith", "parse")
    places: list[ast.AST] = [node for node in nodes if isinstance(node, ast.Compare)]
    places += [argument for call in calls(file.tree, *looking) for argument in call.args]
    lists = [node.elts for node in nodes if isinstance(node, ast.List)]
    scripts = {
        ast.unparse(script)
        for elements in lists
        for flag, script in pairwise(elements)
        if isinstance(flag, ast.Constant) and flag.value == "-c"
    }
    for function in [node for node in nodes if isinstance(node, ast.FunctionDef)]:  # one that runs its own parameter so
        at = [place for place, item in enumerate(function.args.args) if item.arg in scripts]
        scripts |= {ast.unparse(call.args[place]) for place in at for call in calls(file.tree, function.name)}
    named = scripts | {place.id for place in places if isinstance(place, ast.Name)}
    places += [n.value for n in nodes if isinstance(n, ast.Assign) and {ast.unparse(t) for t in n.targets} & named]
    return {id(inner) for place in places for inner in ast.walk(place)}


def templates(every: list[File]) -> Iterator[str]:
    """Templates: modules whose strings hold @WORDS@ to be replaced, with the number of words."""
    for file in every:
        words = [word for text in file.texts() for word in _WORD.findall(text.value)]
        if words:
            yield f"{file.name} ({len(words)})"


def _is_regex(file: File, text: ast.Constant) -> bool:
    return any(
        text is argument for call in calls(file.tree, "compile", "sub", "search", "match") for argument in call.args
    )


def patchers(every: list[File]) -> Iterator[str]:
    """Patchers of what is not ours: modules that replace an attribute of torch or Triton and put it back. By name:
    setattr of one owner and name in a function and again in its `finally`, as a callback, or for (owner, name,
    original) that was kept. Plainly: an attribute of something imported from torch, Triton or a table of their names,
    assigned and assigned again in a `finally`; public settings (torch.backends) do not count."""
    for file in every:
        kept = {ast.unparse(node.elts[0]) for node in file.nodes if isinstance(node, ast.Tuple) and len(node.elts) >= 3}
        theirs = _not_ours(file)
        result: list[str] = []
        for _, function in file.functions():
            last = {
                id(n) for t in ast.walk(function) if isinstance(t, ast.Try) for s in t.finalbody for n in ast.walk(s)
            }
            last |= {id(n) for c in calls(function, "callback") for n in ast.walk(c)}
            named = [
                (c, ast.unparse(c.args[0]), ast.unparse(c.args[1]))
                for c in calls(function, "setattr")
                if len(c.args) == 3
            ]
            named += [
                (c, *map(ast.unparse, c.args[1:3]))
                for c in calls(function, "callback")
                if c.args and _last(c.args[0]) == "setattr"
            ]
            again = {(owner, name) for call, owner, name in named if id(call) in last}
            result += [
                f"{owner}.{name}"
                for call, owner, name in named
                if (owner, name) in again or (owner == "owner" and owner in kept)
            ]
            result += [
                f"{owner}.{name}"
                for owner, name in _put_back(function)
                if owner.split(".")[0] in theirs and "backends" not in owner
            ]
        if result:
            yield f"{file.name} ({', '.join(dict.fromkeys(result))})"


def _not_ours(file: File) -> set[str]:
    """Names in a module that stand for something of torch or Triton, imported anywhere in it."""
    names: set[str] = set()
    for node in file.nodes:
        if isinstance(node, ast.Import):
            names |= {
                (alias.asname or alias.name).split(".")[0]
                for alias in node.names
                if alias.name.split(".")[0] in ("torch", "triton")
            }
        if isinstance(node, ast.ImportFrom):
            table = any(part in ("_torch", "_triton", "torch_private") for part in (node.module or "").split("."))
            if table or (node.level == 0 and (node.module or "").split(".")[0] in ("torch", "triton")):
                names |= {alias.asname or alias.name for alias in node.names}
            names |= {
                alias.asname or alias.name
                for alias in node.names
                if alias.name in ("_torch", "_triton", "torch_private")
            }
    return names


def _put_back(function: Function) -> Iterator[tuple[str, str]]:
    """Plain attributes of other objects that a function assigns and assigns again in a `finally`."""
    again = {
        id(node)
        for block in ast.walk(function)
        if isinstance(block, ast.Try)
        for last in block.finalbody
        for node in ast.walk(last)
    }
    first: set[str] = set()
    for node in ast.walk(function):
        for target in _attributes_set(node):
            if id(node) not in again:
                first.add(ast.unparse(target))
    for node in ast.walk(function):
        for target in _attributes_set(node) if id(node) in again else ():
            if ast.unparse(target) in first:
                yield ast.unparse(target.value), target.attr


def _attributes_set(node: ast.AST) -> Iterator[ast.Attribute]:
    for target in node.targets if isinstance(node, ast.Assign) else ():
        for part in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(part, ast.Attribute) and (dotted(part) or "").split(".")[0] not in ("self", "cls"):
                yield part


def readers(every: list[File]) -> Iterator[str]:
    """Readers of growing files of lines: functions that read from a place they remember (`seek(x)`, or `os.read` of a
    descriptor they keep) and split what came at newlines, keeping the torn rest."""
    for file in every:
        for name, function in file.functions():
            remembered = any(
                call.args and not isinstance(call.args[0], ast.Constant) for call in calls(function, "seek")
            )
            remembered |= any(
                dotted(call.func) == "os.read" and "self." in ast.unparse(call) for call in calls(function, "read")
            )
            newline = any(isinstance(node, ast.Constant) and node.value in ("\n", b"\n") for node in ast.walk(function))
            newline |= any(True for _ in calls(function, "splitlines"))
            if remembered and newline:
                yield f"{file.name}.{name}"


def formatters(every: list[File]) -> Iterator[str]:
    """Formatters of amounts: functions that write a unit of bytes (kB, KiB, MB, ...) into a text they make, or choose
    one of the prefixes k, M, G; sentences with a fixed number, patterns that read amounts, and help texts do not
    count."""
    for file in every:
        for name, function in file.functions():
            in_calls = {id(a) for call in calls(function, "compile", "option", "argument") for a in ast.walk(call)}
            for node in ast.walk(function):
                pieces = (
                    node.values
                    if isinstance(node, ast.JoinedStr)
                    else node.elts
                    if isinstance(node, ast.Tuple | ast.List)
                    else []
                )
                units = [
                    p
                    for p in pieces
                    if isinstance(p, ast.Constant) and isinstance(p.value, str) and _UNIT.search(p.value)
                ]
                units += [
                    q
                    for p in pieces
                    if isinstance(p, ast.Tuple)
                    for q in p.elts
                    if isinstance(q, ast.Constant) and _UNIT.fullmatch(str(q.value))
                ]
                prefixes = {q.value for p in pieces for q in ast.walk(p) if isinstance(q, ast.Constant)} >= {
                    "k",
                    "M",
                    "G",
                }
                if (
                    (units or prefixes)
                    and id(node) not in in_calls
                    and not isinstance(getattr(node, "ctx", None), ast.Store)
                ):
                    yield f"{file.name}.{name}"
                    break


def ages(every: list[File]) -> Iterator[str]:
    """Formatters of ages: functions that write " ago", or minutes and hours (a division by 60 or 3600) into a text."""
    for file in every:
        for name, function in file.functions():
            ago = any(re.search(r"\bago\b", text.value) for text in file.texts(function))
            divided = any(
                isinstance(node, ast.BinOp)
                and isinstance(node.op, ast.FloorDiv | ast.Div | ast.Mod)
                and ast.unparse(node.right) in ("60", "3600")
                for node in ast.walk(function)
            ) or any(
                ast.unparse(call.args[1]) in ("60", "3600") for call in calls(function, "divmod") if len(call.args) == 2
            )
            if ago or (divided and any(isinstance(node, ast.JoinedStr) for node in ast.walk(function))):
                yield f"{file.name}.{name}"


def private_names(every: list[File]) -> dict[str, set[str]]:
    """Private torch names by the file that holds them: `from torch._x import y`, attributes `torch._x.y`, such strings,
    rows of a table of them."""
    result: dict[str, set[str]] = defaultdict(set)
    for file in every:
        for node in file.nodes:
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.Attribute):
                names = [dotted(node) or ""]
            elif isinstance(node, ast.Call) and _last(node.func) == "Row" and len(node.args) > 2:
                module, words = (getattr(argument, "value", "") for argument in node.args[:2])
                names = [f"{module}.{word.rpartition('=')[2]}" for word in str(words).split()]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in file.prose:
                names = [node.value] if _PRIVATE_TEXT.match(node.value) else []
            result[file.name] |= {name for name in names if _is_private(name)}
    return {name: names for name, names in result.items() if names}


def _is_private(name: str) -> bool:
    parts = name.split(".")
    return (
        parts[0] == "torch"
        and parts[1:2] != ["ops"]
        and any(p.startswith("_") and not p.startswith("__") for p in parts[1:])
    )


def circles(every: list[File]) -> list[list[str]]:
    """Sets of modules that import each other in circles, imports inside functions counted, those for type checkers
    not."""
    names = {file.name.removesuffix(".__init__") for file in every}
    graph = {file.name.removesuffix(".__init__"): _targets(file, names) for file in every}
    return sorted((sorted(part) for part in _strong(graph) if len(part) > 1), key=len, reverse=True)


def _targets(file: File, names: set[str]) -> set[str]:
    is_package = file.name.endswith("__init__")
    package = file.name.split(".")[:-1]
    typing = {
        id(node)
        for block in file.nodes
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    result: set[str] = set()
    for node in file.nodes:
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in typing:
            start = package[: len(package) - node.level + 1] + (node.module.split(".") if node.module else [])
            for alias in node.names:
                whole = ".".join([*start, alias.name])
                result.add(whole if whole in names else ".".join(start))
    return (result & names) - {file.name.removesuffix(".__init__") if is_package else file.name}


def _strong(graph: dict[str, set[str]]) -> list[set[str]]:
    """Strongly connected components (Kosaraju)."""
    order: list[str] = []
    seen: set[str] = set()
    for root in sorted(graph):
        stack: list[tuple[str, Iterator[str]]] = [(root, iter(sorted(graph[root])))] if root not in seen else []
        seen.add(root)
        while stack:
            name, following = stack[-1]
            step = next((item for item in following if item not in seen), None)
            if step is None:
                order.append(stack.pop()[0])
            else:
                seen.add(step)
                stack.append((step, iter(sorted(graph[step]))))
    back: dict[str, set[str]] = defaultdict(set)
    for name, targets in graph.items():
        for target in targets:
            back[target].add(name)
    parts: list[set[str]] = []
    done: set[str] = set()
    for name in reversed(order):
        part, waiting = set[str](), [name]
        while waiting:
            item = waiting.pop()
            if item not in done:
                done.add(item)
                part.add(item)
                waiting.extend(back[item] - done)
        if part:
            parts.append(part)
    return parts


_NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
)


def code_lines(file: File) -> int:
    """Lines with code: no blank lines, no comments, no strings that stand alone (docstrings)."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in file.nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


RULES: dict[str, Callable[[list[File]], Iterable[str]]] = {
    "representations of a graph": graphs,
    "representations of a case": cases,
    "representations of a result": results,
    "askers": askers,
    "places that start a fork server": starts,
    "fork servers": servers,
    "printers": printers,
    "templates with @WORDS@": templates,
    "patchers": patchers,
    "readers of growing JSONL": readers,
    "amount formatters": formatters,
    "age formatters": ages,
}


def main() -> int:
    """Prints every finding with its rule; with --brief the figures alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--brief", action="store_true")
    arguments = parser.parse_args()
    every = files(arguments.root)
    if not every:
        sys.exit(f"{arguments.root} has no rooms: name the root of a checkout")

    def tell(title: str, rule: str | None, items: list[str], count: int | None = None) -> None:
        print(f"{len(items) if count is None else count:6}  {title}")
        if not arguments.brief:
            print(
                *([f"          ({' '.join((rule or '').split())})"] if rule else []),
                *(f"          {item}" for item in items),
                "",
                sep="\n",
            )

    for title, rule in RULES.items():
        tell(title, rule.__doc__, sorted(set(rule(every))))
    private = private_names(every)
    distinct = {name for names in private.values() for name in names}
    rows = [f"{len(names):4}  {name}" for name, names in sorted(private.items(), key=lambda item: -len(item[1]))]
    tell("private torch names", private_names.__doc__, rows, len(distinct))
    tell("modules that hold private torch names", None, [], len(private))
    items = circles(every)
    tell("circles of imports", circles.__doc__, [f"{len(part)}: {' '.join(part)}" for part in items])
    tell("modules in circles", None, [], sum(map(len, items)))
    sizes: dict[str, int] = defaultdict(int)
    for file in every:
        sizes[file.name.split(".")[0] if "." in file.name else "(root)"] += code_lines(file)
    tell(
        "code lines",
        code_lines.__doc__,
        [f"{size:6}  {room}" for room, size in sorted(sizes.items())],
        sum(sizes.values()),
    )
    tell("modules", None, [], len(every))
    return 0


if __name__ == "__main__":
    sys.exit(main())
