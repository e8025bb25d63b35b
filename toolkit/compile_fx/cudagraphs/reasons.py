"""Why CUDA graphs are not used, in a sentence: torch's reasons without their stacks, with the input's name and the
user's line.

Pure text and metadata. An unknown reason is given in torch's words. The operators, tags and the mask rule of
`unfit_nodes` are those by which Inductor decides where it splits a graph; what runs on the CPU it splits off, too.

>>> sentence("skipping cudagraphs due to mutated inputs (1 instances). Found from : ...", ["x"], [0])
'x is written to'
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from ....dumps.walk import user_frame
from ... import torch_private as t
from ..input_names import listed, name_at
from ..overlap import overlaps_itself

_PREFIX = re.compile(r"^\s*(?:skipping|disabling) cudagraphs due to\s+")
_WHERE = re.compile(r"\.?\s*Found from\s*:?.*", re.DOTALL)
_KEPT = "graphdbg_reason"


def sentence(
    reason: str,
    names: Sequence[Any] = (),
    mutated: Collection[int] = (),
    inputs: Sequence[Any] = (),
    devices: Collection[str] = ("cuda",),
) -> str:
    """One of torch's reasons. `mutated` are the inputs that are written to and may not be; `devices` are those of the
    graph."""
    text = reason
    while (shorter := _PREFIX.sub("", text)) != text:
        text = shorter
    text = " ".join(_WHERE.sub("", text).split()).rstrip(".")
    line, _ = user_frame(reason.replace("Found from", "Found from\n"))  # frames start lines
    where = f" ({line})" if line else ""
    if "cuda" not in devices:
        return "no CUDA device in this graph"
    if text.startswith("mutated inputs") and mutated:
        named = listed(name_at(names, index) for index in sorted(mutated))
        return f"{named} {'is' if len(mutated) == 1 else 'are'} written to{where}"
    if text == "complex memory overlap":
        unfit = [
            name_at(names, index)
            for index, value in enumerate(inputs)
            if isinstance(value, torch.Tensor) and overlaps_itself(value, expanded=False)
        ]
        return f"{listed(unfit)} overlaps itself (complex memory overlap)" if unfit else text
    if text == "non-Tensor inputs":
        unfit = [name_at(names, i) for i, v in enumerate(inputs) if not isinstance(v, (torch.Tensor, torch.SymInt))]
        return f"{listed(unfit)} is no tensor" if unfit else text
    return text + where


def keep(box: Any, reason: str) -> None:
    """Notes on what a forward and its backward share why the forward is not recorded."""
    if hasattr(box, "value"):
        setattr(box, _KEPT, reason)


def of_forward(box: Any) -> str:
    """Why the forward is not recorded, as `keep` noted it; empty when it is, or was never asked to be."""
    return getattr(box, _KEPT, "")


_PUTS = ("aten.index_put.default", "aten.index_put_.default", "aten._unsafe_index_put.default")


class Unfit(NamedTuple):
    """A node that splits a graph, or keeps it from being recorded."""

    node: str
    op: str
    line: str
    why: str

    def __str__(self) -> str:
        return f"{self.op} ({self.line}): {self.why}" if self.line else f"{self.op}: {self.why}"


def unfit_nodes(gm: Any, *, with_cpu: bool = True) -> list[Unfit]:
    """All such nodes in order, none of what is no graph; without those that run on the CPU if `with_cpu` is False."""
    unfit: list[Unfit] = []
    for node in gm.graph.nodes if hasattr(gm, "graph") else ():
        if node.op == "call_function" and (why := _why(node) or (_on_cpu(node) if with_cpu else "")):
            unfit.append(Unfit(node.name, str(node.target), user_frame(node.meta.get("stack_trace") or "")[0], why))
    return unfit


def _why(node: Any) -> str:
    target = node.target
    if str(target) in t.FORBIDDEN_CUDAGRAPH_OPS:
        return "it waits for the GPU or keeps state on the CPU"
    if torch.Tag.cudagraph_unsafe in getattr(target, "tags", ()):  # overloads have tags
        return "its author has marked it cudagraph_unsafe"
    if str(target) in _PUTS:
        indices = node.kwargs.get("indices", node.args[1] if len(node.args) > 1 else ())
        masks = [
            index for index in indices if index is not None and index.meta["val"].dtype in (torch.bool, torch.uint8)
        ]
        if masks:
            return "how many elements a mask picks is known on the GPU alone"
    values = list(_values(node))
    if any(isinstance(value, torch.Tensor) and value.is_sparse for value in values):
        return "it makes a sparse tensor"
    if any(t.free_unbacked_symbols(value) for value in values):
        return "its size is known on the GPU alone"
    return ""


def _on_cpu(node: Any) -> str:
    devices = {value.device.type for value in _values(node) if isinstance(value, torch.Tensor)}
    taken = {
        value.device.type
        for operand in node.all_input_nodes
        for value in _values(operand)
        if isinstance(value, torch.Tensor) and value.dim()
    }
    if "cpu" in devices:
        return "it copies to the CPU" if "cuda" in taken else "it runs on the CPU"
    return "it copies from the CPU" if "cpu" in taken and "cuda" in devices else ""


def _values(node: Any) -> Iterator[Any]:
    yield from t.pytree.tree_leaves(node.meta.get("val"))
