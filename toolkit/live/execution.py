"""Executes a graph once and gives a flat list of results: outputs, gradients where there are any, and inputs that were
changed in place.

The same procedure serves eager, float64 and every rung, so that their lists can be compared place by place.

>>> execute(lambda inputs: gm(*inputs), inputs, seed=0).outputs[0].shape
torch.Size([2, 4])
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from ...dumps.names import of_module
from ...dumps.torchside import wrappers
from ...dumps.torchside.history import leaves_of
from .. import torch_private as t
from .eager import attribute, nodes_in


class Execution(NamedTuple):
    """The results of a run: outputs, gradients of the leaves, and the inputs afterwards, possibly followed by the
    graph's own tensors.

    `aliases`: for each output, the input whose memory it shares (-1: none) and its storage offset.
    """

    outputs: list[Any]
    gradients: list[Any]
    inputs: list[Any]
    aliases: Sequence[Sequence[int]] = ()

    def results(self, changed: Sequence[int]) -> list[Any]:
        """Outputs, gradients, and the inputs at the places `changed`, in this order; wrapper tensors as the tensors
        that they hold."""
        return [*self.outputs, *self.gradients, *(wrappers.whole(self.inputs[index]) for index in changed)]

    def nans(self, changed: Sequence[int], names: Sequence[str]) -> list[str]:
        """The names of the results that hold a NaN."""
        return [name for name, value in zip(names, self.results(changed), strict=False) if _has_nan(value)]


def execute(
    run: Callable[[list[Any]], Sequence[Any]],
    inputs: list[Any],
    *,
    seed: int,
    backward: bool = False,
    parameters: Sequence[torch.Tensor] = (),
) -> Execution:
    """Runs once under a seed. `backward`: outputs that require grad get seeded normal tangents, and gradients are
    computed for inputs and `parameters`; for a non-leaf, at the leaf that it was computed from. Inputs are changed in
    place as the graph does, so pass clones."""
    torch.manual_seed(seed)
    leaves = list(leaves_of([*inputs, *parameters]).values())
    given = list(inputs)
    with torch.set_grad_enabled(torch.is_grad_enabled()):  # restores grad mode, even after an error
        outputs = list(run(inputs))
    settle()
    aliases = _aliases(outputs, given)
    if not backward:
        return Execution([wrappers.whole(output) for output in outputs], [], inputs, aliases)
    roots = [output for output in outputs if isinstance(output, torch.Tensor) and output.requires_grad]
    if not leaves or not roots:
        return Execution(_detached(outputs), [], inputs, aliases)
    with contextlib.ExitStack() as plainly:  # a program's backward runs outside its forward's autocast
        for device in {root.device.type for root in roots}:
            if torch.amp.is_autocast_available(device):
                plainly.enter_context(torch.autocast(device, enabled=False))
        gradients = torch.autograd.grad(roots, leaves, tangents(roots, seed), allow_unused=True)
    settle()
    return Execution(_detached(outputs), [wrappers.whole(gradient) for gradient in gradients], inputs, aliases)


def tangents(roots: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """The tangents with which the backward of a run with this seed begins."""
    generator = torch.Generator().manual_seed(seed)
    return [_tangent(root, generator) for root in roots]


def result_names(gm: fx.GraphModule, inputs: Sequence[Any], gradients: int, changed: Sequence[int]) -> list[str]:
    """Names for an execution's results: outputs, gradients, changed inputs."""
    called = of_module(gm)
    given = list(called.inputs.values())
    named = [*zip(given, inputs, strict=False), *gm.named_parameters()]
    leaves = [named[place][0] for place in leaves_of([value for _, value in named])]
    grads = [f"grad of {name}" for name in leaves]
    grads = grads if len(grads) == gradients else ["the gradient of an input"] * gradients
    given += [name for name, _ in held(gm)]
    return [*called.outputs, *grads, *(f"{given[index]}, written in place" for index in changed)]


def settle() -> None:
    """Waits until a CUDA device is idle, so that a failure or a hang there belongs to the run that began it."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def device_lost() -> bool:
    """Whether a kernel's error (an assert, an out-of-bounds access) destroyed the CUDA context: whatever this process
    runs on the device afterwards raises, mostly another error (`cublasCreate` fails, say)."""
    try:
        settle()
    except torch.AcceleratorError:
        return True
    return False


def changed_inputs(before: Sequence[Any], after: Sequence[Any]) -> list[int]:
    """The places of the tensors whose bits are not what they were; version counters miss what compiled kernels
    write."""
    both = enumerate(zip(before, after, strict=True))
    return [index for index, (old, new) in both if isinstance(old, torch.Tensor) and not same_bits(old, new)]


PACKED = torch.float4_e2m1fn_x2
"""A dtype with two numbers per byte: torch moves them but cannot compute with them."""


def as_bytes(value: Any) -> Any:
    """A tensor of packed numbers viewed as bytes; any other value unchanged."""
    return value.view(torch.uint8) if isinstance(value, torch.Tensor) and value.dtype == PACKED else value


def same_bits(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype hold the same values, NaN being equal to NaN."""
    a, b = (as_bytes(wrappers.whole(each.detach())) for each in (tensor, other))
    if a.is_quantized:
        return True  # quantized: assumed equal
    if a.shape != b.shape:
        return False
    if a.dtype == b.dtype and torch.equal(a, b):
        return True
    return bool(((a == b) | ((a != a) & (b != b))).all())


def is_unused_state(value: Any) -> bool:
    """Whether a value may be the seed or offset that an attention kernel leaves uninitialised without dropout: at most
    two integers."""
    return isinstance(value, torch.Tensor) and value.dtype in (torch.int64, torch.uint64) and value.numel() <= 2


def identical(value: Any, other: Any) -> bool:
    """Whether two results are the same to the last bit, the sign of a zero included; values that cannot be compared are
    not."""
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(value) is type(other) and value == other
    if (value.shape, value.dtype, value.device, value.layout) != (other.shape, other.dtype, other.device, other.layout):
        return False
    if value.layout != torch.strided or value.is_quantized or value.is_complex():
        return False
    value, other = as_bytes(value), as_bytes(other)
    same = same_bits(value, other)
    return same and (not value.is_floating_point() or torch.equal(value.signbit(), other.signbit()))


class Attributes:
    """Restores the constants, buffers and parameters of a graph that writes to them, between its runs; as a context,
    after the block."""

    def __init__(self, gm: fx.GraphModule) -> None:
        every = [value for value in _held_tensors(gm) if value.layout == torch.strided and not value.is_quantized]
        self._kept = {id(value): (value, value.detach().clone()) for value in dict.fromkeys(every)}

    def before(self, gm: fx.GraphModule) -> list[torch.Tensor]:
        """The tensors of `gm` as they were at the start."""
        return [self._kept[id(value)][1] if id(value) in self._kept else value.detach() for _, value in held(gm)]

    def __enter__(self) -> Attributes:
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()

    def execute(
        self,
        gm: fx.GraphModule,
        run: Callable[[list[Any]], Sequence[Any]],
        inputs: list[Any],
        seed: int,
        backward: bool,
    ) -> Execution:
        """Executes `run`, of `gm` (this graph, or another form of it), with gradients for its parameters; adds what it
        left in the graph's tensors, and restores these."""
        parameters = [parameter for parameter in gm.parameters() if backward and parameter.requires_grad]
        with self:
            return self._taken(execute(run, inputs, seed=seed, backward=backward, parameters=parameters), gm)

    def _taken(self, ran: Execution, gm: fx.GraphModule) -> Execution:
        left = [(now, kept) for (_, now), kept in zip(held(gm), self.before(gm), strict=True)]
        written = [now for now, kept in left if not same_bits(now, kept)]
        inputs = [*ran.inputs, *(kept if same_bits(now, kept) else now.detach().clone() for now, kept in left)]
        places = {tensor.untyped_storage().data_ptr() for tensor in written}
        outputs = [output.clone() if _memory(output) in places else output for output in ran.outputs]
        return ran._replace(outputs=outputs, inputs=inputs)

    def restore(self) -> None:
        """Restores every tensor of the graph to its value at the start."""
        for value, kept in self._kept.values():
            if not same_bits(value, kept):
                with torch.no_grad():
                    value.detach().copy_(kept)


def held(gm: fx.GraphModule) -> list[tuple[str, torch.Tensor]]:
    """The tensors that a graph's `get_attr` nodes read, in order, each with the name of its first node."""
    first: dict[str, str] = {}
    for node in gm.graph.find_nodes(op="get_attr"):
        first.setdefault(str(node.target), node.name)
    tensors = [(name, attribute(gm, path)) for path, name in first.items()]
    tensors = [(name, value) for name, value in tensors if isinstance(value, torch.Tensor)]
    return [(name, value) for name, value in tensors if value.layout == torch.strided]


def _held_tensors(gm: fx.GraphModule) -> Iterator[torch.Tensor]:
    for part in gm.modules():
        held = (*part.buffers(recurse=False), *part.parameters(recurse=False), *vars(part).values())
        yield from (value for value in held if isinstance(value, torch.Tensor))


def _tangent(root: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if wrappers.is_wrapper(root):
        held = {name: _tangent(part, generator) for name, part in wrappers.parts(root.detach()).items()}
        return wrappers.like(root.detach(), held)
    dtype = torch.complex64 if root.is_complex() else torch.float32
    value = torch.randn(root.shape, generator=generator, dtype=dtype)
    return value.to(root.dtype).to(root.device)


def _aliases(outputs: Sequence[Any], inputs: Sequence[Any]) -> list[list[int]]:
    owners: dict[int, int] = {}
    for index, value in enumerate(inputs):
        owners.setdefault(_memory(value), index)
    return [
        [owners.get(where, -1), int(output.storage_offset())] if (where := _memory(output)) else [-1, 0]
        for output in outputs
    ]


def _memory(value: Any) -> int:
    """The address of a plain tensor's memory; 0 where it has none."""
    plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided and value.numel() > 0
    return value.untyped_storage().data_ptr() if plain else 0


def _detached(outputs: Sequence[Any]) -> list[Any]:
    return [wrappers.whole(output.detach()) if isinstance(output, torch.Tensor) else output for output in outputs]


def leaves(value: Any) -> list[Any]:
    """The non-container parts of a graph's return value, in order."""
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in leaves(part)]
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in a value: itself, or those of containers, nested ones too."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def returned(gm: fx.GraphModule) -> list[Any]:
    """The results of a graph as a flat list of nodes, numbers and None."""
    return leaves(gm.graph.output_node().args[0])


def rebuilt(value: Any, make: Callable[[], Any]) -> Any:
    """The same nesting of containers, with `make()` in place of each leaf, called in the order of `leaves`."""
    if isinstance(value, dict):
        return {key: rebuilt(part, make) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [rebuilt(part, make) for part in value]
        if isinstance(value, list):
            return parts
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return make()


def _has_nan(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_quantized:
        return False
    if not (value.dtype.is_floating_point or value.dtype.is_complex):
        return False
    try:
        return bool(torch.isnan(value.detach()).any())
    except RuntimeError:  # floats of 8 bits or less have no isnan
        return bool(torch.isnan(value.detach().to(torch.float32)).any())


class Reversed(t.TorchDispatchMode):
    """Within the block, operators that may put several values into one place (`index_put`, `scatter`, `index_copy`)
    write their last value first, since torch leaves the order open; without repeated places nothing changes. Loops,
    branches and flex attention run as usual.

    >>> x, at, values = torch.zeros(2), torch.tensor([0, 1, 1]), torch.tensor([1.0, 2.0, 3.0])
    >>> with Reversed():
    ...     x.index_put((at,), values)
    tensor([1., 2.])
    """

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet, named = getattr(func, "overloadpacket", None), kwargs or {}
        turned = packet and _TURNED.get(f"{packet.__name__.strip('_')}.{func._overloadname}")
        if turned is not None:
            given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | named
            return func(**(given | turned(given)))
        return func(*args, **named)


def may_write_twice(gm: fx.GraphModule) -> bool:
    """Whether a graph, or a graph inside it, calls one of these operators, under any of their names."""
    return any(name in str(node.target) for node in nodes_in(gm) if node.op.startswith("call_") for name in _NAMES)


def _along_dim(given: dict[str, Any]) -> dict[str, Any]:
    """`scatter` and `index_copy`: index and source are flipped along the indexed dimension."""
    source = "src" if "src" in given else "source"
    index, values = given["index"], given[source]
    if not index.dim() or not values.dim():
        return {}
    dim = given["dim"]
    if source == "source":
        return {"index": index.flip(0), source: values.flip(dim)}
    part = values[tuple(slice(size) for size in index.shape)]
    return {"index": index.flip(dim), source: part.flip(dim)}


def _indexed(given: dict[str, Any]) -> dict[str, Any]:
    """`index_put`: all indices and the values are flipped along each dimension that the indices have in common."""
    there = [at for at, index in enumerate(given["indices"]) if index is not None]
    given_indices = [given["indices"][at] for at in there]
    if given.get("accumulate") or any(index.dtype in (torch.bool, torch.uint8) for index in given_indices):
        return {}
    first, *_ = indices = torch.broadcast_tensors(*given_indices)
    dims, shape = list(range(first.dim())), given["self"].shape
    rest = [size for dim, size in enumerate(shape) if dim not in there]
    at = there[0] if there[-1] - there[0] + 1 == len(there) else 0
    values = given["values"].expand(*rest[:at], *first.shape, *rest[at:]).flip([at + dim for dim in dims])
    put = dict(zip(there, (index.flip(dims) for index in indices), strict=True))
    return {"indices": [put.get(place) for place in range(len(given["indices"]))], "values": values}


_TURNED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "scatter.src": _along_dim,
    "index_copy.default": _along_dim,
    "index_put.default": _indexed,
    "unsafe_index_put.default": _indexed,
    "index_put_impl.default": _indexed,
}
_NAMES = ("scatter", "index_copy", "index_put", "setitem")
