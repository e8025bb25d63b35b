"""Launches of kernels saved as a folder: source, configuration, grid, arguments before and after, and eager's values
for them.

```
DIR/launches.json                      what was run, for which GPU, with which versions; one name for each launch
DIR/0003_triton_red_fused_sum_1/       launch.json, kernel.py
DIR/tensors/<hash>                     storages, whole, each once (see dumps.tensors)
```

Nothing of a folder is run when it is read, and anything invalid is refused with a sentence. Imports no torch.

For example:

    saved = open_launches(Path("launches"))
    [(launch.kernel, launch.grid) for launch in saved.launches]  # -> [('triton_poi_fused_relu_0', (4, 1, 1))]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...dumps import opening
from ...dumps.atomic import write_file
from ...dumps.errors import (
    DamagedError,
    NameRefusedError,
    NoSuchNodeError,
    OtherVersionError,
    RefusedError,
    UnreadableError,
    UsageError,
)
from ...dumps.tensors import TensorStore, check_hash, hash_bytes
from ...dumps.wording import counted

VERSION = 1
INDEX, LAUNCH, SOURCE, TENSORS = "launches.json", "launch.json", "kernel.py", "tensors"
DTYPES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "uint16": 2, "uint32": 4,
    "uint64": 8,
    "bool": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip
"""dtype that an argument of a launch may have -> bytes per element."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,499}", re.ASCII)
_FOLDER = re.compile(r"[0-9]{4,8}_[A-Za-z0-9_]{1,200}", re.ASCII)
Number = bool | int | float | None


class Storage(msgspec.Struct, frozen=True):
    """One storage. `before`, `after`: names of its bytes in `tensors/`; `after` is empty where the kernel did not write
    it."""

    size_bytes: int
    before: str
    after: str = ""


class TensorLayout(msgspec.Struct, frozen=True):
    """The layout of an argument in its storage, in elements. `storage`: index into the launch's list."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    storage: int

    def text(self) -> str:
        """The type and shape as text: "f32[64, 256]"."""
        short = self.dtype.replace("bfloat", "bf").replace("float", "f").replace("uint", "u").replace("complex", "c")
        return f"{short.replace('int', 'i') if self.dtype != 'bool' else 'bool'}{list(self.shape)}"


class Written(msgspec.Struct, frozen=True):
    """An argument that the kernel wrote. `buffer`: its name in the wrapper; `node`: the FX node whose value it holds;
    `eager`, `truth`: names of that value's bytes in the node's dtype and in float64, as a contiguous tensor of
    `shape`."""

    argument: str
    buffer: str = ""
    node: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    eager: str = ""
    truth: str = ""
    truth_dtype: str = ""


class Launch(msgspec.Struct):
    """One launch. `number`: its index in the run; `call`: its index among the `calls` launches of its kernel, from 1;
    `passed`: the launcher's arguments in order, tensor names or numbers; `blocks`: XBLOCK and the like; `bytes_read`,
    `bytes_written`: as the interpreter saw them, each byte once; `flops`: where known."""

    kernel: str
    number: int
    call: int
    source: str
    grid: tuple[int, int, int]
    blocks: dict[str, Number | str]
    num_warps: int
    num_stages: int
    signature: dict[str, str]
    constants: dict[str, Number | str]
    passed: list[str | Number | list[Number]]
    names: list[str]
    tensors: dict[str, TensorLayout]
    storages: list[Storage]
    written: list[Written]
    calls: int = 1
    options: dict[str, Number] = {}
    nodes: list[str] = []
    bytes_read: int | None = None
    bytes_written: int | None = None
    flops: int | None = None
    seconds: float = 0.0

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return f"{self.number:04d}_{self.kernel}"[:200]

    def config_text(self) -> str:
        """The configuration as text: "XBLOCK=64 R0_BLOCK=64 warps=8 stages=1"."""
        blocks = [f"{name}={value}" for name, value in self.blocks.items() if isinstance(value, int)]
        return " ".join([*blocks, f"warps={self.num_warps}", f"stages={self.num_stages}"])


class Index(msgspec.Struct):
    """What all launches of a folder have in common. `which`: their folder names, in the order of the run."""

    version: int
    graph: str
    target: str
    torch: str
    triton: str
    which: list[str]
    notes: list[str] = []


class Launches:
    """A folder of launches; tensors are read on demand."""

    def __init__(self, folder: Path, index: Index, launches: Sequence[Launch]) -> None:
        self.folder, self.index, self.launches = folder, index, list(launches)
        self.tensors = TensorStore(folder / TENSORS)

    def source(self, launch: Launch) -> str:
        """The kernel's source: a program, to be run under `--trust` alone. Raises UnreadableError where it was
        changed."""
        path = self.folder / launch.folder / SOURCE
        data = _read(path)
        if hash_bytes(data) != launch.source:
            raise DamagedError(f"cannot use {path}", "it is not the source that was saved", "save the launches again")
        return data.decode("utf-8", "strict")

    def named(self, name: str) -> list[Launch]:
        """The launches of a kernel, or the one that `NAME#2` means. Raises UsageError with the list of those there
        are."""
        launches = [launch for launch in self.launches if name in (launch.kernel, f"{launch.kernel}#{launch.call}")]
        if not launches:
            raise unknown(name, self.launches)
        return launches


def unknown(name: str, launches: Sequence[Launch]) -> UsageError:
    """The error for a name that matches no kernel or launch."""
    calls = {launch.kernel: f" (#1 to #{launch.calls})" * (launch.calls > 1) for launch in launches}
    known = ", ".join(f"{kernel}{numbers}" for kernel, numbers in calls.items())
    return NoSuchNodeError(f"there is no kernel {name!r}", f"there are: {known}" if known else "no kernel was launched")


class LaunchWriter:
    """Writes launches into a folder, one after the other; `finish` writes the index, without which the folder is not
    valid."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tensors = TensorStore(folder / TENSORS)
        self.launches: list[Launch] = []

    def add(self, launch: Launch, source: str) -> None:
        """Writes one launch and its kernel's source; the tensors were put into `tensors` before."""
        data = source.encode("utf-8")
        launch.source = hash_bytes(data)
        place = self.folder / launch.folder
        place.mkdir(parents=True, exist_ok=True)
        write_file(place / SOURCE, (data,))
        self.launches.append(launch)

    def finish(self, index: Index) -> None:
        """Writes the index, whose contents are known only at the end."""
        self.folder.mkdir(parents=True, exist_ok=True)
        index.which = [saved.folder for saved in self.launches]
        for name, row in [*((f"{launch.folder}/{LAUNCH}", launch) for launch in self.launches), (INDEX, index)]:
            write_file(self.folder / name, (msgspec.json.format(msgspec.json.encode(row), indent=1),))


def is_launches(path: Path) -> bool:
    """Whether a path is a folder of launches."""
    return (path / INDEX).is_file()


def open_launches(folder: Path) -> Launches:
    """Reads a folder. Raises UnreadableError or RefusedError for one that is damaged, newer, or not what `Writer`
    writes."""
    index = _decoded(folder / INDEX, Index)
    if index.version != VERSION:
        why = f"it has version {index.version}, and this graphdbg reads version {VERSION}"
        raise OtherVersionError(f"cannot read {folder}", why, "use the graphdbg that wrote it")
    launches = []
    for name in index.which:
        if not _FOLDER.fullmatch(name):
            raise NameRefusedError(f"{folder / INDEX} names {name!r}", "a launch is named by a number and its kernel")
        launch = _decoded(folder / name / LAUNCH, Launch)
        _check(launch, name, str(folder / name / LAUNCH))
        launches.append(launch)
    return Launches(folder, index, launches)


T = TypeVar("T")


def _decoded(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(_read(path), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedError(f"cannot read {path}", str(error), "save the launches again") from error


def _read(path: Path) -> bytes:
    try:
        return opening.read(path)
    except OSError as error:
        raise UnreadableError(f"cannot read {path}", error.strerror or str(error), "save the launches again") from error


def _check(launch: Launch, name: str, where: str) -> None:
    """Refuses invalid names, and arguments that reach beyond their storages."""

    def refuse(what: str) -> RefusedError:
        return NameRefusedError(f"{where} is not what graphdbg writes", what, "save the launches again")

    if launch.folder != name:
        raise refuse(f"it calls itself {launch.folder}")
    for word in (launch.kernel, *launch.signature, *launch.constants, *launch.blocks, *launch.tensors, *launch.names):
        if not _NAME.fullmatch(word):
            raise refuse(f"{word!r} is not a name")
    check_hash(launch.source, where)
    for passed in launch.passed:
        if isinstance(passed, str) and passed not in launch.tensors:
            raise refuse(f"argument {passed!r} is not one of its tensors")
    options = 1 <= launch.num_warps <= 64 and 0 <= launch.num_stages <= 64
    if not options or any(not 1 <= size < 1 << 31 for size in launch.grid):
        shape = f"{counted(launch.num_warps, 'warp')} and {counted(launch.num_stages, 'stage')}"
        raise refuse(f"grid {launch.grid}, {shape} cannot be launched")
    for storage in launch.storages:
        for hashed in filter(None, (storage.before, storage.after)):
            check_hash(hashed, where)
        if storage.size_bytes < 0:
            raise refuse("a storage has a negative size")
    for argument, tensor in launch.tensors.items():
        _check_tensor(argument, tensor, launch, refuse)
    for row in launch.written:
        if row.argument not in launch.tensors or (row.eager and row.dtype not in DTYPES):
            raise refuse(f"{row.argument!r} is not one of its tensors, or its value's dtype {row.dtype!r} is unknown")
        for hashed in filter(None, (row.eager, row.truth)):
            check_hash(hashed, where)


def _check_tensor(argument: str, tensor: TensorLayout, launch: Launch, refuse: Any) -> None:
    if tensor.dtype not in DTYPES or not 0 <= tensor.storage < len(launch.storages):
        raise refuse(f"{argument} has dtype {tensor.dtype!r} in storage {tensor.storage}")
    if len(tensor.shape) != len(tensor.stride) or min((*tensor.shape, *tensor.stride, tensor.offset), default=0) < 0:
        raise refuse(f"{argument} has size {tensor.shape}, strides {tensor.stride}, offset {tensor.offset}")
    empty = 0 in tensor.shape
    last = tensor.offset + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride, strict=True))
    if not empty and (last + 1) * DTYPES[tensor.dtype] > launch.storages[tensor.storage].size_bytes:
        raise refuse(f"{argument} reaches beyond its storage")
