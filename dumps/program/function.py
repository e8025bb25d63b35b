"""The style of a repro: a graph as one plain Python function of torch calls, for a stranger to read and run.

Also: calls of higher-order operators in the form that torch.compile accepts: Dynamo refuses some operators when called
by name.

Constants are parameters, subgraphs inner functions. Imports no torch. Only text that `arguments` and `text` have
checked reaches the program, because it is executed.

>>> print(program_of(record).source)
def graph(primals_1, primals_2, primals_3, primals_4, primals_5):
    permute = torch.ops.aten.permute.default(primals_1, [1, 0])
    addmm = torch.ops.aten.addmm.default(primals_2, primals_3, permute)
    ...
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..allowlist import DENIED_METHODS, DUNDER_METHODS, NUMBER_METHODS, OP_HOMES
from ..schema import Arg, GraphBody, GraphRecord, NodeRecord, TensorValue
from ..walk import mentioned, nodes, references, tag_of
from ..walk import used as used_in
from . import text
from .case import CASTS, placeholders
from .entering import CONFIG_MODULES
from .kernels import INTERPRETED, Definitions
from .text import (
    CHECKPOINTS,
    GETITEM,
    WIDTH,
    CannotExpressError,
    InputFormError,
    Lines,
    Printer,
    blocks,
    dotted,
    identifier,
    indented,
    is_identifier,
    names_read,
    target,
)

REGION = "higher_order.invoke_subgraph"
"""Calls a region that is compiled once; its second argument identifies the region."""

FUNCTION = "higher_order.autograd_function_apply"
"""A torch.autograd.Function: its first two arguments are its forward and its backward."""

_FUNCTION_KEYS = frozenset({"non_differentiable_idx", "saved_for_backward_idx"})
_NO_ALIASES = ("higher_order.while_loop", "higher_order.cond", "higher_order.scan", "higher_order.map_impl")
"""Operators whose bodies may not return one of their inputs."""

_SCAN = [
    "def scan(combine, init, xs, extra):",
    '    """The operator `scan` of the graph, by the function that torch.compile takes."""',
    "",
    "    def step(carry, x):",
    "        values = list(combine(*carry, *x, *extra))",
    "        return values[: len(init)], values[len(init) :]",
    "",
    "    carry, rows = torch._higher_order_ops.scan(step, init, xs)",
    "    return [*carry, *rows]",
]


@dataclass(frozen=True)
class HigherOrderCall:
    """A call as text, the helper that has to stand above the graph, and a module to import."""

    text: str
    helper: list[str] = field(default_factory=list[str])
    module: str = ""


def rewritten(target: str, args: list[str], named: list[str]) -> HigherOrderCall | None:
    """The call of a higher-order operator that is written in another form; None for an operator that is called by its
    name."""
    if target in CHECKPOINTS:
        text = f"torch.utils.checkpoint.checkpoint({', '.join([*args, *named])})"
        return HigherOrderCall(text, module="torch.utils.checkpoint")
    if target == REGION and len(args) >= 2 and not named:
        return HigherOrderCall(f"{args[0]}({', '.join(args[2:])})")
    if target == "higher_order.scan" and len(args) == 4 and not named:
        return HigherOrderCall(f"scan({', '.join(args)})", _SCAN, "torch._higher_order_ops")
    known = {argument.partition("=")[0] for argument in named} <= _FUNCTION_KEYS
    if target == FUNCTION and len(args) >= 2 and known and "non_differentiable_idx=[]" in named:
        return HigherOrderCall(f"{args[0]}_function.apply({', '.join(args[2:])})", _function(args[0], args[1]))
    if target == "higher_order.flex_attention" and len(args) == 9 and not named:
        score, mask = (_closed(name, buffers) for name, buffers in ((args[3], args[7]), (_last(args[4]), args[8])))
        block = args[4][: -len(_last(args[4])) - 1] + f"{mask})"
        return HigherOrderCall(f"torch.ops.{target}({', '.join([*args[:3], score, block, *args[5:7]])})")
    return None


def _function(forward: str, backward: str) -> list[str]:
    """A torch.autograd.Function of the two recorded bodies: the forward returns (outputs, saved tensors)."""
    return [
        f"class {forward}_function(torch.autograd.Function):",
        "    @staticmethod",
        "    def forward(ctx, *inputs):",
        f"        outputs, saved = {forward}(*inputs)",
        "        ctx.save_for_backward(*saved)",
        "        return outputs",
        "",
        "    @staticmethod",
        "    def backward(ctx, *grads):",
        f"        return {backward}(*grads, *ctx.saved_tensors)",
    ]


def _closed(name: str, buffers: str) -> str:
    """A function bound to its buffers: Dynamo accepts none beside it."""
    return name if buffers in ("()", "[]") else f"lambda *at: {name}(*at, *{buffers})"


def _last(block: str) -> str:
    """The last item of a tuple's text, which is a name."""
    return block.removesuffix(")").rpartition(", ")[2]


def compiled_regions(body: GraphBody) -> dict[str, str]:
    """Nodes of subgraphs that are called as compiled regions -> the name of the region."""
    by_node: dict[str, str] = {}
    for node in body.nodes:
        names = list(references(node.args[:2]))
        if node.target == REGION and len(node.args) >= 2 and names:
            by_node[names[0]] = str(node.args[1])
        elif node.target == FUNCTION and len(names) == 2:
            by_node |= {name: f"autograd_{name}" for name in names}
    return by_node


def alias_free(body: GraphBody) -> set[str]:
    """Nodes of subgraphs that may not return one of their inputs."""
    calls = [node for node in body.nodes if node.target in _NO_ALIASES]
    return {name for node in calls for tag, name in map(tag_of, node.args) if tag == "node"}


def given_back(body: GraphBody) -> set[str]:
    """Tensors that a body returns as it took them."""
    taken = {node.name for node in placeholders(body) if isinstance(node.value, TensorValue)}
    return taken & {name for node in body.nodes if node.op == "output" for name in references(node.args)}


_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and_": "&", "or_": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
    "gt": ">", "ge": ">=",
}  # fmt: skip
_WORDS = """torch sys os math operator subprocess traceback resource time graph compiled make_inputs run f expected
actual faulthandler tempfile bf16 f16 f32 f8 l O I resident scan print range slice float int max min len
abs sum round bool complex getattr divmod pow tuple list held mode fakes gm plain like text widened
memory name value leaf device"""
_SETITEM = ("operator.setitem", "_operator.setitem")
_OF_TORCH = re.compile(r"prims\.(?!_|inductor_|fma|mul_rn|prepare_softmax)")
"""Primitives that `import torch` registers; the others are Inductor's own."""
_PLAIN = {name: f"import {name}" for name in _WORDS.split() if name in sys.stdlib_module_names} | {
    "Path": "from pathlib import Path"
}
_INSIDE = {
    name: f"from {module} import {name}"
    for module, names in {
        "torch._inductor.compile_fx": "compile_fx compile_fx_inner partition_fn",
        "torch._functorch.partitioners": "min_cut_rematerialization_partition",
        "torch._inductor.decomposition": "select_decomp_table",
        "torch._inductor.fx_passes": "joint_graph",
        "torch._subclasses": "CrossRefFakeMode",
        "torch._subclasses.fake_tensor": "FakeTensorMode MetadataMismatchError",
        "torch.fx": "Proxy symbolic_trace",
        "torch.fx.experimental.proxy_tensor": "make_fx",
        "torch.fx.passes.fake_tensor_prop": "FakeTensorProp",
        "torch.utils._python_dispatch": "TorchDispatchMode",
        "torch.utils._pytree": "tree_map_only",
    }.items()
    for name in names.split()
} | {module: f"import {module}" for module in CONFIG_MODULES.values()}
"""Name used in a program -> the import that it needs."""
_SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


@dataclass
class FunctionText:
    """Source of a function, the names of its parameters in order (constants last), modules to import beside torch, and
    the user's own Triton kernels that it calls."""

    source: str
    parameters: list[str]
    constants: dict[str, str] = field(default_factory=dict[str, str])
    imports: set[str] = field(default_factory=set[str])
    kernels: Definitions = field(default_factory=Definitions)
    wide: str | None = ""
    """Keyword arguments that turn the function's own floating dtypes into float64; None: functions beside it name some
    dtypes that these arguments do not reach."""

    def imported(self, body: str, of_ops: Iterable[str] = ()) -> tuple[list[str], list[str], list[str]]:
        """Three lists of imports for a program with that body: those that must come first, those of Python's own
        library, and those of torch and Triton, sorted as linters want.

        `of_ops`: imports of custom operators.
        """
        names = names_read(body)
        plain = {statement for name, statement in _PLAIN.items() if name in names}
        plain |= {line for line in of_ops if line.split()[1].partition(".")[0] not in ("torch", "numpy")}
        plain |= {"import os"} if self.kernels.source else set()
        inside = {"import torch", *(statement for name, statement in _INSIDE.items() if name in names)}
        inside |= {f"import {module}" for module in self.imports} | {line for line in of_ops if line not in plain}
        config = "import torch._inductor.config"
        if any(line != config and "torch._inductor." in line for line in inside):  # such a module imports it
            inside.discard(config)
        last = [INTERPRETED, *self.kernels.imports] if self.kernels.source else []
        first = ["from __future__ import annotations", ""] if self.kernels.strings_for_types else []
        return first, sorted(plain, key=_order), [*sorted(inside, key=_order), *last]


def _order(statement: str) -> tuple[bool, str]:
    """The sorting key of linters for imports: `import` before `from`."""
    return statement.startswith("from"), statement.split()[1]


def program_of(record: GraphRecord, *, wide: bool = False) -> FunctionText:
    """Renders the record's graph as `def graph(inputs..., constants...)`.

    `constants` maps a parameter to the name of its tensor in the record. `wide`: floating dtypes named by the graph
    become parameters: `def graph(x, f16=torch.float16)` casts as recorded when called plainly, and with
    `f16=torch.float64` computes all in float64. Raises CannotExpressError or RefusedError.
    """
    function = FunctionPrinter(record, wide=wide)
    program = function.program("graph")
    if function.unreached:
        program = FunctionPrinter(record).program("graph")
        program.wide = None
    return program


class FunctionPrinter(Printer):
    """Renders one graph, and collects its parameters and constants."""

    TAKEN = frozenset(_WORDS.split())
    PLAIN = True

    def __init__(self, record: GraphRecord, *, wide: bool = False) -> None:
        super().__init__(record)
        self.wide = wide
        self.dtypes: dict[str, str] = {}
        """The parameters for floating dtypes."""
        self.unreached = False
        """Whether a dtype cannot become a parameter."""
        self.parameters: list[str] = []
        self.constants: dict[str, str] = {}
        self.above: dict[str, list[str]] = {}
        """Functions above the graph: helpers, and regions that are compiled once, by name."""
        self.beside = False
        """Whether a function above the graph is being written."""
        self.imports: set[str] = set()
        self.path: list[str] = []

    def program(self, name: str) -> FunctionText:
        """The whole function, with the functions above it."""
        own = self.text(self.record.graph, name)
        wide = "".join(f", {short}=torch.float64" for short in sorted(self.dtypes))
        source = blocks(*self.above.values(), own)
        return FunctionText(source, self.parameters, self.constants, self.imports, self.kernels, wide)

    def text(self, body: GraphBody, name: str, *, copies: bool = False) -> Lines:
        """One `def`, with its subgraphs as inner functions before their first use. `copies`: the function may not
        return one of its inputs."""
        outer, self.names = self.names, dict(self.names)
        regions, without_aliases = dict[str, str](), set[str]()
        if body.subgraphs:
            regions, without_aliases = compiled_regions(body), alias_free(body)
        used = used_in(body.nodes)

        def first() -> Lines:
            if not self.path:
                return self.symbol_lines(body, mentioned(nodes(body)))
            back = sorted(given_back(body)) if copies else []
            return [f"{self.names[input_name]} = {self.names[input_name]}.clone()" for input_name in back]

        def statement(node: NodeRecord) -> Lines:
            if node.op == "get_attr":
                return self._attribute(body, node, regions.get(node.name, ""), node.name in without_aliases)
            return [self._statement(node, node.name in used)]

        lines = self.function(name, body, first, statement)
        self.names = outer
        return lines

    def header(self, name: str, parameters: Lines) -> Lines:
        if not self.path:
            self.parameters = parameters
            dtypes = [f"{short}=torch.{dtype}" for short, dtype in sorted(self.dtypes.items())]
            parameters = [*parameters, *self.constants, *dtypes]
        line = f"def {name}({', '.join(parameters)}):"
        if len(line) <= WIDTH:
            return [line]
        rows = textwrap.wrap(", ".join(parameters) + ",", WIDTH - 4, break_long_words=False, break_on_hyphens=False)
        return [f"def {name}(", *indented(rows), "):"]

    def homeless(self, symbol: str) -> str:
        raise CannotExpressError(f"no input has the size {symbol!r}")

    def dtype(self, name: str) -> str:
        short = _SHORT.get(name, "f8" if name.startswith("float8_") else "")
        if not self.wide or not short:
            return super().dtype(name)
        self.unreached |= self.beside or self.dtypes.setdefault(short, name) != name
        return short

    def _statement(self, node: NodeRecord, used: bool) -> str:
        called = self.call(node)
        if node.target in _SETITEM and len(node.args) == 3 and not used:
            base, index, value = (self.argument(arg) for arg in node.args)
            return f"{base}[{_index(node.args[1], index)}] = {value}"
        return f"{self.name(node)} = {called}" if used else called

    def _attribute(self, body: GraphBody, node: NodeRecord, region: str, copies: bool) -> Lines:
        own = self.name(node)
        if node.target in body.subgraphs:
            self.path.append(node.target)
            try:
                if region:
                    return self._region(body.subgraphs[node.target], node, identifier(region, "a region"))
                return self.text(body.subgraphs[node.target], own, copies=copies)
            finally:
                self.path.pop()
        if node.target not in body.attrs:
            raise InputFormError(f"the attribute {node.target!r} was not saved")
        if own in self.constants:  # two graphs use the same name
            own = self.names[node.name] = f"{own}_{len(self.constants)}"
        self.constants[own] = ".".join([*self.path, node.target])
        return []

    def _region(self, body: GraphBody, node: NodeRecord, region: str) -> Lines:
        """Renders a region above the graph, once for all its calls."""
        region = self.names[node.name] = f"region_{region}"  # Dynamo gives "subgraph_0" itself
        if region not in self.above:
            before, names, outer = len(self.constants), self.names, self.beside
            self.names, self.beside = {}, True
            text = self.text(body, region)
            self.names, self.beside = names, outer
            if len(self.constants) != before:
                what = f"the compiled region {region!r} holds a constant, which a repro cannot contain"
                raise CannotExpressError(what)
            is_region = not region.startswith("region_autograd")
            self.above[region] = [*(["@torch.compiler.nested_compile_region"] if is_region else []), *text]
        return []

    def call_method(self, node: NodeRecord, args: list[str], named: list[str]) -> str:
        name = node.target
        if name in DENIED_METHODS or (name.startswith("_") and name not in DUNDER_METHODS | NUMBER_METHODS):
            raise CannotExpressError(f"node {node.name} calls the method {name[:60]!r}, which a repro may not call")
        if self.wide and name in CASTS and len(args) == 1 and not named:
            return f"{args[0]}.to({self.dtype(CASTS[name])})"
        return super().call_method(node, args, named)

    def call_module(self, node: NodeRecord, args: list[str], named: list[str]) -> str:
        what = f"node {node.name!r} calls the module {node.target!r}, which a repro cannot contain yet"
        raise CannotExpressError(what)

    def call_function(self, node: NodeRecord, args: list[str], named: list[str]) -> str:
        higher = node.target.startswith("higher_order.")
        other = rewritten(node.target, args, named) if higher else None
        if other is not None:
            self.imports |= {other.module} if other.module else set()
            if other.helper:
                self.above.setdefault(other.text.partition("(")[0], other.helper)
            return other.text
        if not _OF_TORCH.match(node.target):
            self.imports |= set(OP_HOMES.get(node.target.partition(".")[0], ())[-1:])
        root, _, last = node.target.rpartition(".")
        if len(args) == 2 and not named and node.target in GETITEM:
            return f"{args[0]}[{_index(node.args[1], args[1])}]"
        if len(args) == 2 and not named and root in ("operator", "_operator") and last in _INFIX:
            return f"{_operand(args[0])} {_INFIX[last]} {_operand(args[1])}"
        plain = len(args) == 2 and not named and isinstance(node.args[1], str) and is_identifier(node.args[1])
        if node.target == "builtins.getattr" and plain and not str(node.args[1]).startswith("_"):
            return f"{_operand(args[0])}.{node.args[1]}"
        called = target(dotted(node.target, "the target"), self.where)
        if text.is_numpy(node.target):
            called, line = text.helper(node.target)
            lines = self.above.setdefault("numpy", [])
            lines += [line] if line not in lines else []
            self.imports |= set(text.MODULES)
        return f"{called}({', '.join([*args, *named])})"


def _index(arg: Arg, text: str) -> str:
    """The items of a tuple index, without its parentheses; an empty tuple keeps them."""
    return text[1:-1] if tag_of(arg)[0] == "tuple" and tag_of(arg)[1] else text


def is_word(text: str) -> bool:
    """Whether an operand is a single word or number."""
    return all(letter.isalnum() or letter in "._" for letter in text)


def _operand(text: str) -> str:
    """An operand in parentheses, unless it is a single word or already has them."""
    flat = text[:1] == "(" and text[-1:] == ")" and not any(letter in "()" for letter in text[1:-1])
    return text if is_word(text) or flat else f"({text})"
