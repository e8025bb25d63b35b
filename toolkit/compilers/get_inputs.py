"""`get_inputs`: inputs for a saved graph: stored ones as they were, the others made up from what was saved of them and a seed.

Made-up inputs have the recorded dtype, shape, stride, offset, overlap, aliasing and range of values. Takes a saved graph
(RUN/ID or a case folder) and functorch's own `.input` files, which are pickles, so they are read by an unpickler that knows
metadata only.

>>> inputs = get_inputs("dumps/net/0_0/forward", seed=0)
>>> load_graph("dumps/net/0_0/forward").module()(*inputs)
>>> primals, tangents = get_inputs("dumps/net/0_0/joint", parts=True)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ...dumps.errors import UsageError
from ...dumps.store import load_graph
from .functorch_inputs import read

SUFFIX = ".input"


def get_inputs(path: str | os.PathLike[str], seed: int = 0, *, parts: bool = False) -> list[Any]:
    """One value per input, in order; the same for the same seed. Of a joint graph with `parts`: [primals, tangents].

    A `.input` file of a joint graph that has the two parts always gives both. Raises UsageError when `path` is no saved graph,
    RefusedError (an UnreadableError) for a pickle that holds anything else than metadata, EnvironmentLackError for a device or
    dtype that is not here.
    """
    pickled = _input_file(Path(path))
    if pickled is not None:
        return read(pickled, seed)
    saved = load_graph(os.fspath(path))
    inputs = saved.inputs(seed)
    if not parts:
        return inputs
    if saved.stage not in ("joint", "joint_passed"):
        raise UsageError(f"{path} has no parts", f"it is a {saved.stage} graph", "leave parts out")
    roles = {item.name: item.role for item in saved.record.inputs}
    names = [node.name for node in saved.record.graph.nodes if node.op == "placeholder"]
    is_tangent = [roles.get(name) == "tangent" or name.startswith("tangents_") for name in names]
    pairs = list(zip(is_tangent, inputs, strict=True))
    return [[value for tangent, value in pairs if tangent == wanted] for wanted in (False, True)]


def _input_file(path: Path) -> Path | None:
    """The pickle that a path names: itself, or the only one in a folder that functorch wrote."""
    if path.suffix == SUFFIX and path.is_file():
        return path
    found = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else []
    if len(found) > 1:
        raise UsageError(f"{path} holds several {SUFFIX} files", ", ".join(one.name for one in found), "name one")
    return found[0] if found else None
