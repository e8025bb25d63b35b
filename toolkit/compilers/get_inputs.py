"""`get_inputs`: inputs for a saved graph: stored ones as they were, the others synthesised from what was saved of them
and a seed.

Synthesised inputs have the recorded dtype, shape, stride, offset, overlap, aliasing and range of values. Takes a saved
graph (RUN/ID or a case folder) and functorch's own `.input` files: pickled lists of (type, shape, stride, dtype,
device), or (int,) and (float,), in one list or two. A pickle is a program: it is read by an unpickler that knows only
the names that such a file holds, and maps each to a stand-in that does nothing. No class or function that the file
chooses is ever called.

>>> inputs = get_inputs("myrun/0_0/forward", seed=0)
>>> load_graph("myrun/0_0/forward").module()(*inputs)[0].shape
torch.Size([2, 4])
"""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ...dumps.errors import DamagedError, GraphdbgError, NoSuchGraphError, RefusedError, UnreadableError, WrongKindError
from ...dumps.opening import opened
from ...dumps.schema import TensorValue
from ...dumps.store import load_graph
from ...dumps.torchside import make_inputs
from ...dumps.torchside.values import dtype_name
from ...dumps.wording import error_line

SUFFIX = ".input"
_LARGEST = 64 << 20


def get_inputs(path: str | os.PathLike[str], seed: int = 0, *, parts: bool = False) -> list[Any]:
    """One value per input, in order; the same for the same seed. Of a joint graph with `parts`: [primals, tangents].

    A `.input` file of a joint graph that has the two parts always gives both. Raises UsageError when `path` is no saved
    graph, RefusedError (an UnreadableError) for a pickle that holds anything else than metadata, EnvironmentLackError
    for a device or dtype that is not here.

    >>> [len(part) for part in get_inputs("myrun/0_0/joint", parts=True)]
    [5, 1]
    """
    pickled = _input_file(Path(path))
    if pickled is not None:
        return read(pickled, seed)
    saved = load_graph(os.fspath(path))
    inputs = saved.inputs(seed)
    if not parts:
        return inputs
    if saved.stage not in ("joint", "joint_passed"):
        raise WrongKindError(f"{path} has no parts", f"it is a {saved.stage} graph", "leave parts out")
    roles = {item.name: item.role for item in saved.record.inputs}
    names = [node.name for node in saved.record.graph.nodes if node.op == "placeholder"]
    is_tangent = [roles.get(name) == "tangent" or name.startswith("tangents_") for name in names]
    pairs = list(zip(is_tangent, inputs, strict=True))
    return [[value for tangent, value in pairs if tangent == wanted] for wanted in (False, True)]


def _input_file(path: Path) -> Path | None:
    """The pickle that a path names: itself, or the only one in a folder that functorch wrote."""
    if path.suffix == SUFFIX and path.is_file():
        return path
    files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else []
    if len(files) > 1:
        raise NoSuchGraphError(
            f"{path} holds several {SUFFIX} files", ", ".join(file.name for file in files), "name one"
        )
    return files[0] if files else None


class TypeName(NamedTuple):
    """A stand-in for a type that the file names; it cannot be called."""

    name: str


def _device(kind: Any, index: Any = None) -> str:
    """The text of a device; no device is looked for."""
    return str(kind) if index is None else f"{kind}:{index}"


_NAMES: dict[tuple[str, str], Any] = {
    **{("builtins", name): TypeName(name) for name in ("int", "float", "bool")},
    ("torch", "Tensor"): TypeName("tensor"),
    ("torch._tensor", "Tensor"): TypeName("tensor"),
    ("torch.nn.parameter", "Parameter"): TypeName("parameter"),
    ("torch.nn.parameter", "Buffer"): TypeName("tensor"),
    ("torch._subclasses.fake_tensor", "FakeTensor"): TypeName("tensor"),
    ("torch._subclasses.functional_tensor", "FunctionalTensor"): TypeName("tensor"),
    ("torch", "Size"): tuple,
    ("torch", "device"): _device,
}
"""(module, name) in the file -> its stand-in; dtypes stand for themselves."""


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _NAMES:
            return _NAMES[module, name]
        if module == "torch" and isinstance(dtype := vars(torch).get(name), torch.dtype):
            return dtype
        raise RefusedError(
            "the pickle", f"it asks for {module}.{name}, and a file of inputs holds metadata of tensors only"
        )


def read(path: Path, seed: int) -> list[Any]:
    """The inputs, synthesised; two lists for a joint graph. Raises UnreadableError, or its kind RefusedError for other
    content."""
    where = f"cannot read {path}"
    try:
        with opened(path, named=True) as file:
            if path.stat().st_size > _LARGEST:
                raise RefusedError(where, f"it is larger than {_LARGEST} bytes, which metadata is not")
            content = _MetadataUnpickler(io.BytesIO(file.read())).load()
    except RefusedError as error:
        raise error if error.what == where else RefusedError(where, error.why) from error
    except OSError as error:
        raise UnreadableError(where, error.strerror or str(error)) from error
    except Exception as error:  # a broken or hostile pickle can raise anything
        raise DamagedError(where, f"it is no file of inputs ({type(error).__name__}: {error})") from error
    if not isinstance(content, (list, tuple)):
        raise DamagedError(where, f"it holds a {type(content).__name__}, and a list is wanted")
    if len(content) == 2 and all(isinstance(part, list) for part in content):
        return [_inputs(part, seed, name, where) for part, name in zip(content, ("primals", "tangents"), strict=True)]
    return _inputs(content, seed, "input", where)


def _inputs(items: Any, seed: int, name: str, where: str) -> list[Any]:
    return [_input(item, seed, f"{name}_{place}", where) for place, item in enumerate(items, 1)]


def _input(item: Any, seed: int, name: str, where: str) -> Any:
    where = f"{where}: {name}"
    kind = item[0] if isinstance(item, tuple) and item and isinstance(item[0], TypeName) else None
    if kind is None or len(item) not in (1, 5):
        raise DamagedError(where, f"{str(item)[:80]} is not the metadata of an input")
    if len(item) == 1:
        return _scalar(kind.name, name, seed, where)
    _, shape, stride, dtype, device = item
    if not (isinstance(dtype, torch.dtype) and isinstance(device, str) and _is_sizes(shape) and _is_sizes(stride)):
        raise DamagedError(where, "its shape, stride, dtype or device is malformed")
    value = TensorValue(dtype_name(dtype), list(shape), list(stride), device=device)
    try:
        tensor = make_inputs.tensor(name, value, seed, where=where)
    except GraphdbgError:
        raise
    except (RuntimeError, ValueError, TypeError) as error:
        raise DamagedError(where, error_line(error)) from error
    floating = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    return torch.nn.Parameter(tensor, requires_grad=floating) if kind.name == "parameter" else tensor


def _is_sizes(sizes: Any) -> bool:
    return isinstance(sizes, tuple) and all(type(size) is int and size >= 0 for size in sizes)


def _scalar(kind: str, name: str, seed: int, where: str) -> int | float | bool:
    """A number of that type: a size that suits small graphs, or a fraction."""
    source = make_inputs.generator(name, seed)
    if kind == "float":
        return float(torch.rand((), generator=source))
    if kind in ("int", "bool"):
        number = int(torch.randint(1, 9, (), generator=source))
        return number if kind == "int" else number % 2 == 0
    raise DamagedError(where, f"a {kind} without shape, stride, dtype and device")
