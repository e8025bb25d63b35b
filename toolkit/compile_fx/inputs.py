"""The inputs of a compiled graph: what they are called, which share memory, and the copy of those that are misaligned.

Names are those of the graph (primals_3) and of the user's program (model.fc.weight), from metadata alone, of Dynamo's
sources and AOTAutograd's descriptors; an input that nothing more is known about has its placeholder's name. They are
kept on the nodes, which are no part of a cache key.

Elements of one tensor may share memory (expanded, windows of as_strided), or those of two tensors. Such inputs cannot
be written element by element in any order, and copies of two that overlap no longer do: CUDA graphs and alignment have
to know. Overlap is decided exactly, by whether a sum of strides can be zero, with a limit on the work; beyond the limit
the answer is True. Reads sizes as integers (hints of symbolic ones), adds no guards, touches no memory.

>>> [str(name) for name in names_of(gm)]
['primals_1', 'primals_2', 'primals_3', 'primals_4', 'primals_5']
>>> overlaps_itself(torch.empty(9).as_strided((3, 3), (2, 1)))
True
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from math import gcd
from typing import Any, NamedTuple

import torch

from ...dumps.torchside.values import storage_key
from ...dumps.wording import counted
from .. import torch_private as t

_KEPT = "_graphdbg_user_name"
_INDEXED = re.compile(r"\._(?:modules|parameters|buffers)\['([^']*)'\]")
_LOCAL = re.compile(r"^[LG]\['([^']*)'\]")


class InputName(NamedTuple):
    """`placeholder` of the graph; `user`: what the program calls it, empty when unknown."""

    placeholder: str
    user: str = ""

    def __str__(self) -> str:
        known = self.user and self.user != self.placeholder
        return f"{self.placeholder} ({self.user})" if known else self.placeholder


def readable(source: str) -> str:
    """Dynamo's source expression as a user writes it: L['self']._modules['fc']._parameters['weight'] is
    self.fc.weight."""
    return _LOCAL.sub(r"\1", _INDEXED.sub(r".\1", source))


def keep_names(gm: Any, original: Any) -> None:
    """Keeps, on the placeholders of a graph of AOTAutograd's, the names from the graph that it was traced from."""
    if not hasattr(original, "graph"):
        return
    arguments = [_from_dynamo(node) for node in original.graph.find_nodes(op="placeholder")]
    for node in gm.graph.find_nodes(op="placeholder"):
        described = node.meta.get("desc")
        index = getattr(described, "idx", None)
        if type(described).__name__ == "PlainAOTInput" and isinstance(index, int) and index < len(arguments):
            setattr(node, _KEPT, arguments[index])


def names_of(gm: Any) -> list[InputName]:
    """The name of each input, in order; empty for something that is no graph."""
    if not hasattr(gm, "graph"):
        return []
    return [InputName(node.name, _user_name(node)) for node in gm.graph.find_nodes(op="placeholder")]


def name_of(node: Any) -> InputName:
    """The name of one placeholder, of Dynamo's graph or one of AOTAutograd's."""
    return InputName(node.name, _user_name(node) or _from_dynamo(node))


def names_for(work: Any) -> list[InputName]:
    """The names of a part's inputs; for a graph from AOTAutograd's cache, the placeholder names that torch keeps for
    CUDA graphs."""
    kept = getattr(getattr(work.compiled, "cudagraph_info", None), "placeholders", None) or ()
    return names_of(work.gm) or [InputName(placeholder.name) for placeholder in kept]


def name_at(names: Sequence[Any], index: int) -> str:
    """The name of one input, by its number where the graph gave none."""
    return str(names[index]) if index < len(names) else f"input {index}"


def _user_name(node: Any) -> str:
    if kept := getattr(node, _KEPT, ""):
        return kept
    described = node.meta.get("desc")
    for asked in ("is_param", "is_buffer"):
        if hasattr(described, asked) and getattr(described, asked)():
            return str(getattr(described, "target", ""))
    return ""


def _from_dynamo(node: Any) -> str:
    source = getattr(node, "_dynamo_source", None)
    name = getattr(source, "name", "")
    return readable(str(name() if callable(name) else name)) or node.name


_STEPS = 20_000
"""How many steps are tried before an overlap is assumed; layouts that occur need a few."""

Term = tuple[int, int, int]
"""A stride in bytes and the least and greatest factor that it may have."""


def expanded_dims(tensor: Any) -> list[int]:
    """Dimensions along which every element is the same one: stride 0 and more than one of them. [] for what is no
    tensor."""
    layout = _layout(tensor) if isinstance(tensor, torch.Tensor) else None
    return [] if layout is None else [d for d, (n, s) in enumerate(zip(*layout[:2], strict=True)) if s == 0 and n != 1]


def without_expanded(tensor: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """A view of the first element along each of `dims`: all there is to read or write."""
    for dim in dims:
        tensor = tensor.narrow(dim, 0, 1)
    return tensor


def overlaps_itself(tensor: torch.Tensor, *, expanded: bool = True) -> bool:
    """Whether two elements of a tensor are the same memory. With `expanded` False, expanded dimensions do not count."""
    layout = _layout(tensor)
    if layout is None or 0 in layout[0]:
        return False
    every = [(stride, size) for size, stride in zip(*layout[:2], strict=True) if size > 1]
    dims = [(stride, size) for stride, size in every if stride]
    if expanded and len(dims) < len(every):
        return True
    if _nested(dims):
        return False
    # two different elements with the same offset: a difference of indices, not all zero, that adds up to nothing
    terms: list[Term] = [(stride, 1 - size, size - 1) for stride, size in dims]
    return any(_reaches([(stride, 1, most), *terms[at + 1 :]], 0) for at, (stride, _, most) in enumerate(terms))


class SharedMemory(NamedTuple):
    """Two inputs, by index, that have memory in common: "the same memory", or they "overlap"."""

    first: int
    second: int
    how: str


def shared(inputs: Sequence[Any]) -> list[SharedMemory]:
    """The pairs of inputs, real or fake, that have memory in common. Views that lie side by side in one storage have
    none."""
    by_storage: dict[int, list[int]] = {}
    for index, value in enumerate(inputs):
        if isinstance(value, torch.Tensor) and (storage := _storage_id(value)) is not None:
            by_storage.setdefault(storage, []).append(index)
    pairs = [pair for group in by_storage.values() if len(group) > 1 for pair in _near(group, inputs)]
    return sorted(SharedMemory(a, b, how) for a, b in pairs if (how := _how(inputs[a], inputs[b])))


def _near(group: list[int], inputs: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Pairs of one storage whose spans meet. Thousands of views side by side, as of a flat parameter, make no pairs."""
    spans = sorted((*_span(inputs[index]), index) for index in group)
    for at, (_, end, index) in enumerate(spans):
        for start, _, other in spans[at + 1 :]:
            if start >= end:
                break
            yield min(index, other), max(index, other)


def _span(tensor: torch.Tensor) -> tuple[float, float]:
    """The first byte of a tensor and the byte after its last; infinite where the layout is not known."""
    layout = _layout(tensor)
    if layout is None:
        return float("-inf"), float("inf")
    sizes, strides, offset = layout
    start = offset * tensor.dtype.itemsize
    if 0 in sizes:
        return start, start
    reach = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return start, start + (reach + 1) * tensor.dtype.itemsize


def described(inputs: Sequence[Any], names: Sequence[Any], most: int = 4) -> list[str]:
    """A sentence for each input that overlaps itself and for each two that overlap, up to `most`, and how many more
    there are."""
    sentences: list[str] = []
    for index, value in enumerate(inputs):
        if isinstance(value, torch.Tensor) and overlaps_itself(value):
            dims = [] if overlaps_itself(value, expanded=False) else expanded_dims(value)
            kind = f"expanded along {_dims(dims)}" if dims else "a window"
            layout = f"sizes {_text(value.shape)}, strides {_text(value.stride())}"
            sentences.append(f"{name_at(names, index)} overlaps itself ({kind}: {layout})")
    for first, second, how in shared(inputs):
        verb = "are " if how == "the same memory" else ""
        sentences.append(f"{name_at(names, first)} and {name_at(names, second)} {verb}{how}")
    more = len(sentences) - most
    return [*sentences[:most], f"and {counted(more, 'more overlap')}"] if more > 0 else sentences


def _how(left: torch.Tensor, right: torch.Tensor) -> str:
    """How two tensors on one storage have memory in common; empty when they have none."""
    first, second = _layout(left), _layout(right)
    if first is None or second is None:
        return "overlap"
    if 0 in first[0] or 0 in second[0]:
        return ""
    if first == second and left.dtype == right.dtype:
        return "the same memory"
    # a byte of both tensors: the differences of indices and of the byte within the element add up to the distance of
    # the offsets
    terms: list[Term] = []
    for (sizes, strides, _), each, sign in ((first, left.dtype.itemsize, 1), (second, right.dtype.itemsize, -1)):
        steps = [*((size, stride * each) for size, stride in zip(sizes, strides, strict=True)), (each, 1)]
        terms += [(sign * stride, 0, size - 1) for size, stride in steps if size > 1 and stride]
    distance = second[2] * right.dtype.itemsize - first[2] * left.dtype.itemsize
    return "overlap" if _reaches(terms, distance) else ""


def _nested(dims: list[tuple[int, int]]) -> bool:
    """Whether each stride steps over all that the smaller ones reach: then nothing can overlap. True for all dense
    tensors."""
    reach = 0
    for stride, size in sorted(dims):
        if stride <= reach:
            return False
        reach += stride * (size - 1)
    return True


def _reaches(terms: list[Term], target: int) -> bool:
    """Whether factors within their limits make the strides add up to `target`; True as well when that takes too long to
    tell."""
    ordered = sorted(terms, key=lambda term: -abs(term[0]))
    spans = [(min(s * low, s * high), max(s * low, s * high)) for s, low, high in ordered]
    behind = range(len(ordered) + 1)
    least, most = ([sum(span[end] for span in spans[at:]) for at in behind] for end in (0, 1))
    divisor = [gcd(*(stride for stride, _, _ in ordered[at:])) for at in behind]
    steps = 0

    def search(at: int, left: int) -> bool:
        nonlocal steps
        steps += 1
        if steps > _STEPS:
            return True
        if at == len(ordered):
            return left == 0
        if not least[at] <= left <= most[at] or (left % divisor[at] if divisor[at] else left):
            return False
        stride, low, high = ordered[at]
        # the remainder must be within reach of the remaining terms: only a few factors leave such a remainder
        ends = (left - most[at + 1], left - least[at + 1])
        lowest, highest = (ends[0], ends[1]) if stride > 0 else (ends[1], ends[0])
        low, high = max(low, -(-lowest // stride)), min(high, highest // stride)
        return any(search(at + 1, left - stride * factor) for factor in range(low, high + 1))

    return search(0, target)


def _layout(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """Sizes, strides and offset as integers; None for what has no strides or whose sizes nobody knows."""
    if tensor.layout is not torch.strided:
        return None
    values = [_hint_of(value) for value in (*tensor.shape, *tensor.stride(), tensor.storage_offset())]
    known = tuple(value for value in values if value is not None)
    return (known[: tensor.ndim], known[tensor.ndim : -1], known[-1]) if len(known) == len(values) else None


def _dims(dims: Sequence[int]) -> str:
    return ("dimension " if len(dims) == 1 else "dimensions ") + ", ".join(map(str, dims))


def _text(values: Sequence[Any]) -> str:
    return "(" + ", ".join(map(str, values)) + ")"


def _hint_of(value: Any) -> int | None:
    """A size as an integer, a symbolic one by its hint; None where it has none. No guard is added."""
    if not isinstance(value, torch.SymInt):
        return int(value)
    hint = value.node.hint
    return hint if isinstance(hint, int) else None


def _storage_id(tensor: torch.Tensor) -> int | None:
    """A key that is equal for tensors on one storage, also for fake ones; None for tensors without a storage."""
    try:
        return storage_key(tensor)
    except (NotImplementedError, RuntimeError):  # sparse, opaque
        return None


BYTES = 16
Call = Callable[[list[Any]], Any]
Tell = Callable[[str], None]


def in_wrapper(to_check: Sequence[int], mutated: Collection[int], deferred: bool) -> list[int]:
    """The inputs that are checked before the call. Where the generated code copies by itself (2.13), only those that
    are written to."""
    return [index for index in to_check if not deferred or index in mutated]


def aligning(
    call: Call,
    to_check: Sequence[int],
    mutated: Collection[int] = (),
    names: Sequence[Any] = (),
    tell: Tell | None = None,
) -> Call:
    """Wraps `call` in a check of the inputs `to_check`: a misaligned one is copied, and written back if it is one of
    `mutated`.

    `tell` gets a sentence for each input when it is copied for the first time.
    """
    if not to_check:
        return call
    indices, written, reported = tuple(to_check), frozenset(mutated), set[int]()

    def run(inputs: list[Any]) -> Any:
        back: list[tuple[torch.Tensor, torch.Tensor]] = []
        for index in indices:
            given = inputs[index]
            if given.data_ptr() % BYTES:
                copy = inputs[index] = t.clone_preserve_strides(given)
                if index in written:
                    back.append((given, copy))
                if tell is not None and index not in reported:
                    reported.add(index)
                    tell(f"{name_at(names, index)} did not start on {BYTES} bytes: copied where that is so")
        outputs = call(inputs)
        for given, copy in back:
            given.copy_(copy)
        return outputs

    return run
