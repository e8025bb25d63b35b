# pyright: basic
"""Answers on the CPU what a running wrapper, generated for a GPU, asks of that GPU.

Allocation functions give CPU tensors; device guards and streams do nothing; operators called with `device=cuda` create
their result on the CPU; the layout check of a library call gives the result the GPU's layout instead of failing.
GPU-only library calls are those of `toolkit.live.gpu_only`; one that is missing there is refused by name.

Kernels may draw random numbers as Inductor's C++ kernels do, so that a graph judged on the CPU has one reference for
both: Triton's functions derive other numbers from the same Philox words. The functions that Inductor's kernels call are
replaced for the time of a judgement; everything else runs unchanged. A kernel that calls `tl.philox` itself is not
affected.

For example:

    with answers(session):
        module = load(wrapper)
    with running(session):
        module.call(inputs)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton.language as tl

from ....dumps.allowlist import words
from ... import torch_private as t
from ...live import eager, gpu_only
from ...live.rung import CannotRun
from ...torch_private import all_replaced
from .. import pretended
from ._triton import Handle


class _OnCpu(t.TorchDispatchMode):
    """Moves device arguments to the CPU, replaces GPU-only operators, and reports each call to the session."""

    supports_higher_order_operators = True

    def __init__(self, session: Any) -> None:
        super().__init__()
        self.session = session

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = t.tree_map(_here, args), t.tree_map(_here, kwargs or {})
        output = called(func, args, kwargs)
        if self.session.observers:
            read, written = _moved(func, args, kwargs, output)
            for observer in self.session.observers:
                observer.called(func, read, written)
        return output


def _here(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == "cuda" else value


def _moved(func: Any, args: Any, kwargs: Any, output: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """(tensors that the operator reads, tensors that it writes). A view reads and writes nothing."""
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order operator
        return _tensors(args), _tensors(output)
    aliases = [alias.alias_info for alias in schema.returns]
    if aliases and all(alias is not None and not alias.is_write for alias in aliases):
        return [], []
    read: list[torch.Tensor] = []
    written: list[torch.Tensor] = []
    named = ((parameter, kwargs[parameter.name]) for parameter in schema.arguments if parameter.name in kwargs)
    given = [*zip(schema.arguments, args, strict=False), *named]
    for argument, value in given:
        writes = argument.alias_info is not None and argument.alias_info.is_write
        (written if writes else read).extend(_tensors(value))
    if "empty" not in func.__name__:
        written += _tensors(output)
    return read, written


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in t.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


SIZED_OTHERWISE = words("torch.ops.aten._embedding_bag.default torch.ops.aten._embedding_bag_forward_only.default")
"""Operators with results that are filled on a GPU but empty on the CPU, and that only their own backward reads (as an
empty input)."""


def called(operator: Any, args: Any, kwargs: Any) -> Any:
    """Runs an operator on the CPU. Raises CannotRun, naming the operator, for a GPU-only one."""
    if getattr(getattr(operator, "overloadpacket", None), "__name__", "") in gpu_only.KERNELS:
        gpu_only.register()
    try:
        return operator(*args, **kwargs)
    except NotImplementedError as error:
        if "Could not run" not in str(error):
            raise
        raise CannotRun(f"{operator} has no kernel for the CPU, and nothing here stands for it") from error


class NoTensor(TypeError):
    """A library call gave no tensor where the kernels expect one."""


def laid_out(tensor: Any, size: Sequence[int], stride: Sequence[int], name: str | None = None) -> None:
    """Gives a tensor the strides that later kernels expect, keeping its values. Raises CannotRun for another size."""
    if not isinstance(tensor, torch.Tensor):  # the message of torch's own check
        raise NoTensor(f"expected Tensor() for op: {name or 'a library call'}")
    if tuple(tensor.shape) != tuple(size):
        if name in SIZED_OTHERWISE or (name == "input" and not tensor.numel()):
            return
        gave = f"{name or 'a library call'} gave size {tuple(tensor.shape)} on the CPU"
        raise CannotRun(f"{gave}, and the kernels expect {tuple(size)} of a GPU")
    if any(count > 1 and want != have for want, have, count in zip(stride, tensor.stride(), size, strict=True)):
        with torch.no_grad():
            tensor.data = torch.empty_strided(tuple(size), tuple(stride), dtype=tensor.dtype).copy_(tensor)


def devices_on_cpu() -> contextlib.AbstractContextManager[Any]:
    """Within the block, operators called for a GPU create their results on the CPU, and GPU-only operators are
    replaced."""
    return _OnCpu(SimpleNamespace(observers=()))


def answers(session: Any) -> contextlib.AbstractContextManager[None]:
    """Replaces the allocation functions and checks that wrappers take from torch while they are loaded."""

    def allocate(size: Any, stride: Any, dtype: Any) -> torch.Tensor:
        tensor = torch.empty_strided(tuple(size), tuple(stride), dtype=dtype)
        for observer in session.observers:
            observer.allocated(tensor)
        return tensor

    return pretended.allocations(allocate, laid_out)


@contextlib.contextmanager
def running(session: Any) -> Iterator[None]:
    """Answers on the CPU what a running wrapper asks of the GPU."""
    answered = {
        "_DeviceGuard": contextlib.nullcontext,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
    }
    with all_replaced((torch.cuda, name, value) for name, value in answered.items()), _OnCpu(session):
        yield


def drawing_like_cpu() -> contextlib.AbstractContextManager[None]:
    """Within the block, kernels draw as Inductor's C++ kernels do; to be used inside `interpreted()`."""
    functions: list[tuple[Any, str, Callable[..., Any]]] = [
        (tl, "rand", _rand),
        (tl, "randn", _randn),
        (t.triton_helpers, "rand4x", _rand),
        (t.triton_helpers, "randn4x", _randn),
        (t.triton_helpers, "randint64", _randint),
    ]
    return all_replaced(row for row in functions if hasattr(*row[:2]))


def _rand(seed: Any, offset: Any, *_: Any) -> Any:
    return _tensor(eager.rand_at(_index(offset), _seed(seed)), tl.float32)


def _randn(seed: Any, offset: Any, *_: Any) -> Any:
    return _tensor(eager.randn_at(_index(offset), _seed(seed)), tl.float32)


def _randint(seed: Any, offset: Any, low: Any, high: Any) -> Any:
    return _tensor(eager.randint_at(_number(low), _number(high), _index(offset), _seed(seed)), tl.int64)


def _index(offset: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(offset.handle.data, np.int64) & 0xFFFFFFFF)


def _seed(seed: Any) -> torch.Tensor:
    return torch.tensor(_number(seed))


def _number(value: Any) -> int:
    return int(value.handle.data.flat[0]) if isinstance(value, tl.tensor) else int(value)


def _tensor(numbers: torch.Tensor, kind: Any) -> Any:
    return tl.tensor(Handle(numbers.numpy(), kind), tl.block_type(kind, list(numbers.shape)))
