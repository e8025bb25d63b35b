"""A Triton kernel of the user's own as one Python module: imports, constants, helpers, and the function under its
decorators.

Reads the function's source, bytecode and globals; runs nothing, and never fails: what has no saved form is named in
`missing` (the kernel cannot run without it) or `dropped` (it can).

For example:

    program = Program()
    program.kernel(add_kernel)  # -> 'add_kernel'
    program.text()  # -> 'import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef add_kernel(...): ...\n'
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import math
import sys
import textwrap
from types import CodeType, ModuleType
from typing import Any, cast

import torch

from ..program.text import is_identifier

_CONFIG_FIELDS = (("num_warps", 4), ("num_stages", 3), ("num_ctas", 1), ("maxnreg", None))
"""What triton.Config takes beside the constants, and its defaults (Triton 3.6)."""
_JIT_FIELDS = ("do_not_specialize", "do_not_specialize_on_alignment", "noinline", "debug")
_PRELUDE = {"triton": "import triton", "tl": "import triton.language as tl"}


class KernelProgram:
    """A program that grows by what kernels and constants need. `missing` and `dropped` are sentences."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        self.dropped: list[str] = []
        self._imports = dict(_PRELUDE)
        self._constants: dict[str, str] = {}
        self._functions: dict[str, str] = {}
        self._owners: dict[str, Any] = {}
        self._strings_for_types = False

    def text(self) -> str:
        """The text of the module; names are defined before they are used."""
        imports = sorted(dict.fromkeys(self._imports.values()), key=lambda line: (line.startswith("from "), line))
        head = ["from __future__ import annotations", ""] if self._strings_for_types else []
        constants = ["", *(f"{name} = {value}" for name, value in self._constants.items())] if self._constants else []
        functions = [f"\n\n{text.rstrip()}" for text in self._functions.values()]
        return "\n".join([*head, *imports, *constants, *functions]) + "\n"

    def kernel(self, kernel: Any) -> str:
        """Adds a kernel with its decorators, and returns the name it is called by."""
        around: list[str] = []
        inner = kernel
        while not hasattr(inner, "src") and hasattr(inner, "fn"):
            if hasattr(inner, "configs"):
                around.append(self._autotune(inner))
            else:  # Dynamo has put what heuristics say into the configurations
                self.missing.append(f"a decorator of type {type(inner).__name__}")
            inner = inner.fn
        if not hasattr(inner, "src") or not callable(getattr(inner, "fn", None)):
            self.missing.append(f"the source of a kernel of type {type(kernel).__name__}")
            return getattr(inner, "__name__", "") or "kernel"
        return self.function(inner, around)

    def function(self, compiled: Any, around: list[str] | None = None) -> str:
        """Adds a compiled function and what it uses, once, and returns its name."""
        tree = _parsed(compiled.src)
        name = tree.name if tree is not None else compiled.fn.__name__
        if not self._claim(name, compiled) or name in self._functions:
            return name
        if tree is None:
            self.missing.append(f"{name}, whose source cannot be read")
            return name
        self._functions[name] = ""  # it may call itself
        self._strings_for_types |= any(
            isinstance(annotation, str) for annotation in compiled.fn.__annotations__.values()
        )
        closure = _closure(compiled.fn)
        attributes = _attributes(tree)
        for used in sorted(_loaded(compiled.fn.__code__) | _in_signature(tree)):
            if used in closure:
                self._symbol(used, closure[used], name, attributes)
            elif used in compiled.fn.__globals__:
                self._symbol(used, compiled.fn.__globals__[used], name, attributes)
            elif not hasattr(builtins, used):
                self.missing.append(f"{used}, which {name} uses and which was not defined")
        del self._functions[name]  # behind what it uses
        decorators = [*(around or ()), _decorator(compiled)]
        self._functions[name] = "\n".join([*decorators, textwrap.dedent(compiled.src)])
        return name

    def expression(self, value: Any) -> str:
        """A constant as Python that can be evaluated in the program; "" and a sentence in `missing` for what has
        none."""
        text = self._expression(value)
        if text is None:
            self.missing.append(f"a constant of type {type(value).__name__} ({_short(value)})")
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
                self.dropped.append(
                    f"{what}, a function: the configurations are those that were left when the graph was made"
                )
        for name in ("user_defined_pre_hook", "user_defined_post_hook"):
            if getattr(tuner, name, False):
                self.dropped.append(f"{name.removeprefix('user_defined_')} of the autotuner, a function")
        return "@triton.autotune(\n    " + ",\n    ".join(parts) + ",\n)"

    def _config(self, config: Any) -> str:
        kwargs = ", ".join(f"{name!r}: {self.expression(value)}" for name, value in config.kwargs.items())
        fields = [
            f"{name}={value!r}" for name, usual in _CONFIG_FIELDS if (value := getattr(config, name, usual)) != usual
        ]
        if getattr(config, "pre_hook", None) is not None:
            self.dropped.append("pre_hook of a configuration, a function")
        return f"triton.Config({', '.join([f'{{{kwargs}}}', *fields])})"

    def _symbol(self, name: str, value: Any, user: str, attributes: dict[str, set[str]]) -> None:
        """Makes the program define a global or closed-over name as the user's module did."""
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
            self._constants[name] = (
                text  # a plain number stays one: Triton takes no such globals, and that is the user's failure
            )
        elif (line := _imported(name, value)) is not None:
            self._imports[name] = line
        else:
            kind = "function" if inspect.isfunction(value) else type(value).__name__
            self.missing.append(
                f"{name}, a {kind} of {getattr(value, '__module__', None) or 'the module'} that {user} uses"
            )

    def _module(self, name: str, module: ModuleType, user: str, attributes: set[str]) -> None:
        """An import; for a module of the user's, a namespace of what is used of it."""
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
        """Claims a name; False, with a sentence, where two modules call different things by it."""
        if not is_identifier(name):
            self.missing.append(f"{name!r}, which is no plain name")
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
            dtype_name = next(
                (name for name, dtype in _language().items() if dtype is value or _same_dtype(dtype, value)), None
            )
            return f"tl.{dtype_name}" if dtype_name else None
        return None


def is_compiled(value: Any) -> bool:
    """Whether a value is a function that Triton compiles: one under triton.jit or triton.constexpr_function."""
    return (
        type(value).__module__.startswith("triton.")
        and callable(getattr(value, "fn", None))
        and isinstance(getattr(value, "src", None), str)
    )


def decorators_of(kernel: Any) -> tuple[str, str]:
    """(the decorators that the user wrote, "path:line"), as far as they are known."""
    for _ in range(8):
        if hasattr(kernel, "raw_src"):
            text = textwrap.dedent("".join(kernel.raw_src))
            code = kernel.fn.__code__
            return text[
                : text.index("def ")
            ].rstrip() if "def " in text else "", f"{code.co_filename}:{code.co_firstlineno}"
        kernel = getattr(kernel, "fn", None)
    return "", ""


def _parsed(source: str) -> ast.FunctionDef | None:
    try:
        body = ast.parse(textwrap.dedent(source)).body
    except (SyntaxError, ValueError):
        return None
    return body[0] if body and isinstance(body[0], ast.FunctionDef) else None


def _loaded(code: CodeType) -> set[str]:
    """Global and closed-over names that a function reads, those of functions inside it included."""
    steps = list(dis.get_instructions(code))
    names = {str(step.argval) for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    names |= {str(step.argval) for step in steps if step.opname.startswith("LOAD_") and step.argval in code.co_freevars}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names |= _loaded(inner) - set(code.co_cellvars)
    return names


def _in_signature(tree: ast.FunctionDef) -> set[str]:
    """Names in default values and annotations, which are read when the function is defined."""
    arguments = tree.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    parts = [
        *arguments.defaults,
        *arguments.kw_defaults,
        tree.returns,
        *(argument.annotation for argument in every if argument is not None),
    ]
    return {node.id for part in parts if part is not None for node in ast.walk(part) if isinstance(node, ast.Name)}


def _attributes(tree: ast.FunctionDef) -> dict[str, set[str]]:
    """Name -> the attributes that are read of it: for modules of the user's."""
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
        except ValueError:  # not filled
            continue
    return values_by_name


def _decorator(compiled: Any) -> str:
    if type(compiled).__name__ == "ConstexprFunction":
        return "@triton.constexpr_function"
    options = [f"{name}={value!r}" for name in _JIT_FIELDS if (value := getattr(compiled, name, None))]
    return f"@triton.jit({', '.join(options)})" if options else "@triton.jit"


def _imported(name: str, value: Any) -> str | None:
    """The import of one of Triton's own objects, or None."""
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


def _language() -> dict[str, Any]:
    return vars(sys.modules["triton.language"])


def _same_dtype(dtype: Any, value: Any) -> bool:
    return type(dtype) is type(value) and dtype == value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
