"""The user's own Triton kernels that a graph calls: saved with the graph as programs, and loaded as kernels with
`--trust` only.

Also: writes a user's Triton kernel as one Python module: imports, constants, helpers, and the function under its
decorators.

A wrapper node names its kernel and its constants by indices into a table of torch that belongs to one process. In the
saved form, the index refers to `GraphRecord.kernels`, and the constants are Python expressions in the node's metadata.

For example:

    writer = KernelWriter(); writer.node(node, record); writer.finish()  # -> [TritonKernel(name='add_kernel', ...)]
    KernelReader(record.kernels, "case").kwargs(node_record, kwargs)      # RefusedError without --trust
"""

from __future__ import annotations

import ast
import builtins
import dis
import hashlib
import inspect
import math
import sys
import textwrap
from functools import partial
from importlib import import_module
from types import CodeType, ModuleType
from typing import Any, cast

import torch

from .. import syntax, trust
from ..errors import (
    DamagedError,
    NotRegisteredError,
    PackageMissingError,
    RefusedError,
    TorchLacksError,
    UntrustedSourceError,
)
from ..program.text import is_identifier
from ..schema import NodeRecord, TritonKernel
from ..validate import short
from . import torch_private as t
from .definitions import run

_CONFIG_FIELDS = (("num_warps", 4), ("num_stages", 3), ("num_ctas", 1), ("maxnreg", None))
"""The fields of triton.Config beside the constants, with their defaults (Triton 3.6)."""
_JIT_FIELDS = ("do_not_specialize", "do_not_specialize_on_alignment", "noinline", "debug")
_PRELUDE = {"triton": "import triton", "tl": "import triton.language as tl"}


class KernelProgram:
    """A program that grows by the definitions that kernels and constants need. `missing` and `dropped` are
    sentences."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        self.dropped: list[str] = []
        self._imports = dict(_PRELUDE)
        self._constants: dict[str, str] = {}
        self._functions: dict[str, str] = {}
        self._owners: dict[str, Any] = {}
        self._strings_for_types = False

    def text(self) -> str:
        """The text of the module; every name is defined before its use."""
        imports = sorted(dict.fromkeys(self._imports.values()), key=lambda line: (line.startswith("from "), line))
        head = ["from __future__ import annotations", ""] if self._strings_for_types else []
        constants = ["", *(f"{name} = {value}" for name, value in self._constants.items())] if self._constants else []
        functions = [f"\n\n{text.rstrip()}" for text in self._functions.values()]
        return "\n".join([*head, *imports, *constants, *functions]) + "\n"

    def kernel(self, kernel: Any) -> str:
        """Adds a kernel with its decorators, and returns its name in the program."""
        around: list[str] = []
        inner = kernel
        while not hasattr(inner, "src") and hasattr(inner, "fn"):
            if hasattr(inner, "configs"):
                around.append(self._autotune(inner))
            else:  # Dynamo has already put the values of heuristics into the configurations
                self.missing.append(f"a decorator of type {type(inner).__name__}")
            inner = inner.fn
        if not hasattr(inner, "src") or not callable(getattr(inner, "fn", None)):
            self.missing.append(f"the source of a kernel of type {type(kernel).__name__}")
            return getattr(inner, "__name__", "") or "kernel"
        return self.function(inner, around)

    def function(self, compiled: Any, around: list[str] | None = None) -> str:
        """Adds a compiled function and the names that it uses, once, and returns its name."""
        tree = _parsed(compiled.src)
        name = tree.name if tree is not None else compiled.fn.__name__
        if not self._claim(name, compiled) or name in self._functions:
            return name
        if tree is None:
            self.missing.append(f"{name}, whose source cannot be read")
            return name
        self._functions[name] = ""  # for a function that calls itself
        self._strings_for_types |= any(isinstance(kind, str) for kind in compiled.fn.__annotations__.values())
        known = {**compiled.fn.__globals__, **_closure(compiled.fn)}
        attributes = _attributes(tree)
        for used in sorted(_names_loaded(compiled.fn.__code__) | _in_signature(tree)):
            if used in known:
                self._symbol(used, known[used], name, attributes)
            elif not hasattr(builtins, used):
                self.missing.append(f"{used}, which {name} uses and which was not defined")
        del self._functions[name]  # to be placed after the names that it uses
        decorators = [*(around or ()), _decorator(compiled)]
        self._functions[name] = "\n".join([*decorators, textwrap.dedent(compiled.src)])
        return name

    def expression(self, value: Any) -> str:
        """A constant as a Python expression over the program; "", and a sentence in `missing`, where it has none."""
        text = self._expression(value)
        if text is None:
            self.missing.append(f"a constant of type {type(value).__name__} ({short(value)})")
        return text or ""

    def _autotune(self, tuner: Any) -> str:
        configs = [self._config(config) for config in tuner.configs]
        parts = ["configs=[\n" + "".join(f"        {config},\n" for config in configs) + "    ]"]
        parts.append(f"key={list(getattr(tuner, 'keys', None) or [])!r}")
        for name in ("restore_value", "reset_to_zero"):
            if given := getattr(tuner, name, None):
                parts.append(f"{name}={list(given)!r}")
        for name, what in (("early_config_prune", "prune_configs_by"), ("perf_model", "prune_configs_by")):
            if getattr(tuner, name, None) is not None and what not in " ".join(self.dropped):
                left = "the configurations are those that were left when the graph was made"
                self.dropped.append(f"{what}, a function: {left}")
        for name in ("user_defined_pre_hook", "user_defined_post_hook"):
            if getattr(tuner, name, False):
                self.dropped.append(f"{name.removeprefix('user_defined_')} of the autotuner, a function")
        return "@triton.autotune(\n    " + ",\n    ".join(parts) + ",\n)"

    def _config(self, config: Any) -> str:
        kwargs = ", ".join(f"{name!r}: {self.expression(value)}" for name, value in config.kwargs.items())
        values = [(name, getattr(config, name, usual), usual) for name, usual in _CONFIG_FIELDS]
        fields = [f"{name}={value!r}" for name, value, usual in values if value != usual]
        if getattr(config, "pre_hook", None) is not None:
            self.dropped.append("pre_hook of a configuration, a function")
        return f"triton.Config({', '.join([f'{{{kwargs}}}', *fields])})"

    def _symbol(self, name: str, value: Any, user: str, attributes: dict[str, set[str]]) -> None:
        """Adds a definition of a global or closed-over name as in the user's module."""
        if not self._claim(name, value):
            return
        if name in self._imports or name in self._constants or (name in self._functions and is_compiled(value)):
            return
        if is_compiled(value):
            if (defined_as := self.function(value)) != name:
                self._functions[name] = f"{name} = {defined_as}"
        elif isinstance(value, ModuleType):
            self._module(name, value, user, attributes.get(name, set()))
        elif (text := self._expression(value)) is not None:
            # A plain number stays one: Triton refuses such globals, so the program fails as the user's does.
            self._constants[name] = text
        elif (line := _imported(name, value)) is not None:
            self._imports[name] = line
        else:
            kind = "function" if inspect.isfunction(value) else type(value).__name__
            home = getattr(value, "__module__", None) or "the module"
            self.missing.append(f"{name}, a {kind} of {home} that {user} uses")

    def _module(self, name: str, module: ModuleType, user: str, attributes: set[str]) -> None:
        """Adds an import; for a module of the user, a namespace with its used attributes."""
        full = module.__name__
        if full.partition(".")[0] in {"triton", "torch", *sys.stdlib_module_names}:
            self._imports[name] = _import(full, name)
            return
        self._imports["ModuleType"] = "from types import ModuleType"
        lines = [f'{name} = ModuleType("{name}")']
        for attribute in sorted(attributes):
            value = getattr(module, attribute, None)
            if is_compiled(value):
                lines.append(f"{name}.{attribute} = {self.function(value)}")
            elif (text := self._expression(value)) is not None:
                lines.append(f"{name}.{attribute} = {text}")
            else:
                self.missing.append(f"{name}.{attribute}, a {type(value).__name__} that {user} uses")
        self._functions[name] = "\n".join(lines)

    def _claim(self, name: str, value: Any) -> bool:
        """Claims a name; returns False, and notes it in `missing`, where two modules use it for different things."""
        if not is_identifier(name):
            self.missing.append(f"{name!r}, which is not a plain name")
            return False
        held = self._owners.setdefault(name, value)
        if held is value or (type(held) is type(value) and not is_compiled(value) and repr(held) == repr(value)):
            return True
        self.missing.append(f"{name}, which means two different things in two modules")
        return False

    def _expression(self, value: Any) -> str | None:
        if is_compiled(value):
            return self.function(value)
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        if isinstance(value, float):
            return repr(value) if math.isfinite(value) else f'float("{value}")'
        if isinstance(value, torch.dtype):
            self._imports["torch"] = "import torch"
            return repr(value)
        if isinstance(value, (tuple, list)):
            parts = [self._expression(part) for part in cast(list[Any], value)]
            if None in parts:
                return None
            inside = ", ".join(str(part) for part in parts)
            return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(parts) == 1)})"
        return self._of_language(value)

    def _of_language(self, value: Any) -> str | None:
        if not type(value).__module__.startswith("triton.language"):
            return None
        kind = type(value).__name__
        if kind == "constexpr":
            inner = self._expression(value.value)
            return None if inner is None else f"tl.constexpr({inner})"
        if kind == "dtype":
            named = vars(sys.modules["triton.language"]).items()
            same = (name for name, dtype in named if type(dtype) is type(value) and dtype == value)
            return f"tl.{name}" if (name := next(same, None)) else None
        return None


def is_compiled(value: Any) -> bool:
    """Whether a value is a function that Triton compiles: decorated with triton.jit or triton.constexpr_function."""
    has_source = callable(getattr(value, "fn", None)) and isinstance(getattr(value, "src", None), str)
    return has_source and type(value).__module__.startswith("triton.")


def decorators_of(kernel: Any) -> tuple[str, str]:
    """(the decorators that the user wrote, "path:line"); empty texts where they are unknown."""
    for _ in range(8):
        if hasattr(kernel, "raw_src"):
            before, begin, _ = textwrap.dedent("".join(kernel.raw_src)).partition("def ")
            code = kernel.fn.__code__
            return before.rstrip() if begin else "", f"{code.co_filename}:{code.co_firstlineno}"
        kernel = getattr(kernel, "fn", None)
    return "", ""


def _parsed(source: str) -> ast.FunctionDef | None:
    try:
        body = syntax.parsed(textwrap.dedent(source)).body
    except (SyntaxError, ValueError):
        return None
    return body[0] if body and isinstance(body[0], ast.FunctionDef) else None


def _names_loaded(code: CodeType) -> set[str]:
    """Global and closed-over names that a function reads, including those of nested functions."""
    steps = list(dis.get_instructions(code))
    names = {str(step.argval) for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    names |= {str(step.argval) for step in steps if step.opname.startswith("LOAD_") and step.argval in code.co_freevars}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names |= _names_loaded(inner) - set(code.co_cellvars)
    return names


def _in_signature(tree: ast.FunctionDef) -> set[str]:
    """Names in default values and annotations, which are read when the function is defined."""
    arguments = tree.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    parts = [*arguments.defaults, *arguments.kw_defaults, tree.returns]
    parts += [argument.annotation for argument in every if argument is not None]
    return {node.id for part in parts if part is not None for node in ast.walk(part) if isinstance(node, ast.Name)}


def _attributes(tree: ast.FunctionDef) -> dict[str, set[str]]:
    """Name -> its attributes that the function reads, for modules of the user."""
    by_name: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            by_name.setdefault(node.value.id, set()).add(node.attr)
    return by_name


def _closure(function: Any) -> dict[str, Any]:
    values_by_name: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            values_by_name[name] = cell.cell_contents
        except ValueError:  # an empty cell
            continue
    return values_by_name


def _decorator(compiled: Any) -> str:
    if type(compiled).__name__ == "ConstexprFunction":
        return "@triton.constexpr_function"
    options = [f"{name}={value!r}" for name in _JIT_FIELDS if (value := getattr(compiled, name, None))]
    return f"@triton.jit({', '.join(options)})" if options else "@triton.jit"


def _imported(name: str, value: Any) -> str | None:
    """The import statement for one of Triton's own objects; None for others."""
    home = str(getattr(value, "__module__", None) or "")
    own = getattr(value, "__name__", None)
    if home.startswith("triton") and own and getattr(sys.modules.get(home), own, None) is value:
        return f"from {home} import {own}" + ("" if own == name else f" as {name}")
    return None


def _import(full: str, name: str) -> str:
    if full == name:
        return f"import {full}"
    home, _, last = full.rpartition(".")
    return f"from {home} import {last}" if home and last == name else f"import {full} as {name}"


CONSTANTS = "triton_constants"
"""Key in NodeRecord.meta of the constants of a call: name -> Python expression over the kernel's program."""
OLD = "this run has no kernel source (recorded by an older graphdbg)"

_loaded: dict[str, tuple[Any, ModuleType]] = {}
"""Name and program, hashed -> the kernel and its module; loaded once per process, since its index must not change."""
_records: dict[int, tuple[Any, TritonKernel]] = {}
"""Index in torch's table -> the kernel there, and its record. `torch._dynamo.reset` empties the table."""
_texts: dict[int, tuple[dict[str, Any], dict[str, str]]] = {}
"""Index of constants in torch's table -> those constants, and their expressions."""
_known: dict[tuple[int, tuple[tuple[str, str], ...]], int] = {}


def _from_table(getter: str, index: Any) -> Any:
    """The entry of torch's table for a wrapper node's index; None where there is none."""
    try:
        return getattr(t.kernel_side_table, getter)(index)
    except (AssertionError, KeyError, TypeError):
        return None


_kernel_at, _constants_at = partial(_from_table, "get_kernel"), partial(_from_table, "get_constant_args")


def name_of_kernel(index: Any) -> str:
    """The name of a kernel in torch's table, through its autotuner."""
    kernel = _kernel_at(index)
    while kernel is not None and not hasattr(kernel, "src") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    return getattr(getattr(kernel, "fn", None), "__name__", "") or "kernel"


def _record_of(index: Any) -> TritonKernel | None:
    """The record that a kernel in torch's table was loaded from; None for others."""
    kernel, record = _records.get(index, (None, None))
    return record if kernel is not None and _kernel_at(index) is kernel else None


def _texts_of(index: Any) -> dict[str, str] | None:
    """The expressions that constants in torch's table were loaded from; None for others."""
    held, texts = _texts.get(index, (None, None))
    return texts if held is not None and _constants_at(index) is held else None


class KernelWriter:
    """Collects the kernels of one graph, its subgraphs included."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[TritonKernel | None, KernelProgram]] = {}
        self._names: dict[int, str] = {}
        self._places: list[int] = []

    def node(self, node: torch.fx.Node, record: NodeRecord) -> None:
        """Replaces the kernel index in the record of a wrapper node by its index in GraphRecord.kernels, and adds its
        constants."""
        if "kernel_idx" not in node.kwargs:
            return
        index: Any = node.kwargs["kernel_idx"]
        if index not in self._found:
            program = KernelProgram()
            known_kernel = _record_of(index)
            self._found[index] = (known_kernel, program)
            self._places.append(index)
            if known_kernel is None:
                self._names[index] = program.kernel(_kernel_at(index))
        record.kwargs["kernel_idx"] = self._places.index(index)
        given: Any = node.kwargs.get("constant_args_idx")
        known = _texts_of(given)
        program = self._found[index][1]
        if known is None:
            constants = cast(dict[str, Any], _constants_at(given) or {})
            known = {name: program.expression(value) for name, value in constants.items()}
        record.kwargs["constant_args_idx"] = 0
        record.meta[CONSTANTS] = {"dict": [[name, text] for name, text in known.items()]}

    def finish(self) -> list[TritonKernel]:
        """The kernels in the order of their first calls."""
        return [known or self._made(index, program) for index, (known, program) in self._found.items()]

    def _made(self, index: int, program: KernelProgram) -> TritonKernel:
        decorators, file = decorators_of(_kernel_at(index))
        name = self._names[index]
        text = program.text() if f"def {name}(" in program.text() else ""
        missing, dropped = (list(dict.fromkeys(names)) for names in (program.missing, program.dropped))
        return TritonKernel(name, text, decorators, file, missing, dropped)


class KernelReader:
    """Restores the kernels of a graph's wrapper nodes. `where` names the graph's folder or file."""

    def __init__(self, kernels: list[TritonKernel], where: str) -> None:
        self.kernels = kernels
        self.where = where.removesuffix("/graph.json")

    def target(self, name: str) -> Any:
        """The higher-order operator of a call."""
        operator = t.higher_order_ops.get(name.removeprefix("higher_order."))
        if operator is None:
            fix = "load the dump with the torch that wrote it"
            raise TorchLacksError(self.where, f"this torch has no operator {name!r}", fix)
        return operator

    def kwargs(self, record: NodeRecord, given: dict[str, Any], where: str) -> dict[str, Any]:
        """A call's keyword arguments with indices into this process's table. Raises RefusedError without trust or
        source."""
        place = given.get("kernel_idx")
        if not self.kernels:
            raise RefusedError(where, OLD, "record the run again")
        if not isinstance(place, int) or not 0 <= place < len(self.kernels):
            raise DamagedError(where, f"it calls kernel {place!r} of {len(self.kernels)}")
        kernel = self.kernels[place]
        if not trust.given():
            why = f"it runs the user's own Triton kernel {kernel.name}, whose source is in the dump"
            fix = f"read it: graphdbg show {self.where} --kernel {kernel.name}; then add --trust"
            raise UntrustedSourceError(where, why, fix)
        if not kernel.program:
            why = "this run has no kernel source (it was packed without, or could not be read)"
            raise RefusedError(where, why, "record the run again")
        if kernel.missing:
            why = f"the kernel {kernel.name} could not be saved completely; missing: {'; '.join(kernel.missing)}"
            fix = "define what is missing in the kernel's module: as a constant, a dtype or a triton.jit function"
            raise RefusedError(where, why, fix)
        function, module = _kernel(kernel, where)
        index = t.kernel_side_table.add_kernel(function)
        _records[index] = function, kernel
        return {**given, "kernel_idx": index, "constant_args_idx": self._constants(record, index, module, where)}

    def _constants(self, record: NodeRecord, index: int, module: ModuleType, where: str) -> int:
        held: Any = record.meta.get(CONSTANTS) or {"dict": []}
        try:
            texts = {str(name): str(text) for name, text in held["dict"]}
        except (TypeError, KeyError, ValueError) as error:
            raise DamagedError(where, f"its constants are malformed ({error})") from error
        key = (index, tuple(sorted(texts.items())))
        if key not in _known or _texts_of(_known[key]) is None:
            try:
                values = {name: eval(text, vars(module)) for name, text in texts.items()}  # trusted, as its program is
            except Exception as error:
                why = f"a constant of its kernel cannot be evaluated ({type(error).__name__}: {error})"
                raise DamagedError(where, why) from error
            _known[key] = t.kernel_side_table.add_constant_args(values)
            _texts[_known[key]] = values, texts
        return _known[key]


def _kernel(record: TritonKernel, where: str) -> tuple[Any, ModuleType]:
    """Runs a kernel's program, once in a process. Triton finds the source again through linecache, so no file is
    written."""
    key = hashlib.sha256(f"{record.name}\n{record.program}".encode()).hexdigest()[:16]
    if key in _loaded:
        return _loaded[key]
    try:
        import_module("triton")
    except ImportError as error:
        why = f"it runs the user's own Triton kernel {record.name}, and Triton is not installed ({error})"
        raise PackageMissingError(where, why, "pip install 'graphdbg[triton]'") from error
    trust.prepare()
    module = run(record.name, record.program, where, f"the program of its kernel {record.name}")
    if (function := vars(module).get(record.name)) is None:
        why = f"the saved source of the kernel {record.name} does not define it"
        raise NotRegisteredError(where, why, "record the run again")
    _loaded[key] = function, module
    return _loaded[key]
