"""Generated code of stock Inductor and of the compile path, side by side: taken without building any of it, and
compared.

Both compile through torch.compile with a backend that calls them; loading of the generated wrapper is the one thing
that is patched out, for both at the same place, so no C++ compiler runs for a kernel. Counters that number graphs and
kernels start from 0 for each compile. Caches are off. Must not be used while something else compiles in this process.

>>> stock, ours = codes_of(cell, STOCK), codes_of(cell, OURS)
>>> first_difference(stock, ours) is None
True
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch import Tensor, nn
from torch._functorch import config as functorch_config
from torch._inductor import compile_fx as stock_module
from torch._inductor.graph import GraphLowering
from torch._subclasses import FakeTensorMode

from graphdbg.toolkit.compile_fx import compile_fx
from tests.models.compile_models import MODELS

Compile = Callable[..., Any]
STOCK: Compile = stock_module.compile_fx
OURS: Compile = compile_fx
MODES = ("train", "infer", "train-dynamic", "infer-dynamic")
SETTINGS: dict[str, Any] = {"fx_graph_cache": False, "fx_graph_remote_cache": False, "compile_threads": 1}


@dataclass(frozen=True)
class Cell:
    """One model in one mode: a cell of the table."""

    model: str
    mode: str

    def build(self, size: int = 8) -> tuple[nn.Module, tuple[Any, ...]]:
        """The module in its mode and its inputs, the same at each call; those of a dynamic mode are marked so."""
        torch.manual_seed(0)
        module, inputs = MODELS[self.model].make(size)
        module.train(self.mode.startswith("train"))
        if self.mode.endswith("dynamic"):
            for index, dimension in MODELS[self.model].dynamic.items():
                torch._dynamo.mark_dynamic(inputs[index], dimension)
        return module, inputs

    def grad(self) -> Any:
        return torch.enable_grad() if self.mode.startswith("train") else torch.no_grad()


@dataclass
class Codes:
    """What one compile generated: a text for each graph, and what torch's caches would keep beside it."""

    texts: list[str] = field(default_factory=list)
    kept: list[dict[str, str]] = field(default_factory=list)


KEPT = (
    "counter_deltas",
    "metrics_deltas",
    "output_strides",
    "guards_expr",
    "inductor_post_grad_graph_str",
    "runnable_graph_str",
    "mutated_input_idxs",
    "inputs_to_check",
    "device_types",
    "cache_linemap",
    "disabled_cudagraphs_reason",
    "fx_kwargs",
    "inductor_provenance_mapping_str",
    "inductor_provenance_stack_traces_str",
)
"""Attributes of torch's CompiledFxGraph that are compared as texts."""


def codes_of(cell: Cell, compile_it: Compile, **settings: Any) -> Codes:
    """Compiles one cell, forward and backward, and returns what was generated. `settings` are Inductor's."""
    module, inputs = cell.build()
    with collected() as codes, inductor_config.patch(SETTINGS | settings), without_autograd_cache():
        compiled_by(compile_it, module, cell, inputs)
    return codes


def compiled_by(compile_it: Compile, module: nn.Module, cell: Cell, inputs: tuple[Any, ...]) -> None:
    """torch.compile with a backend that compiles a graph and then runs it eagerly."""

    def backend(gm: torch.fx.GraphModule, given: list[Any]) -> Callable[..., Any]:
        eager = copy.deepcopy(gm)
        compile_it(gm, given)
        return eager.forward

    torch._dynamo.reset()
    torch.manual_seed(0)
    lazy = functorch_config.patch(force_non_lazy_backward_lowering=True)
    with cell.grad(), lazy, torch._dynamo.config.patch(allow_rnn=True):
        torch.compile(module, backend=backend)(*inputs)


@contextlib.contextmanager
def without_autograd_cache() -> Iterator[None]:
    names = ("enable_autograd_cache", "enable_remote_autograd_cache")
    with functorch_config.patch({name: False for name in names if hasattr(functorch_config, name)}):
        yield


@contextlib.contextmanager
def collected() -> Iterator[Codes]:
    """Meanwhile generated code is collected and not loaded."""
    from torch._inductor.codecache import PyCodeCache
    from torch._inductor.output_code import CompiledFxGraph

    codes = Codes()
    usual = PyCodeCache.load_by_key_path, GraphLowering.save_output_code, CompiledFxGraph.__init__

    def load(key: str, path: str, linemap: Any = None, attrs: Any = None) -> ModuleType:
        module = ModuleType(key)
        module.__file__, module.call = path, raise_instead("call")
        return module

    @functools.wraps(usual[2])
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        usual[2](self, *args, **kwargs)
        codes.kept.append({name: str(getattr(self, name, None)) for name in KEPT})

    pin_counters()
    PyCodeCache.load_by_key_path = load
    GraphLowering.save_output_code = staticmethod(codes.texts.append)
    CompiledFxGraph.__init__ = init
    try:
        yield codes
    finally:
        PyCodeCache.load_by_key_path, CompiledFxGraph.__init__ = usual[0], usual[2]
        GraphLowering.save_output_code = usual[1]


_COUNTERS = (
    ("torch._inductor.compile_fx", "_graph_counter"),
    ("torch._inductor.graph", "_post_grad_graph_counter"),
    ("torch._inductor.debug", "DebugContext._counter"),
    ("torch._inductor.select_algorithm", "KernelTemplate.index_counter"),
    ("torch._inductor.codegen.cpp_template", "CppTemplate.index_counter"),
    ("torch._inductor.codegen.subgraph", "SubgraphTemplate.index_counter"),
    ("torch._inductor.scheduler", "_post_grad_graph_counter"),
    ("torch._functorch.aot_autograd", "AOT_COUNTER"),
)


def pin_counters() -> None:
    """Numbers that torch counts per process, and writes into code, from 0 again; fake tensors' cache empty."""
    for module, path in _COUNTERS:
        *owners, name = path.split(".")
        owner: Any = import_module(module)
        for item in owners:
            owner = getattr(owner, item, None)
        if hasattr(owner, name):
            setattr(owner, name, itertools.count(0))
    # a hit forgets that an operator returned one tensor twice: other code than after a miss
    FakeTensorMode.cache_clear()


def first_difference(stock: Codes, ours: Codes) -> str | None:
    """The first line that differs after names of the machine are normalised; None where all is the same."""
    if len(stock.texts) != len(ours.texts):
        return f"{len(stock.texts)} graphs, ours {len(ours.texts)}"
    for number, (theirs, mine) in enumerate(zip(stock.texts, ours.texts, strict=True)):
        for at, (item, other) in enumerate(itertools.zip_longest(normal(theirs), normal(mine)), 1):
            if item != other:
                return f"graph {number} line {at}: {item!r} | {other!r}"
    for number, (theirs, mine) in enumerate(itertools.zip_longest(stock.kept, ours.kept)):
        for name in KEPT:
            item, other = ("".join(normal((kept or {}).get(name, "missing"))) for kept in (theirs, mine))
            if item != other:
                return f"graph {number}, {name}: {_around(item, other)}"
    return None


def _around(text: str, other: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
    return f"...{text[max(0, at - 40) : at + 60]!r} | ...{other[max(0, at - 40) : at + 60]!r}"


_NAMES = (
    (re.compile(r"/\S*?/(?:[^/\s'\"]*/)*([a-z0-9]{2})/c[a-z0-9]{40,}"), "<cached>"),
    (re.compile(r"0x[0-9a-f]{6,}|\b7[ef][0-9a-f]{10}\b"), "<address>"),
)


def normal(text: str) -> list[str]:
    """Lines without folders of caches and addresses of objects: nothing else differs between two compiles in one
    process."""
    if "torch._inductor.config." in text:  # of a script for one graph: which settings were ever set in this process
        text = "\n".join(line for line in text.splitlines() if not line.startswith("torch."))
    for pattern, name in _NAMES:
        text = pattern.sub(name, text)
    return text.splitlines()


def raise_instead(name: str) -> Callable[..., Any]:
    """A function that raises, to put where torch's was."""

    def raising(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("this function must not be called now")

    raising.__name__ = name
    return raising


@contextlib.contextmanager
def torch_raising() -> Iterator[None]:
    """Meanwhile torch's own orchestration raises, whoever holds it: its functions' code is replaced, and their names
    too."""
    functions = {
        name: getattr(stock_module, name)
        for name in (
            "compile_fx",
            "compile_fx_inner",
            "fx_codegen_and_compile",
            "_compile_fx_inner",
            "_compile_fx_main",
        )
    }
    method = stock_module._InProcessFxCompile.codegen_and_compile
    codes: dict[FunctionType, Any] = {item: item.__code__ for item in (*functions.values(), method)}
    try:
        for function in codes:
            function.__code__ = raise_instead(function.__name__).__code__
        for name in functions:
            setattr(stock_module, name, raise_instead(name))
        yield
    finally:
        for function, code in codes.items():
            function.__code__ = code
        for name, function in functions.items():
            setattr(stock_module, name, function)


def run_by(cell: Cell, compile_it: Compile) -> list[Tensor]:
    """Builds one cell really and runs it, with a backward in training; what it returned, then the parameters'
    gradients."""
    module, inputs = cell.build()
    torch._dynamo.reset()
    pin_counters()
    with (
        cell.grad(),
        inductor_config.patch(SETTINGS),
        without_autograd_cache(),
        torch._dynamo.config.patch(allow_rnn=True),
    ):
        compiled = torch.compile(module, backend=lambda gm, given: compile_it(gm, given))
        torch.manual_seed(1)
        result = compiled(*inputs)
        values = list(result) if isinstance(result, tuple) else [result]
        if cell.mode.startswith("train"):
            sum(value.float().square().mean() for value in values).backward()
            values += [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    return [value.detach() for value in values]


def warm_up() -> None:
    """What torch does once in a process: patterns are traced, the compiler is asked what vectors it knows."""
    codes_of(Cell("gpt_block", "train"), STOCK)
    codes_of(Cell("gpt_block", "infer"), OURS)
