"""Checks the structure of a saved graph before it is used: names, references, tags, expressions, tensor names.

FX executes the code it generates from names, so every name that could reach that code is a plain identifier or refused
here. Which *functions* a graph may name is decided by `dumps.live`, which knows torch. Must not change or repair
anything.

>>> from graphdbg.dumps.schema import GraphBody, GraphRecord, NodeRecord
>>> body = GraphBody(nodes=[NodeRecord(name="x y", op="placeholder", target="x")])
>>> check_graph(GraphRecord(format=1, id="0_0/forward", stage="forward", graph=body), "run/graph.json")
Traceback (most recent call last):
...
graphdbg.dumps.errors.RefusedError: cannot read run/graph.json, node 0 'x y': 'x y' is not a plain identifier
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, cast

import msgspec

from . import expr, ids
from .arguments import KINDS
from .arguments.kind import Inside
from .arguments.names import DEVICE, FUNCTION, WORD
from .errors import DamagedError, GraphdbgError, RefusedError, UnreadableError
from .permitted import argument_refusal
from .schema import (
    STAGES,
    Ambient,
    Arg,
    ConstValue,
    GraphBody,
    GraphRecord,
    InputRecord,
    InputsRecord,
    ModuleRecord,
    NodeRecord,
    OpaqueValue,
    SequenceValue,
    StoredTensor,
    SymValue,
    TensorValue,
    Value,
)
from .tensors import HASH
from .walk import plain, tag_of
from .wording import counted

MAX_DEPTH = 50

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PLACEHOLDER = re.compile(r"\*{0,2}[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_DOTTED = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*", re.ASCII)
_PRECISIONS, _THREADS = ("highest", "high", "medium"), 4096
_FLOATS = ("float32", "float64", "float16", "bfloat16")

Path = str
"""The place in the file: "node 3 'add_1', args[1]"."""


def short(value: Any) -> str:
    """The repr of a value for a message, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class Checker:
    """Checks one file; the message of every failure begins with `where`, then the place in the file."""

    short = staticmethod(short)

    def __init__(self, where: str) -> None:
        self.where = where

    def _what(self, place: Path) -> str:
        return f"cannot read {self.where}" + (f", {place}" if place else "")

    def fail(self, place: Path, why: str) -> NoReturn:
        raise DamagedError(self._what(place), why)

    def refuse(self, place: Path, why: str) -> NoReturn:
        raise RefusedError(self._what(place), why)

    def name(
        self, text: str, place: Path, pattern: re.Pattern[str] = _IDENTIFIER, what: str = "a plain identifier"
    ) -> None:
        if len(text) > 2_000 or not pattern.fullmatch(text):
            self.refuse(place, f"{short(text)} is not {what}")
        if pattern is _IDENTIFIER and keyword.iskeyword(text):
            self.refuse(place, f"{text!r} is a word of Python's own")

    def expression(self, text: str, place: Path) -> None:
        try:
            expr.parse(text)
        except RefusedError as error:
            raise type(error)(self._what(place), str(error)) from error
        except GraphdbgError as error:
            raise UnreadableError(self._what(place), str(error)) from error

    # Values

    def dim(self, dim: int | str, place: Path, *, negative: bool = False) -> None:
        if isinstance(dim, str):
            self.expression(dim, place)
        elif dim < 0 and not negative:
            self.fail(place, f"{dim} is negative")

    def tensor(self, value: TensorValue, place: Path, depth: int = 0) -> None:
        self.name(value.dtype, f"{place}, dtype", WORD, "a dtype")
        self.name(value.device, f"{place}, device", DEVICE, "a device")
        self.name(value.layout, f"{place}, layout", WORD, "a layout")
        if value.stride and len(value.stride) != len(value.shape):
            self.fail(place, f"{counted(len(value.shape), 'size')} but {counted(len(value.stride), 'stride')}")
        for dim in value.shape:
            self.dim(dim, f"{place}, shape")
        for dim in value.stride:
            self.dim(dim, f"{place}, stride", negative=True)
        self.dim(value.offset, f"{place}, offset")
        if depth > MAX_DEPTH:
            self.fail(place, f"tensors hold tensors more than {MAX_DEPTH} deep")
        if value.context is not None:
            self.argument(value.context, f"{place}, context", _no_reference)
        for name, part in value.inner.items():
            self.name(name, f"{place}, inner", WORD, "an attribute")
            self.tensor(part, f"{place}, inner {name}", depth + 1)
        if value.base is not None:
            if value.base.base is not None:
                self.fail(place, "its base is a view itself")
            self.tensor(value.base, f"{place}, base", depth + 1)

    def value(self, value: Value | None, place: Path, depth: int = 0) -> None:
        if depth > MAX_DEPTH:
            self.fail(place, f"values are nested more than {MAX_DEPTH} deep")
        if isinstance(value, TensorValue):
            self.tensor(value, place)
        elif isinstance(value, SymValue):
            self.expression(value.expr, f"{place}, expr")
        elif isinstance(value, SequenceValue):
            for index, item in enumerate(value.items):
                self.value(item, f"{place}[{index}]", depth + 1)
        elif isinstance(value, ConstValue):
            self.argument(value.value, place, _no_reference)

    def stored(self, stored: StoredTensor, place: Path) -> None:
        if stored.storage and not HASH.fullmatch(stored.storage):
            self.refuse(place, f"{short(stored.storage)} is not a tensor name (40 hexadecimal digits)")
        self.tensor(stored.value, place)
        for name, part in stored.inner.items():
            self.stored(part, f"{place}, inner {name}")

    # Arguments

    def argument(
        self, arg: Arg, place: Path, reference: Callable[[str], str], attrs: Iterable[str] = (), depth: int = 0
    ) -> None:
        """Checks an encoded argument; `reference` returns what is wrong with a node's name, or ""."""
        if depth > MAX_DEPTH:
            self.fail(place, f"arguments are nested more than {MAX_DEPTH} deep")
        if arg is None or isinstance(arg, (bool, int, float, str)):
            return
        if isinstance(arg, list):
            for index, item in enumerate(cast("list[Any]", arg)):
                self.argument(item, f"{place}[{index}]", reference, attrs, depth + 1)
            return
        if not isinstance(arg, dict) or len(cast("dict[str, Any]", arg)) != 1:
            self.fail(place, f"an object with exactly one tag is wanted, not {short(arg)}")
        tag, body = next(iter(cast("dict[str, Any]", arg).items()))
        if tag not in KINDS:
            self.fail(place, f"{short(tag)} is not a tag of arguments")
        KINDS[tag].check(body, place, self, Inside(reference, attrs, depth + 1))

    def metadata(self, body: Any, place: Path) -> None:
        """Fails where `body` does not decode as a Value."""
        try:
            msgspec.convert(body, Value)
        except msgspec.ValidationError as error:
            self.fail(place, f"{error} in a value")

    def items(self, body: Any, place: Path, count: int | None = None) -> list[Any]:
        if not isinstance(body, list) or (count is not None and len(cast("list[Any]", body)) != count):
            self.fail(place, f"a list{f' of {count}' if count else ''} is wanted, not {short(body)}")
        return cast("list[Any]", body)

    def one_of(self, word: str, place: Path, known: Sequence[str]) -> None:
        """Fails for a word that is not in `known`."""
        if word not in known:
            self.fail(place, f"{short(word)} is none of {', '.join(known)}")

    def mapping(self, args: Mapping[str, Arg], place: Path) -> None:
        """Checks named arguments, which refer to no node: compile kwargs, configs, constructor arguments."""
        for key, arg in args.items():
            self.name(key, f"{place}, {short(key)}", WORD, "a plain name")
            self.argument(arg, f"{place}, {key}", _no_reference)

    def ambient(self, ambient: Ambient) -> None:
        """Checks the global state: devices have the form of a device, dtypes and the precision are known words, the
        number of threads is in range."""
        for device, dtype in ambient.autocast.items():
            self.name(device, "ambient, autocast", DEVICE, "a device")
            self.one_of(dtype, "ambient, autocast", _FLOATS)
        self.one_of(ambient.default_dtype, "ambient, default_dtype", _FLOATS)
        self.one_of(ambient.matmul_precision, "ambient, matmul_precision", _PRECISIONS)
        if not 0 <= (ambient.threads or 0) <= _THREADS:
            self.fail("ambient, threads", f"{ambient.threads} is not a number of threads (0 to {_THREADS})")

    # Graphs

    def body(self, body: GraphBody, strings: int, place: Path, depth: int = 0) -> None:
        if depth > MAX_DEPTH:
            self.fail(place, f"graphs are nested more than {MAX_DEPTH} deep")
        inside = f"{place}, " if place else ""
        for name, stored in body.attrs.items():
            self.name(name, f"{inside}attribute {short(name)}", _DOTTED, "a dotted name")
            self.stored(stored, f"{inside}attribute {name!r}")
        for name, module in body.modules.items():
            self.name(name, f"{inside}module {short(name)}", _DOTTED, "a dotted name")
            self.module(module, f"{inside}module {name!r}")
        for name, subgraph in body.subgraphs.items():
            self.name(name, f"{inside}subgraph {short(name)}", _DOTTED, "a dotted name")
            self.body(subgraph, strings, f"{inside}subgraph {name!r}", depth + 1)
        earlier: set[str] = set()
        everything = {node.name for node in body.nodes}
        for index, node in enumerate(body.nodes):
            self.node(node, body, f"{inside}node {index} {short(node.name)}", strings, earlier, everything)
            earlier.add(node.name)
        for key, arg in body.meta.items():
            self.argument(arg, f"{inside}meta {short(key)}", lambda name: "", body.attrs)
        self.output(body, place)

    def output(self, body: GraphBody, place: Path) -> None:
        outputs = [index for index, node in enumerate(body.nodes) if node.op == "output"]
        if outputs != [len(body.nodes) - 1]:
            why = "it has no output node" if not outputs else "its output is not the last node, or there are several"
            self.fail(place or "graph", why)

    def module(self, module: ModuleRecord, place: Path) -> None:
        self.name(module.type, f"{place}, type", FUNCTION, "a class name")
        self.mapping(module.arguments, f"{place}, arguments")
        for name, stored in module.state.items():
            self.name(name, f"{place}, state {short(name)}", _DOTTED, "a dotted name")
            self.stored(stored, f"{place}, state {name!r}")

    def node(
        self, node: NodeRecord, body: GraphBody, place: Path, strings: int, earlier: set[str], everything: set[str]
    ) -> None:
        self.name(node.name, place)
        if node.name in earlier:
            self.fail(place, "an earlier node has the same name")
        self.target(node, body, place)

        def reference(name: str) -> str:
            if name in earlier:
                return ""
            return f"node {short(name)} comes later" if name in everything else f"there is no node {short(name)}"

        def any_reference(name: str) -> str:
            return "" if name in everything else f"there is no node {short(name)}"

        for index, arg in enumerate(node.args):
            self.argument(arg, f"{place}, args[{index}]", reference, body.attrs)
        for key, arg in node.kwargs.items():
            self.name(key, f"{place}, keyword argument {short(key)}")
            self.argument(arg, f"{place}, {key}", reference, body.attrs)
        for key, arg in node.meta.items():
            self.argument(arg, f"{place}, meta {short(key)}", any_reference, body.attrs)
            if key == "user_visible_output_idxs":
                self.of_the_compiler(f"{place}, meta", key, arg)
        self.value(node.value, f"{place}, value")
        for what, position in (("stack", node.stack), ("module", node.module)):
            if not -1 <= position < strings:
                self.fail(f"{place}, {what}", f"there is no string {position}")

    def of_the_compiler(self, place: Path, name: str, arg: Arg) -> None:
        if why := argument_refusal(name, plain(arg)):
            self.fail(f"{place} {short(name)}", f"{short(plain(arg))}, where {why}")

    def target(self, node: NodeRecord, body: GraphBody, place: Path) -> None:
        place = f"{place}, target"
        if node.op == "placeholder":
            self.name(node.target, place, _PLACEHOLDER)
            self.name(node.target.lstrip("*"), place)
        elif node.op == "call_method":
            self.name(node.target, place)
        elif node.op == "call_function":
            self.name(node.target, place, FUNCTION, "the name of a function")
        elif node.op == "output":
            if node.target != "output":
                self.refuse(place, f"{short(node.target)} is not 'output'")
        else:
            self.name(node.target, place, _DOTTED, "a dotted name")
            there = node.target in body.modules or node.target in body.subgraphs
            what = "module" if node.op == "call_module" else "attribute"
            held = node.target in body.attrs or isinstance(node.value, (OpaqueValue, ConstValue))
            if not there and (what == "module" or not held):
                self.fail(place, f"the graph has no {what} {node.target!r}")

    def inputs(self, inputs: list[InputRecord]) -> None:
        for index, item in enumerate(inputs):
            place = f"input {index} {short(item.name)}"
            self.name(item.name, place)
            self.value(item.value, f"{place}, value")
            if item.stored is not None:
                self.stored(item.stored, f"{place}, stored")


def _no_reference(name: str) -> str:
    return f"node {short(name)} cannot be referred to here"


def check_graph(record: GraphRecord, where: str) -> None:
    """Checks a graph's record. Raises RefusedError for a name that must not reach generated code or the file system,
    UnreadableError for any other fault."""
    checker = Checker(where)
    if record.stage not in STAGES:
        checker.fail("stage", f"{short(record.stage)} is not a stage; there are {', '.join(STAGES)}")
    if not ids.is_id(record.id):
        checker.refuse("id", f"{short(record.id)} is not a graph id")
    for symbol in record.symbols:
        checker.name(symbol.name, f"symbol {short(symbol.name)}")
    for index, guard in enumerate(record.guards):
        checker.expression(guard.expr, f"guard {index}")
        if not -1 <= guard.stack < len(record.strings):
            checker.fail(f"guard {index}, stack", f"there is no string {guard.stack}")
    for index, kernel in enumerate(record.kernels):
        checker.name(kernel.name, f"kernel {index}")
    checker.body(record.graph, len(record.strings), "")
    checker.inputs(record.inputs)
    checker.mapping(record.compile_kwargs, "compile_kwargs")
    for name, arg in record.compile_kwargs.items():
        if tag_of(arg)[0] != "opaque":
            checker.of_the_compiler("compile_kwargs,", name, arg)
    checker.ambient(record.ambient)
    for room, config in record.config.items():
        checker.name(room, "config")
        checker.mapping(config, f"config {short(room)}")


def check_inputs(record: InputsRecord, where: str) -> None:
    """Checks a record of inputs.json; raises as `check_graph` does."""
    checker = Checker(where)
    checker.inputs(record.inputs)
    if record.ambient is not None:
        checker.ambient(record.ambient)
