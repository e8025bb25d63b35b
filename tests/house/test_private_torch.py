"""Private torch names stand in two tables, exist in the torch that is installed, and are used nowhere past the
tables."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType

import pytest
import torch

from graphdbg.dumps.errors import LacksName
from graphdbg.dumps.private_names import Names, Row
from graphdbg.dumps.torchside.torch_private import NAMES as OF_DUMPS
from graphdbg.toolkit.torch_private import NAMES as OF_TOOLKIT

from .source_tree import ROOT, Module, modules

HOMES = ("toolkit/torch_private/", "dumps/torchside/torch_private.py")

TEXTS: dict[str, str] = {
    "dumps.private_names": "where functions may be hooked",
    "dumps.program.function": "text of a program",
    "dumps.program.module": "text of a program",
    "dumps.program.text": "text of a program",
    "dumps.program.entering": "text of a program",
    "dumps.allowlist": "functions that a saved graph may call, by name",
    "dumps.torchside.targets": "modules of functions that a saved graph calls; "
    "functions that a saved graph calls, by name",
    "dumps.torchside.values": "a type as a saved graph names it",
    "toolkit.cutting.atoms": "the module of functions that switch modes",
    "toolkit.blame.bisect_words": "settings in words",
    "toolkit.compile_fx.errors.case": "where a frame is from",
    "toolkit.compilers.get_inputs": "text of a file that functorch would have written",
    "toolkit.isolation.child": "modules that are imported for programs that are none of ours",
    "toolkit.verdicts.signature": "names that are alike in error messages",
    "toolkit.autoload": "a module that is looked for in sys.modules",
    "toolkit.recorder.starting": "a module whose import is waited for",
    "toolkit.recorder.summary": "text for the user; a module that is looked for in sys.modules",
    "toolkit.rungs.aot_inductor": "the name of a logger",
    "toolkit.triton.interpreting.language": "modules whose functions are interpreted",
}
"""Modules that may have private names as texts, and what these are."""

_TEXT = re.compile(r"torch(\.\w+)+")


def is_private(name: str) -> bool:
    """True for torch._inductor.x and torch.fx.graph._y; false for torch.ops.aten._softmax and torch.__version__."""
    parts = name.split(".")
    if parts[0] != "torch" or parts[:2] == ["torch", "ops"]:
        return False
    return any(part.startswith("_") and not part.startswith("__") for part in parts[1:])


def dotted(node: ast.expr) -> str | None:
    """`a.b.c` of an attribute chain on a plain name, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def private_names(module: Module) -> Iterator[tuple[int, str]]:
    """(line, name) of each private torch name that the module's code uses, or has as a text that is not prose."""
    for item in module.imports:
        if not item.ours and is_private(item.module):
            yield item.line, item.module
    for node in module.nodes:
        name = dotted(node) if isinstance(node, ast.Attribute) else None
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and module.name not in TEXTS:
            name = node.value if _TEXT.fullmatch(node.value) else None
        if name and is_private(name):
            yield node.lineno, name


def test_each_module_with_such_texts_has_some() -> None:
    with_some = {
        module.name
        for module in modules()
        for node in module.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"torch(\.\w+)*\._", node.value)
    }
    assert set(TEXTS) <= with_some, set(TEXTS) - with_some


def is_home(module: Module) -> bool:
    return str(module.path.relative_to(ROOT)).startswith(HOMES)


def test_private_torch_names_stay_in_their_home() -> None:
    wrong = [
        f"{module.path}:{line} uses {name}"
        for module in modules()
        if not is_home(module)
        for line, name in private_names(module)
    ]
    why = "a private name of torch is a row of toolkit/torch_private/names.py, and code takes it as torch_private.NAME:"
    assert not wrong, "\n".join([why, *wrong])


@cache
def used(texts: bool = True) -> dict[str, str]:
    """Name of a table, or chain of attributes that begins with one -> a place that takes it, or has it as a text."""
    results: dict[str, str] = {}
    for module in modules("dumps", "toolkit", "minifier"):
        aliases = {
            alias.asname or alias.name
            for node in module.nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if _of_table(node, alias)
        }
        for node in module.nodes if aliases else ():
            chain = (dotted(node) or "") if isinstance(node, ast.Attribute) else ""
            first, _, rest = chain.partition(".")
            if first in aliases:
                results.setdefault(rest, f"{module.path}:{node.lineno}")
            elif texts and isinstance(node, ast.Constant) and isinstance(node.value, str):
                results.setdefault(node.value, f"{module.path}:{node.lineno}")
    return results


def _of_table(node: ast.ImportFrom, alias: ast.alias) -> bool:
    return node.level > 0 and "torch_private" in f"{node.module}.{alias.name}".split(".")


@pytest.mark.parametrize("names", [OF_DUMPS, OF_TOOLKIT], ids=["dumps", "toolkit"])
def test_every_row_exists_in_this_torch(names: Names) -> None:
    lacking = names.lacking(torch.__version__, cuda=torch.version.cuda is not None)
    assert not lacking, f"the torch here lacks these; give their rows the versions that have them: {lacking}"


def test_every_row_is_used() -> None:
    idle = [
        name for names in (OF_DUMPS, OF_TOOLKIT) for row in names.rows for name in row.places() if name not in used()
    ]
    assert not idle, f"no code takes these as `torch_private.NAME`; remove their rows: {idle}"


def test_a_private_attribute_of_a_name_is_a_row_too() -> None:
    known = {name for names in (OF_DUMPS, OF_TOOLKIT) for row in names.rows for name in row.places()}
    wrong = [
        f"{place} takes {chain}"
        for chain, place in used().items()
        if "." in chain
        and chain.split(".")[0] in known
        and chain not in known
        and any(part.startswith("_") and not part.startswith("__") for part in chain.split(".")[1:])
    ]
    assert not wrong, "\n".join(wrong)


def test_what_is_taken_of_a_class_or_module_exists() -> None:
    wrong: list[str] = []
    for chain, place in used(texts=False).items():
        first, *rest = chain.split(".")
        owner = OF_TOOLKIT.optional(first) if rest and first in OF_TOOLKIT else None
        while rest and isinstance(owner, (type, ModuleType)):
            wrong += [f"{place} takes {chain}"] if not hasattr(owner, rest[0]) else []
            owner = getattr(owner, rest.pop(0), None)
    assert not wrong, "\n".join(wrong)


def test_a_name_has_one_meaning() -> None:
    meant: dict[str, set[str]] = {}
    for row in (*OF_DUMPS.rows, *OF_TOOLKIT.rows):
        for name, path in row.places().items():
            meant.setdefault(name, set()).add(f"{row.module}.{path}")
    wrong = {name: places for name, places in meant.items() if len(places) > 1}
    assert not wrong, f"a name stands for one thing of torch in both tables; rename one: {wrong}"


def test_every_row_says_who_needs_it() -> None:
    silent = [row.module for names in (OF_DUMPS, OF_TOOLKIT) for row in names.rows if not row.needed_by]
    assert not silent, f"rows that do not say who needs them: {silent}"


def test_a_missing_name_is_told_in_a_sentence() -> None:
    names = Names([Row("torch._guards", "Renamed", "replay"), Row("torch._gone", "name", "replay")])
    text = r"torch \S+ has no torch\._guards\.Renamed, which is needed by replay\. Versions 2"
    with pytest.raises(LacksName, match=text) as raised:
        names.look_up("Renamed")
    assert raised.value.exit_code == 3
    with pytest.raises(LacksName, match=r"no torch\._gone\.name \(No module named 'torch\._gone'\)"):
        names.look_up("name")
    with pytest.raises(AttributeError):
        names.look_up("of_no_row")
    assert names.optional("Renamed", 7) == 7
    assert [name for name, _ in names.lacking("2.13.0", cuda=False)] == ["torch._guards.Renamed", "torch._gone.name"]


def test_versions_of_a_row() -> None:
    def expected(seen: str, version: str) -> bool:
        return Row("torch", "x", "replay", "", seen).expected(version, cuda=False)

    assert expected("", "2.11.0") and expected("2.13-", "2.13.0+cpu") and expected("-2.11", "2.11.1")
    assert not expected("2.13-", "2.12.1") and not expected("-2.11", "2.12.1") and not expected("CUDA", "2.13.0")


def test_functions_are_looked_up_anew_and_classes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        Row("torch._functorch.aot_autograd", "make_boxed_func", "replay"),
        Row("torch._guards", "TracingContext", "replay"),
    ]
    names = Names(rows)
    kept = names.look_up("TracingContext")
    monkeypatch.setattr("torch._functorch.aot_autograd.make_boxed_func", str.title)
    monkeypatch.setattr("torch._guards.TracingContext", int)
    assert names.look_up("make_boxed_func") is str.title
    assert names.look_up("TracingContext") is kept


def test_the_scan_tells_private_from_public() -> None:
    assert is_private("torch._inductor.config")
    assert is_private("torch.fx.graph._Namespace")
    assert not is_private("torch.ops.aten._softmax.default")
    assert not is_private("torch.__version__")
    assert not is_private("click._compat")
