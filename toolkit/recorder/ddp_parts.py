"""One part of a graph that DDP's optimizer cut at its buckets: which of how many, and the parameters in it.

Only reads metadata of fake values; see why_hooks for when it is called.

>>> described(compiler, submodule)
{'part': 2, 'of': 3, 'parameters': 4, 'bytes': 4198400, 'names': ["L['self'].a.weight", ...]}
"""

from __future__ import annotations

import threading
from typing import Any

from . import roles

_NAMES = 6


class _Here(threading.local):
    compiler: int = 0
    part: int = 0


_here = _Here()


def described(compiler: Any, submodule: Any) -> dict[str, Any]:
    """The fields of the journal event for the part that `compiler`, a SubmodCompiler, compiles now."""
    _here.part = _here.part + 1 if _here.compiler == id(compiler) else 1
    _here.compiler = id(compiler)
    parameters = [(item, node) for item, node in zip(roles.of_dynamo(submodule), _placeholders(submodule), strict=True)
                  if item.role == "parameter"]  # fmt: skip
    values = [node.meta.get("example_value") for _, node in parameters]
    return {
        "part": _here.part,
        "of": sum(node.op == "call_module" for node in compiler.module.graph.nodes),
        "parameters": len(parameters),
        "bytes": sum(value.numel() * value.element_size() for value in values if value is not None),
        "names": [item.source for item, _ in parameters[:_NAMES]],
    }


def _placeholders(gm: Any) -> list[Any]:
    return [node for node in gm.graph.nodes if node.op == "placeholder"]
