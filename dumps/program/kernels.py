"""The user's own Triton kernels as text for programs: their definitions, and calls of them as a person would write
them.

Imports no torch and runs nothing. The definitions are the user's recorded source, so a program that contains them is
run only where the user trusts the dump. Without a GPU such a program lets Triton interpret the kernels.

For example:

    definitions(record.kernels).source  # -> '@triton.jit\\ndef add_kernel(...): ...'
    call(node, record.kernels, writer)  # -> 'add_kernel[(2, 1, 1)](a=y, b=x, o=o, n=32, BLOCK=16)'
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from .. import syntax
from ..errors import RefusedError
from ..schema import NodeRecord, TritonKernel
from ..walk import dict_items
from ..wording import counted

if TYPE_CHECKING:
    from .text import Writer

FUNCTIONAL = "higher_order.triton_kernel_wrapper_functional"
MUTATION = "higher_order.triton_kernel_wrapper_mutation"
INTERPRETED = (
    'os.environ.setdefault("TRITON_INTERPRET", str(int(not torch.cuda.is_available())))  # no GPU: Triton interprets'
)
"""The statement that stands between the imports of torch and of Triton."""

_LAUNCHED = [
    "def launched(kernel, grid, written, **given):",
    '    """What the kernel leaves in copies of what it writes."""',
    "    given |= {name: given[name].clone() for name in written}",
    "    kernel[grid](**given)",
    "    return {name: given[name] for name in written}",
]


@dataclass
class Definitions:
    """`imports`: statements that come before `source`, that of triton first; `names`: the names that `source`
    defines."""

    imports: list[str] = field(default_factory=list[str])
    source: str = ""
    names: set[str] = field(default_factory=set[str])
    strings_for_types: bool = False
    """Whether the program needs `from __future__ import annotations`."""


def definitions(kernels: Sequence[TritonKernel], *, functional: bool = True) -> Definitions:
    """The definitions of all kernels in one program; shared definitions stand once. `functional`: some calls are of
    FUNCTIONAL.

    Raises RefusedError where a kernel was not saved completely, or where two kernels use one name for different things.
    """
    defined, blocks, owners = Definitions(), dict[str, None](), dict[str, str]()
    for kernel in kernels:
        where = f"kernel {kernel.name}"
        if kernel.missing or not kernel.program:
            why = f"it was not saved completely: {'; '.join(kernel.missing) or 'its source was not kept'}"
            raise RefusedError(where, why)
        for names, text in _statements(kernel, where):
            if not names and text.startswith(("import ", "from ")):
                defined.strings_for_types |= "__future__" in text
                defined.imports += [text] if text not in defined.imports and "__future__" not in text else []
                continue
            for name in names:
                if owners.setdefault(name, text) != text:
                    raise RefusedError(where, f"{name} has another definition in another kernel of the graph")
            blocks[text] = None
        if len(_configs(kernel)) > 1:
            first = f"    {kernel.name}.configs = {kernel.name}.configs[:1]  # nothing can be timed"
            blocks[f"if not torch.cuda.is_available():\n{first}"] = None
    defined.names = set(owners)
    if functional and kernels:
        blocks["\n".join(_LAUNCHED)] = None
        defined.names.add("launched")
    defined.source = _joined(list(blocks))
    return defined


def call(node: NodeRecord, kernels: Sequence[TritonKernel], writer: Writer) -> str:
    """A wrapper node as an expression. Raises RefusedError for a call without a plain form."""
    place, where = node.kwargs.get("kernel_idx"), writer.where
    if not isinstance(place, int) or not 0 <= place < len(kernels):
        raise RefusedError(where, "the source of its Triton kernel was not recorded", "record the run again")
    kernel = kernels[place]
    if dict_items(node.kwargs.get("tma_descriptor_metadata")):
        raise RefusedError(where, f"the kernel {kernel.name} takes TMA descriptors, which a program cannot contain yet")
    grid = _grid(node, kernel, writer)
    name = writer.word(kernel.name)
    given = writer.keywords(dict_items(node.kwargs.get("kwargs")))
    given += [
        f"{writer.word(key)}={_constant(value, where)}" for key, value in dict_items(node.meta.get("triton_constants"))
    ]
    if node.target == MUTATION:
        return f"{name}[{grid}]({', '.join(given)})"
    written = writer.argument(node.kwargs.get("tensors_to_clone") or [])
    return f"launched({', '.join([name, grid, written, *given])})"


def _grid(node: NodeRecord, kernel: TritonKernel, writer: Writer) -> str:
    """The grid of a call; a function of the configuration where the grids differ."""
    grids = [writer.argument(axes) for axes in cast("list[Any]", node.kwargs.get("grid") or [])]
    if not grids:
        raise RefusedError(writer.where, "its grid was not recorded")
    if len(set(grids)) == 1:
        return grids[0]
    configs = _configs(kernel)
    if len(configs) != len(grids):
        why = f"it has {counted(len(grids), 'grid')} for {counted(len(configs), 'configuration')}"
        raise RefusedError(writer.where, why)
    text = grids[-1]
    for grid, config in list(zip(grids, configs, strict=True))[-2::-1]:
        same = " and ".join(f'meta["{key}"] == {value}' for key, value in config.items())
        text = f"{grid} if {same or 'True'} else {text}"
    return f"lambda meta: {text}"


def _constant(value: Any, where: str) -> str:
    """The text of a recorded constant, after a check that it is an expression."""
    try:
        syntax.expression(str(value))
    except (SyntaxError, ValueError) as error:
        raise RefusedError(where, f"the constant {str(value)[:60]!r} is not a Python expression") from error
    return str(value)


def _configs(kernel: TritonKernel) -> list[dict[str, str]]:
    """The constants of each configuration that the autotuner may choose, as texts."""
    choices: list[dict[str, str]] = []
    for node in ast.walk(_parsed(kernel, f"kernel {kernel.name}")):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "triton.Config" and node.args:
            config = node.args[0]
            pairs = zip(config.keys, config.values, strict=True) if isinstance(config, ast.Dict) else ()
            choices.append(
                {ast.literal_eval(key): ast.unparse(value) for key, value in pairs if isinstance(key, ast.Constant)}
            )
    return choices


def _parsed(kernel: TritonKernel, where: str) -> ast.Module:
    try:
        return syntax.parsed(kernel.program)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise RefusedError(where, f"its source is not Python ({error})") from error


def _statements(kernel: TritonKernel, where: str) -> Iterator[tuple[list[str], str]]:
    """Yields (the names that it defines, its text) for each statement."""
    lines = kernel.program.splitlines()
    for statement in _parsed(kernel, where).body:
        first = statement.lineno
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            first = min([first, *(target.lineno for target in statement.decorator_list)])
        text = "\n".join(lines[first - 1 : statement.end_lineno])
        names = [statement.name] if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) else []
        if isinstance(statement, ast.Assign):
            names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        yield names, text


def _joined(blocks: list[str]) -> str:
    """Definitions with two empty lines between them; assignments stay together."""
    text = ""
    for before, block in zip(["", *blocks], blocks, strict=False):
        apart = any(part.startswith(("@", "def ", "class ", "if ")) for part in (before, block))
        text += (("\n\n\n" if apart else "\n") if text else "") + block
    return text
