# pyright: basic
"""Watches code generation for kernels: which nodes each is made of, what it moves and computes. The code stays what it
is.

Inductor tells its provenance function of every kernel as its call is written, whether or not provenance is on (that
would put comments and handles into the code). While a stage `codegen` runs, that function is listened to at each place
that calls it.

>>> watch = KernelWatch()
>>> compiled = compile_fx(torch.fx.symbolic_trace(lambda x: x.sin() + 1), [x], observers=[watch])
>>> [(row.name, row.nodes) for row in watch.rows["inference"]]
[('cpp_fused_add_sin_0', ['sin', 'add'])]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from ..kernels.heard import both_ways, kernels_heard, line_of, names_of, numbered
from ..kernels.records import KernelRow
from .pipeline import Observer, StageReport
from .showing.kernel_table import DEAD, FOLDED, REWRITTEN, SIZE, VIEW
from .stage import Stage
from .work import Work


class KernelWatch(Observer):
    """Collects kernels by part. `rows` in the order in which they are called; `maps` node -> kernels; `without` node ->
    why none.

    `tell` is called with a part's name when its code is written; `name_of` gives the part of a Work another name.
    """

    def __init__(
        self, tell: Callable[[str], None] | None = None, name_of: Callable[[Work], str] = lambda work: work.part
    ) -> None:
        self.tell, self.name_of = tell, name_of
        self.rows: dict[str, list[KernelRow]] = {}
        self.maps: dict[str, dict[str, list[str]]] = {}
        self.without: dict[str, dict[str, str]] = {}
        self.lines: dict[str, dict[str, str]] = {}
        """Part -> node -> the user's line, of every node that has one."""
        self._before: dict[str, list[str]] = {}
        self._open = ExitStack()
        self._found: list[KernelRow] = []
        self._origins: list[list[Any]] = []

    def before(self, stage: Stage, work: Work) -> None:
        if stage.name == "post_grad":
            names = names_of(work.gm)
            self._before[self.name_of(work)] = [name for node, name in names.items() if node.op == "call_function"]
        if stage.name != "codegen":
            return
        self._found, self._origins = [], []
        self._open.enter_context(kernels_heard(self._hear))

    def after(self, stage: Stage, work: Work, report: StageReport) -> None:
        if stage.name != "codegen":
            return
        self._open.close()
        part = self.name_of(work)
        names = names_of(work.gm)
        order = {name: index for index, name in enumerate(names.values())}
        lines = {name: line for node, name in names.items() if (line := line_of(node))}
        for row, origins in zip(self._found, self._origins, strict=True):
            known = {str(names.get(node, node.name)) for node in origins}
            row.nodes = sorted(known, key=lambda name: order.get(name, len(order)))
            row.lines = list(dict.fromkeys(lines[name] for name in row.nodes if name in lines))
        self.rows[part] = numbered(self._found)
        self.maps[part] = both_ways(self._found)
        self.without[part] = _without(names, self.maps[part], self._before.get(part, ()))
        self.lines[part] = lines
        if self.tell is not None and not report.error:
            self.tell(part)

    def _hear(self, row: KernelRow, origins: list[Any], _: Any) -> None:
        self._found.append(row)
        self._origins.append(origins)


def _without(names: dict[Any, str], known: dict[str, list[str]], before: Sequence[str]) -> dict[str, str]:
    """Nodes that no kernel names, with the reason."""
    found: dict[str, str] = {}
    present = set(names.values())
    for node, name in names.items():
        if node.op == "call_function" and name not in known:
            found[name] = _why_none(node, known, names)
    for name in before:
        if name not in present:
            found[name] = REWRITTEN
    return found


def _why_none(node: Any, known: dict[str, list[str]], names: dict[Any, str]) -> str:
    value = node.meta.get("val")
    if getattr(node.target, "__name__", "") == "getitem" and node.args and hasattr(node.args[0], "name"):
        source = names[node.args[0]]
        kernels = known.get(source)
        return f"a result of {source}" + (f", in {', '.join(kernels)}" if kernels else "")
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return SIZE
    if not node.users:
        return DEAD
    schema = getattr(node.target, "_schema", None)
    aliases = [one.alias_info for one in schema.returns] if schema is not None else []
    if aliases and all(one is not None and not one.is_write for one in aliases):
        return VIEW
    return FOLDED
