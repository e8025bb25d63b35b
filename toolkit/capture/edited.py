# pyright: basic
"""An edited graph.py as a live graph again: its nodes as they are written, named after its variables.

A node keeps the metadata recorded under its name in the original graph; with another operator it keeps source line and
module alone. Its value is computed again, on the fake inputs and with the symbols of that graph. Runs the text, so only
the child of `import` uses it.

For example: `save_edited(edited(Path("graphdbg-variant-1.py"), saved), saved, Path("graphdbg-variant-1"))`.
"""

from __future__ import annotations

import ast
import contextlib
import traceback
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import torch
from torch import fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from ...dumps import live, syntax
from ...dumps.errors import NoGraphError, UsageError
from ...dumps.graph_folder import copy_storages, stored_names, write_graph_folder
from ...dumps.store import SavedGraph
from ...dumps.tensors import TensorStore
from ...dumps.torchside.case import describe
from ...dumps.wording import raised_line
from .. import torch_private as t
from ..live.execution import leaves
from ..live.spec import FULL_STAGES

_VALUES = ("val", "example_value")
_PLACE = ("stack_trace", "nn_module_stack")
_ROOTS = frozenset({"aten", "math", "operator", "torch"})
CALL = "_graphdbg_call"


def edited(source: Path, saved: SavedGraph) -> fx.GraphModule:
    """The graph that the text defines. Raises UsageError with the line of what cannot be run, traced or computed."""
    text = source.read_text(encoding="utf-8", errors="backslashreplace")
    before, fakes, mode = live.fake_module(saved.record, saved.tensors, where=str(saved.path))
    given = dict(zip((node.name for node in before.graph.find_nodes(op="placeholder")), fakes, strict=True))
    full = saved.record.stage in FULL_STAGES
    with _reporting_lines(source, text):
        tree = syntax.parsed(text)
        tracer = _EditedTracer(source, tree, full)
        # the program looks for stored tensors beside its `__file__`
        names = {"__name__": "graph", "__file__": str(saved.program_path), CALL: tracer.call}
        exec(compile(_CallNodes().visit(tree), str(source), "exec"), names)
        if "Graph" not in names:
            raise NoGraphError("the file has no class Graph", "its forward would be the graph")
        module = tracer.module(names["Graph"]())
        if module.graph.output_node().args[0] is None:
            why = "the file may be cut off: the last line of forward returns the outputs"
            raise NoGraphError("forward returns nothing", why)
    wanted = [node.target for node in module.graph.find_nodes(op="placeholder")]
    if unknown := [str(name) for name in wanted if name not in given]:
        raise NoGraphError(f"forward takes {unknown[0]}", f"the graph has no such input; it has {', '.join(given)}")
    _as_recorded(module, before)
    mode.allow_non_fake_inputs = True
    grad = torch.set_grad_enabled(full and saved.record.ambient.grad)
    with grad, t.enable_python_dispatcher(), _reporting_lines(source, text):
        _Valued(module, mode, tracer.lines).propagate_dont_convert_inputs(*(given[name] for name in wanted))
    return module


def save_edited(module: fx.GraphModule, saved: SavedGraph, out: Path) -> int:
    """Writes the case. Its inputs stay as recorded, so that their synthesised values are the same; returns how many
    there are."""
    with TemporaryDirectory() as folder:
        store = TensorStore(Path(folder) / "tensors")
        record = describe(module, like=saved.record, stage=None, compile_kwargs=None, ambient=None, sink=store)
        left = {node.name for node in record.graph.nodes if node.op == "placeholder"}
        record.inputs = [row for row in record.inputs if row.name in left]
        seen = saved.inputs_record
        if seen is not None:
            seen = msgspec.structs.replace(seen, inputs=[row for row in seen.inputs if row.name in left])
            copy_storages(stored_names(None, seen), saved.tensors, store)
        write_graph_folder(out, record, seen, store)
    return len(left)


class _CallNodes(ast.NodeTransformer):
    """Makes a node of every call of a torch function in `forward`: fx by itself records only calls with a traced
    argument."""

    def __init__(self) -> None:
        self.inside = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        self.inside = node.name == "forward"
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        root = node.func
        while isinstance(root, ast.Attribute):
            root = root.value
        if self.inside and root is not node.func and isinstance(root, ast.Name) and root.id in _ROOTS:
            node.args.insert(0, node.func)
            node.func = ast.copy_location(ast.Name(CALL, ast.Load()), node.func)
        return node


class _EditedTracer(fx.Tracer):
    """Keeps the line of each node, and gives it the name of the variable which that line sets."""

    def __init__(self, source: Path, tree: ast.Module, full: bool) -> None:
        super().__init__()
        self.source, self.tree, self.full = source, tree, full
        self.lines: dict[str, int] = {}
        self.held: dict[str, fx.Node] = {}
        self.active = self
        """The tracer that is at work: this one, or that of a graph which a higher-order operator is given."""
        self.variables: dict[int | str, str] = {}
        for statement in ast.walk(tree):
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                if isinstance(statement.value, ast.Attribute):  # weight = self.m_weight
                    self.variables[statement.value.attr] = statement.targets[0].id
                self.variables |= dict.fromkeys(
                    range(statement.lineno, (statement.end_lineno or statement.lineno) + 1), statement.targets[0].id
                )

    def module(self, root: torch.nn.Module) -> fx.GraphModule:
        """Traces the module, after the graphs that it holds for higher-order operators."""
        for name, child in root.named_children():
            if not self.is_leaf_module(child, name) and not isinstance(child, fx.GraphModule):
                self.active = _EditedTracer(self.source, self.tree, self.full)
                setattr(root, name, self.active.module(child))
                self.active = self
        traced = fx.GraphModule(root, self.trace(root))
        named: dict[int, fx.Node] = {}
        for node in traced.graph.nodes:
            if (line := self.lines.get(node.name, 0)) in self.variables and node.op != "output":
                other = named.get(line) or node
                other.name, node.name = node.name, other.name  # the last of several calls in a line sets the variable
                named[line] = node
        traced.recompile()
        return traced

    def call(self, function: Any, *args: Any, **named: Any) -> Any:
        """A node that calls the function; a class (torch.device) is called at once."""
        if self.active is not self:
            return self.active.call(function, *args, **named)
        if isinstance(function, type):
            return function(*args, **named)
        return self.create_proxy("call_function", function, args, named)

    def create_node(
        self, kind: str, target: Any, args: Any, kwargs: Any, name: str | None = None, type_expr: Any = None
    ) -> fx.Node:
        """Makes a node; a tensor that the graph holds gets a single node, however often it is used."""
        line = next((at for frame, at in traceback.walk_stack(None) if frame.f_code.co_filename == str(self.source)), 0)
        if kind == "get_attr":
            if target not in self.held:
                name = self.variables.get(target, target.removeprefix("m_"))
                self.held[target] = super().create_node(kind, target, args, kwargs, name, type_expr)
            return self.held[target]
        if (kind, target) == ("call_method", "size") and len(args) == 2 and not self.full:  # the line of a symbol
            kind, target = "call_function", torch.ops.aten.sym_size.int
        if kind in ("call_function", "call_method", "call_module"):
            name = self.variables.get(line, name)
        node = super().create_node(kind, target, args, kwargs, name, type_expr)
        self.lines[node.name] = line
        return node


class _Valued(FakeTensorProp):
    """Computes the fake value of each node; names the line of the node that fails."""

    def __init__(self, module: fx.GraphModule, mode: Any, lines: dict[str, int]) -> None:
        super().__init__(module, mode)
        self.lines = lines

    def run_node(self, n: fx.Node) -> Any:
        try:
            output = super().run_node(n)
        except Exception as error:
            error.line = self.lines.get(n.name, 0)  # type: ignore[attr-defined]
            raise
        if n.op == "output":
            del n.meta["val"]  # recorded graphs have none there
        elif isinstance(output, torch.Tensor) and output.requires_grad:  # FakeTensorProp keeps a detached one
            n.meta["val"].requires_grad_()
        return output


def _as_recorded(module: fx.GraphModule, before: fx.GraphModule) -> None:
    """Copies the recorded metadata to nodes that are still there, and to the output where it returns as many values."""
    known = {node.name: node for node in before.graph.nodes}
    for node in module.graph.nodes:
        was = known.get(node.name)
        if was is None or was.op != node.op:
            continue
        if node.op == "get_attr" and "." not in was.target and not hasattr(module, was.target):
            setattr(module, was.target, getattr(module, node.target))
            delattr(module, node.target)
            node.target = was.target
        if node.op == "placeholder":
            node.target = was.target
        if was.target != node.target:  # another operator at the same place
            node.meta = {name: value for name, value in was.meta.items() if name in _PLACE}
        elif node.op != "output" or len(leaves(was.args[0])) == len(leaves(node.args[0])):
            node.meta = {name: value for name, value in was.meta.items() if name not in _VALUES}


@contextlib.contextmanager
def _reporting_lines(source: Path, text: str) -> Generator[None]:
    """Turns whatever the text raises into a UsageError with its line."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(source)]
        line = getattr(error, "line", 0) or (frames[-1] if frames else 0)
        lines = text.splitlines()
        place = f"line {line}, {lines[line - 1].strip()}" if line and line <= len(lines) else "the graph"
        raise NoGraphError(place, raised_line(error, 1000)) from error
