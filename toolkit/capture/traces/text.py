"""The text of a printed graph (`print_readable`, the class in an fx_graph_runnable) as the body of a record.

Also: what an fx_graph_runnable says beside its graph: the settings in force, the layout of each input, the hints of
its symbols.

The text is parsed, never run: what it calls is looked up by name when the graph is loaded. A value's layout comes from
the annotation, the user's line from the comment above, what an input or output is for from the comment beside it.

>>> graph = parse('class G(Module):\\n  def forward(self, x: "f32[2][1]cpu"):\\n    y = torch.sin(x)\\n    return (y,)')
>>> [node.target for node in graph.body.nodes]
['x', 'torch.sin', 'output']
"""

from __future__ import annotations

import ast
import builtins
import re
from contextlib import suppress
from dataclasses import dataclass, field
from sys import intern
from typing import Any

from ....dumps import syntax, walk
from ....dumps.allowlist import words
from ....dumps.errors import DamagedError, UnreadableError
from ....dumps.expr import evaluate
from ....dumps.program.inputs import contiguous
from ....dumps.schema import Arg, ConstValue, Dim, GraphBody, NodeRecord, StoredTensor, SymValue, TensorValue, Value
from ....dumps.sidecar import ITEM_BYTES
from ....dumps.wording import counted

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.MatMult: "matmul", ast.LShift: "lshift", ast.RShift: "rshift", ast.BitAnd: "and_",
    ast.BitOr: "or_", ast.BitXor: "xor", ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt",
    ast.GtE: "ge", ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert", ast.Not: "not_",
}  # fmt: skip
_IN_PLACE = {"and_": "iand", "or_": "ior"}
_MEMORY_FORMATS = words("contiguous_format preserve_format channels_last channels_last_3d")
_LAYOUTS = words("strided jagged sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc")
_BOUND_NN = words(
    """
    avg_pool2d avg_pool3d gelu linear log_sigmoid one_hot scaled_dot_product_attention softplus softshrink
    """
)
_BOUND = words(
    """
    adaptive_avg_pool1d avg_pool1d bilinear channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d
    conv_transpose2d conv_transpose3d cosine_similarity hardshrink native_channel_shuffle pairwise_distance pdist
    pixel_shuffle pixel_unshuffle prelu
    """
)
"""Functions of `torch` that torch.nn.functional re-exports as they are; a record names them in torch.nn.functional."""
_KINDS = {"f": "float", "i": "int", "u": "uint", "bf": "bfloat", "c": "complex"}
_TENSOR = re.compile(r"(\w+)\[([^\]]*)\](?:\[([^\]]*)\])?([A-Za-z]+(?::\d+)?)?")
_SYM = re.compile(r"Sym\((.*)\)")
_RELATION = re.compile(r"[<>]|\b(?:Eq|Ne|Lt|Le|Gt|Ge|And|Or|Not|Is\w+)\(|^(?:True|False)$")
_PLACE = re.compile(r"# (?:.* )?File: (.+?):(\d+) in (.+?), code: ?(.*)")
_BESIDE = re.compile(r"^\s*(\w+)\b[^#]*[,\"]\s*# (\w+AOT(?:Input|Output)\(.*\)|None)\s*$")
_SYMBOL = re.compile(r"\b[a-z]{1,8}\d{1,20}\b")
_CLASS = re.compile(r"^(\s*class )<[^>]*>", re.MULTILINE)


@dataclass
class GraphOfTrace:
    """A parsed graph: its body, and the texts that its nodes refer to."""

    body: GraphBody
    strings: list[str] = field(default_factory=list[str])

    @property
    def inputs(self) -> list[NodeRecord]:
        """The placeholders of the graph."""
        return [node for node in self.body.nodes if node.op == "placeholder"]

    @property
    def results(self) -> list[Arg]:
        """The results of the graph."""
        returned = self.body.nodes[-1].args[0]
        several = returned.get("tuple") if isinstance(returned, dict) else returned
        return several if isinstance(several, list) else [returned]


def parsed(text: str, what: str = "its text") -> ast.Module:
    """The syntax tree; raises UnreadableError with the line."""
    try:
        return syntax.parsed(_CLASS.sub(r"\1Graph", text))
    except SyntaxError as error:
        raise DamagedError(what, f"line {error.lineno} is not Python: {(error.text or '').strip()[:80]}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise DamagedError(what, f"it is not Python ({type(error).__name__})") from error


def parse(text: str) -> GraphOfTrace:
    """The graph of the first class with a forward. Raises UnreadableError with the line that cannot be taken."""
    tree, lines = parsed(text), text.splitlines()
    for statement in ast.walk(tree):
        if isinstance(statement, ast.ClassDef) and _forward(statement) is not None:
            graph = GraphOfTrace(GraphBody([]))
            try:
                graph.body = _TextReader(lines, graph.strings).body(statement)
            except RecursionError as error:
                raise DamagedError("its text", "it is nested too deeply") from error
            return graph
    raise DamagedError("its text", "it has no class with a forward: it may be cut off")


def literal(node: ast.expr) -> Arg:
    """A plain value as an argument of a record; raises UnreadableError for anything else."""
    return _TextReader([], []).argument(node)


def value_of(note: ast.expr | None) -> Value | None:
    """The value of an annotation; None where the annotation does not give the whole layout."""
    if not isinstance(note, ast.Constant) or not isinstance(note.value, str):
        return None
    if match := _SYM.fullmatch(note.value):
        kind = "bool" if _RELATION.search(match[1]) else "float" if re.match(r"z\w*\d", match[1]) else "int"
        return SymValue(kind, match[1].replace(" * ", "*").replace(" // ", "//"))
    match = _TENSOR.fullmatch(note.value)
    dtype = _dtype(match[1]) if match else None
    if match is None or dtype is None or match[3] is None:
        return None
    return TensorValue(dtype, dims(match[2]), dims(match[3]), device=intern(match[4] or "cpu"))


def _dtype(short: str) -> str | None:
    if short == "b8":
        return "bool"
    match = re.fullmatch(r"(bf|[fiuc])(\d+)(\w*)", short)
    if match is None:
        return None
    name = f"{_KINDS[match[1]]}{match[2]}" + (f"_{match[3]}" if match[3] else "")
    return name if name in ITEM_BYTES else None


def dims(text: str) -> list[Dim]:
    """Splits sizes at their commas, without those inside parentheses."""
    parts, depth, start = list[str](), 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return [dim(part.strip()) for part in parts if part.strip()]


def dim(text: str) -> Dim:
    """One size: a number, or an expression."""
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text


def saved_name(path: list[str]) -> str:
    """A function's name in a record. `path`: where FX's printed code finds the function, which is where it is bound."""
    match path:
        case ["torch", "_C", "_nn", name] if name in _BOUND_NN:
            return f"torch.nn.functional.{name.replace('log_s', 'logs')}"
        case ["torch", "_C", "_fft" | "_linalg" | "_special" as home, name]:
            return f"torch.{home[1:]}.{name.removeprefix(home[1:] + '_')}"
        case ["torch", name] if name in _BOUND:
            return f"torch.nn.functional.{name}"
        case _:
            return ".".join(path)


def _forward(node: ast.ClassDef) -> ast.FunctionDef | None:
    functions = (each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "forward")
    return next(functions, None)


def dotted(node: ast.expr) -> list[str]:
    """The parts of a dotted name; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


class _TextReader:
    def __init__(self, lines: list[str], strings: list[str]) -> None:
        self.lines, self.strings = lines, strings
        self.nodes: dict[str, NodeRecord] = {}
        self.attrs: dict[str, StoredTensor] = {}
        self.subgraphs: dict[str, GraphBody] = {}
        self.pending: tuple[str, str, list[Arg]] | None = None
        self.places: dict[str, int] = {}
        self.line, self.place = 0, -1

    def body(self, node: ast.ClassDef) -> GraphBody:
        """The graph of a class, and those of the classes in it."""
        for statement in node.body:
            if isinstance(statement, ast.ClassDef) and _forward(statement) is not None:
                self.subgraphs[statement.name] = _TextReader(self.lines, self.strings).body(statement)
        function = _forward(node)
        assert function is not None
        self.line = function.lineno
        arguments = [*function.args.posonlyargs, *function.args.args]
        bound = [each for each in function.body if isinstance(each, ast.AnnAssign) and each.value is None]
        declared = [(getattr(each.target, "id", ""), each.annotation) for each in bound]
        given = declared or [(each.arg, each.annotation) for each in arguments if each.arg != "self"]
        for name, annotation in given:
            self.nodes[name] = NodeRecord(name, "placeholder", name, value=value_of(annotation))
        self._beside(function.lineno, function.body[0].lineno if not bound else bound[-1].lineno)
        for statement in function.body:
            self._statement(statement)
            if isinstance(statement, ast.Return):
                return GraphBody([*self.nodes.values()], attrs=self.attrs, subgraphs=self.subgraphs)
        raise DamagedError("its text", "forward returns nothing: it is cut off")

    def _beside(self, first: int, last: int) -> None:
        for line in self.lines[first - 1 : last]:
            match = _BESIDE.match(line)
            if match and match[1] in self.nodes and match[2] != "None":
                self.nodes[match[1]].meta["desc"] = match[2]

    def _fail(self, node: ast.AST, why: str) -> UnreadableError:
        at = getattr(node, "lineno", 0)
        line = self.lines[at - 1].strip() if 0 < at <= len(self.lines) else ast.unparse(node)
        return DamagedError(f"line {at} of its text", f"{why}: {line[:100]}")

    def _statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.AnnAssign):
            if statement.value is not None:
                self._assign(statement, statement.target, statement.annotation, statement.value)
        elif isinstance(statement, ast.Assign):
            value = statement.value
            dead = isinstance(value, ast.Constant) and value.value is None
            flat = isinstance(value, ast.Call) and dotted(value.func)[-1:] == ["tree_flatten_spec"]
            if not dead and not flat:
                self._assign(statement, statement.targets[0], None, value)
        elif isinstance(statement, ast.AugAssign):
            name, used = _OPERATORS[type(statement.op)], self._reference(statement.target)
            target = f"operator.{_IN_PLACE.get(name, 'i' + name)}"
            self.pending = used, target, [{"node": used}, self.argument(statement.value)]
        elif isinstance(statement, ast.Return):
            self._output(statement)
        elif not isinstance(statement, ast.Pass):
            raise self._fail(statement, "it is not a node of a graph")

    def _assign(self, statement: ast.stmt, target: ast.expr, annotation: ast.expr | None, value: ast.expr) -> None:
        if not isinstance(target, ast.Name):
            raise self._fail(statement, "it sets no variable")
        if isinstance(value, ast.Name):
            used = self._reference(value)
            if self.pending is not None and self.pending[0] == used:
                self._node(statement, NodeRecord(target.id, "call_function", *self.pending[1:]), annotation)
                self.pending = None
                return
            if self.nodes[used].op != "placeholder":
                raise self._fail(statement, "it computes nothing")
            self.nodes = {target.id if name == used else name: node for name, node in self.nodes.items()}
            self.nodes[target.id].name = target.id
            return
        self._node(statement, self._call(target.id, value), annotation)

    def _node(self, statement: ast.stmt, node: NodeRecord, annotation: ast.expr | None) -> None:
        if node.name in self.nodes:
            raise self._fail(statement, f"{node.name} is set twice")
        node.value, node.stack = value_of(annotation), self._stack(statement.lineno)
        if node.op == "get_attr" and node.target not in self.subgraphs:
            if not isinstance(node.value, TensorValue):
                raise self._fail(statement, "it reads something that the graph holds and the text does not")
            self.attrs[node.target] = StoredTensor("", node.value)
        self.nodes[node.name] = node

    def _stack(self, line: int) -> int:
        """The place of the nearest comment above that names the user's line. Nodes come in the order of their lines."""
        for text in self.lines[self.line : line - 1]:
            stripped = text.strip()
            if stripped.startswith("# No stacktrace"):
                self.place = -1
            elif stripped.startswith("#") and (match := _PLACE.match(stripped)):
                frame = f'  File "{match[1]}", line {match[2]}, in {match[3]}\n    {match[4]}\n'
                if frame not in self.places:
                    self.places[frame] = len(self.strings)
                    self.strings.append(frame)
                self.place = self.places[frame]
        self.line = line - 1
        return self.place

    def _call(self, name: str, value: ast.expr) -> NodeRecord:
        if isinstance(value, ast.Call):
            return self._called(name, value)
        if isinstance(value, ast.Subscript):
            return self._operator(name, "getitem", value.value, value.slice)
        if isinstance(value, ast.BinOp):
            return self._operator(name, _OPERATORS[type(value.op)], value.left, value.right)
        if isinstance(value, ast.UnaryOp):
            return self._operator(name, _OPERATORS[type(value.op)], value.operand)
        if isinstance(value, ast.Compare) and len(value.ops) == 1 and type(value.ops[0]) in _OPERATORS:
            return self._operator(name, _OPERATORS[type(value.ops[0])], value.left, value.comparators[0])
        if isinstance(value, ast.Attribute):
            path = dotted(value)
            if path[:1] == ["self"]:
                return NodeRecord(name, "get_attr", ".".join(path[1:]))
            return NodeRecord(name, "call_function", "builtins.getattr", [self.argument(value.value), value.attr])
        raise self._fail(value, "it is not a call")

    def _operator(self, name: str, operator: str, *operands: ast.expr) -> NodeRecord:
        return NodeRecord(name, "call_function", f"operator.{operator}", [*map(self.argument, operands)])

    def _called(self, name: str, call: ast.Call) -> NodeRecord:
        args = [self.argument(arg) for arg in call.args]
        kwargs = {keyword.arg or "": self.argument(keyword.value) for keyword in call.keywords}
        path = dotted(call.func)
        if path[:1] == ["self"]:
            raise self._fail(call, "it calls a module that the text does not hold")
        if path and path[0] not in self.nodes:
            return NodeRecord(name, "call_function", self._function(call.func), args, kwargs)
        if isinstance(call.func, ast.Attribute):
            return NodeRecord(name, "call_method", call.func.attr, [self.argument(call.func.value), *args], kwargs)
        raise self._fail(call, "it calls what has no name")

    def _function(self, node: ast.expr) -> str:
        path = dotted(node)
        if path[:2] == ["torch", "ops"]:
            return ".".join(path[2:])
        if len(path) == 1 and hasattr(builtins, path[0]):
            return f"builtins.{path[0]}"
        if len(path) > 1 and path[0] in ("torch", "math", "operator", "_operator", "builtins", "numpy"):
            return saved_name([path[0].removeprefix("_"), *path[1:]])
        raise self._fail(node, "it calls a function of the program's own")

    def _reference(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name) and node.id in self.nodes:
            return node.id
        raise self._fail(node, f"{ast.unparse(node)[:40]} is set nowhere above")

    def _output(self, statement: ast.Return) -> None:
        value = statement.value
        if isinstance(value, ast.Call) and dotted(value.func)[-1:] == ["tree_unflatten"] and value.args:
            value = value.args[0]
        node = NodeRecord("output", "output", "output", [None if value is None else self.argument(value)])
        lines = self.lines[statement.lineno : statement.end_lineno]
        descriptions = [match[2] for line in lines if (match := _BESIDE.match(line))]
        count = len(value.elts) if isinstance(value, (ast.Tuple, ast.List)) else 1
        if descriptions and len(descriptions) == count:
            node.meta["desc"] = [None if text == "None" else text for text in descriptions]
        self.nodes["output"] = node

    def argument(self, node: ast.expr) -> Arg:
        """An argument in the form of the records."""
        match node:
            case ast.Constant(value=None | bool() | int() | str() | float() | complex()):
                return _constant(node.value)
            case ast.Name(id="Ellipsis") | ast.Constant(value=builtins.Ellipsis):
                return {"ellipsis": True}
            case ast.Name(id="inf" | "nan"):
                return {"float": node.id}
            case ast.Name():
                return {"node": self._reference(node)}
            case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
                return {"float": "-inf"}
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() | complex() as value)):
                return _constant(-value)
            case ast.Tuple():
                return {"tuple": [self.argument(element) for element in node.elts]}
            case ast.List():
                return [self.argument(element) for element in node.elts]
            case ast.Dict():
                pairs = zip(node.keys, node.values, strict=True)
                return {"dict": [[self.argument(key), self.argument(entry)] for key, entry in pairs if key is not None]}
            case ast.Slice():
                parts = (node.lower, node.upper, node.step)
                return {"slice": [None if part is None else self.argument(part) for part in parts]}
            case ast.Call():
                return self._made(node)
            case ast.Attribute():
                return self._torch_value(node)
            case _:
                raise self._fail(node, f"an argument cannot be taken ({ast.unparse(node)[:40]})")

    def _made(self, node: ast.Call) -> Arg:
        path, args = dotted(node.func), [self.argument(argument) for argument in node.args]
        named = {keyword.arg: self.argument(keyword.value) for keyword in node.keywords}
        match path[-1:]:
            case ["device"]:
                kind, index = args[0] if args else named.get("type"), named.get("index")
                return {"device": str(kind) if index is None else f"{kind}:{index}"}
            case ["slice"] if len(path) == 1:
                return {"slice": [None, *args, None] if len(args) == 1 else [*args, None][:3]}
            case ["range"] if len(path) == 1:
                return {"range": [0, *args, 1] if len(args) == 1 else [*args, 1][:3]}
            case ["Size"] if len(args) == 1 and isinstance(args[0], list):
                return {"size": args[0]}
            case _:
                raise self._fail(node, f"an argument cannot be taken ({ast.unparse(node)[:40]})")

    def _torch_value(self, node: ast.Attribute) -> Arg:
        path = dotted(node)
        if path[:2] == ["torch", "ops"]:
            return {"function": ".".join(path[2:])}
        if len(path) == 2 and path[0] == "torch":
            for tag, known in (("dtype", ITEM_BYTES), ("memory_format", _MEMORY_FORMATS), ("layout", _LAYOUTS)):
                if path[1] in known:
                    return {tag: path[1]}
        raise self._fail(node, f"an argument cannot be taken ({ast.unparse(node)[:40]})")


def _constant(value: Any) -> Arg:
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, float) and value - value != 0:
        return {"float": str(value)}
    return value


def symbols_in(body: GraphBody) -> list[str]:
    """The symbols that values of a graph are written with, each once."""
    parts: list[Any] = []
    for node in walk.nodes(body):
        value = node.value
        parts += [*value.shape, *value.stride, value.offset] if isinstance(value, TensorValue) else []
        parts += [value.expr] if isinstance(value, SymValue) else []
    return list(dict.fromkeys(name for part in parts if isinstance(part, str) for name in _SYMBOL.findall(part)))


ROOMS = {"_inductor": "inductor", "_dynamo": "dynamo", "_functorch": "functorch"}
_SYMBOL_NAME = re.compile(r"[a-z]{1,8}\d{1,20}")
OF_REPROS = {"inductor": ("generate_intermediate_hooks",), "dynamo": ("repro_after", "repro_level", "debug_dir_root")}
"""Settings that repro scripts set for their own purposes; they are left out."""


@dataclass
class Runnable:
    """The content of an fx_graph_runnable: its graph as written, without values; settings; layouts of the inputs by
    placeholder name; hints of symbols."""

    graph: GraphOfTrace
    config: dict[str, dict[str, Arg]] = field(default_factory=dict[str, dict[str, Arg]])
    inputs: dict[str, Value] = field(default_factory=dict[str, Value])
    hints: dict[str, int] = field(default_factory=dict[str, int])


def read(text: str) -> Runnable:
    """The content of the script. Raises UnreadableError where it is cut off, or its graph is no Python."""
    tree = parsed(text)
    script = Runnable(parse(text))
    values: list[Value | None] = []
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "load_args":
            values = _inputs(statement, script.hints)
        elif isinstance(statement, ast.Assign):
            _setting(statement, script)
    names = [node.name for node in script.graph.inputs]
    if len(values) != len(names):
        why = f"it takes {counted(len(names), 'input')} and tells of {len(values)}: it may be cut off"
        raise DamagedError("its text", why)
    script.inputs = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    return script


def _setting(statement: ast.Assign, script: Runnable) -> None:
    path, value = dotted(statement.targets[0]), statement.value
    number = value.value if isinstance(value, ast.Constant) else None
    if len(path) == 1 and type(number) is int and _SYMBOL_NAME.fullmatch(path[0]):
        script.hints[path[0]] = number  # s27 = 12
    if path[0:1] != ["torch"] or path[2:3] != ["config"] or path[1] not in ROOMS or len(path) < 4:
        return
    room, name = ROOMS[path[1]], ".".join(path[3:])
    if name in OF_REPROS.get(room, ()):
        return
    with suppress(UnreadableError):  # a function or an object: no setting that has a saved form
        script.config.setdefault(room, {})[name] = literal(value)


def _inputs(function: ast.FunctionDef, hints: dict[str, int]) -> list[Value | None]:
    storages: dict[str, tuple[int, int, str]] = {}
    values: list[Value | None] = []
    for statement in function.body:
        call = statement.value if isinstance(statement, (ast.Assign, ast.Expr)) else None
        if not isinstance(call, ast.Call):
            continue
        kind, named = dotted(call.func)[-1:], {word.arg: word.value for word in call.keywords}
        target = dotted(statement.targets[0]) if isinstance(statement, ast.Assign) else []
        if kind == ["storage"] and len(target) == 1 and len(call.args) > 1:
            device = literal(named["device"]) if "device" in named else {"device": "cpu"}
            place = str(device["device"]) if isinstance(device, dict) else "cpu"
            storages[target[0]] = len(storages), _size(call.args[1], hints), intern(place)
        elif kind == ["tensor"] and len(call.args) > 1 and isinstance(call.args[0], ast.Name):
            values.append(_tensor(call, named, storages[call.args[0].id], hints))
        elif kind == ["symint"]:
            values.append(ConstValue(_size(call.args[0], hints)))
        elif kind:
            values.append(None)
    return values


def _tensor(
    call: ast.Call, named: dict[str | None, ast.expr], storage: tuple[int, int, str], hints: dict[str, int]
) -> TensorValue:
    shape = _sizes(call.args[1], hints)
    given = call.args[2] if len(call.args) > 2 else named.get("stride")
    dtype = literal(named["dtype"]) if "dtype" in named else {"dtype": "float32"}
    said = {name: ast.unparse(named[name]) == "True" for name in ("requires_grad", "is_leaf") if name in named}
    number, size, device = storage
    return TensorValue(
        str(dtype["dtype"]) if isinstance(dtype, dict) else "float32",
        [*shape],
        [*(contiguous(shape) if given is None else _sizes(given, hints))],
        _size(named["storage_offset"], hints) if "storage_offset" in named else 0,
        device,
        requires_grad=said.get("requires_grad", False),
        storage=number,
        storage_bytes=size,
        leaf=said.get("is_leaf", False),
    )


def _sizes(node: ast.expr, hints: dict[str, int]) -> list[int]:
    return [_size(element, hints) for element in node.elts] if isinstance(node, (ast.Tuple, ast.List)) else []


def _size(node: ast.expr, hints: dict[str, int]) -> int:
    """The number that a size expression stands for, by the hints."""
    return int(evaluate(ast.unparse(node), hints))
