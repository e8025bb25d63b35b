"""Which calls of a small graph can be written with functions of torch: each is checked with the values that it has in the graph.

The table of forms and the check are `torch_names` and `plain_calls`: same bits, same strides, same aten calls
when traced. It is asked in a process of its own, since it runs the graph. Must not import torch before `spelled` is called.

>>> ask(Path("out/case"), ())                                                          # doctest: +SKIP
{'relu', 'mul'}
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .verify import run_command

LIMIT_S = 120.0
_SCRIPT = """
import json, sys
from graphdbg.minifier.report.plain_names import spelled
found = json.dumps(sorted(spelled(sys.argv[1], sys.argv[2:])))
with open("answer", "w") as file:
    file.write(found)
"""


def ask(folder: Path, imports: Sequence[str], **how: Any) -> set[str]:
    """The names of nodes whose call has a plain form that is the same; none where that process dies. `how`: of run_command."""
    found: set[str] = set()

    def read(cwd: Path) -> None:
        answer = cwd / "answer"
        found.update(json.loads(answer.read_text()) if answer.exists() else ())

    command = [sys.executable, "-c", _SCRIPT, str(folder.resolve()), *imports]
    run_command(command, limit_s=LIMIT_S, after=read, **how)
    return found


def spelled(folder: str, imports: Sequence[str] = ()) -> set[str]:
    """The same, in this process: it runs the graph of a case folder eagerly, as far as eager mode gets."""
    import torch
    from torch import fx

    from ...toolkit.case import Case
    from ...toolkit.eager import GraphRunError, run_graph
    from ...toolkit.imports import import_modules
    from ...toolkit.plain_calls import is_same, plain_of

    import_modules(imports)
    case = Case.at(folder).live()
    found: set[str] = set()
    values: dict[fx.Node, Any] = {}

    def look(node: fx.Node, value: Any) -> Any:
        values[node] = value
        if plain_of(node) is not None:
            args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            if is_same(node.target, args, kwargs):
                found.add(node.name)
        return value

    with torch.no_grad(), contextlib.suppress(GraphRunError):
        run_graph(case.gm, case.inputs, hook=look)
    return found
