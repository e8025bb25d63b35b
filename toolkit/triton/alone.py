# pyright: basic
"""What a child does with one saved launch: launches the kernel on the GPU with the saved arguments, compares, measures the time.

Inductor's own launcher runs it, in the saved configuration, with strides, storage offsets and shared storages as they were. The
child is the only one that an illegal access can end. Must not be used where the source was not trusted.

>>> ask("graphdbg.toolkit.triton.alone:task", {"folder": "launches", "launch": "0000_triton_relu_0", ...}, server=server)
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch

from ...dumps.errors import EnvironmentLackError, UsageError
from ..isolation.child import mark
from .comparing import arguments_of, dtype_of, flat
from .judged import Judged
from .launches import Launch, Launches, open_launches
from .loading import loaded
from .roofline import Ceilings, kind_of, measured, placed

_SEARCHES = ("dynamic_scale_rblock", "coordinate_descent_tuning", "combo_tuning_groups", "store_cubin")
_MOVED = ("float32", "float64")
MUTATES = "the kernel changes its input: timed runs each begin with what the one before left"


def gpu(payload: dict[str, Any]) -> dict[str, Any]:
    """The GPU here: name and compute capability times ten; {} where there is none."""
    if not torch.cuda.is_available():
        return {}
    major, minor = torch.cuda.get_device_capability(0)
    return {"name": torch.cuda.get_device_name(0), "capability": 10 * major + minor}


def ceilings(payload: dict[str, Any]) -> dict[str, Any]:
    """What the GPU can do at most, see `roofline`."""
    return msgspec.to_builtins(measured(bench))


def compared(payload: dict[str, Any]) -> list[dict[str, Any]]:
    """Without a GPU: the interpreter's results against eager's, of the launches in `launches`."""
    known = open_launches(Path(payload["folder"]))
    wanted = set(payload["launches"])
    return [msgspec.to_builtins(beside_eager(one, known)) for one in known.launches if one.folder in wanted]


def beside_eager(launch: Launch, known: Launches) -> Judged:
    """The interpreter's result of a launch, judged."""
    return Judged.of(launch, "interpreter", arguments_of(launch, known))


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """Launches, compares, and measures the time where `ceilings` are given."""
    mark("load")
    known = open_launches(Path(payload["folder"]))
    launch = next(one for one in known.launches if one.folder == payload["launch"])
    given = payload.get("ceilings")
    limits = None if given is None else msgspec.convert(given, Ceilings)
    with tempfile.TemporaryDirectory(prefix="graphdbg-kernel-") as folder:
        return msgspec.to_builtins(launched(launch, known, Path(folder), limits))


def launched(launch: Launch, known: Launches, folder: Path, limits: Ceilings | None = None) -> Judged:
    """Launches one kernel on device 0. `folder`: where its source goes. Raises what loading, compiling and launching raise."""
    require(known)
    mark("compile")
    kernel = restricted(loaded(launch.kernel, known.source(launch), folder), launch)
    mark("launch")
    results = run(kernel, launch, known)
    mark("compare")
    rows = arguments_of(launch, known, results)
    if any(row.interpreter is not None and not row.interpreter.ok for row in rows):
        moved = run(kernel, launch, known, _one_rounding_away)
        rows = arguments_of(launch, known, results, moved)
    made = Judged.of(launch, torch.cuda.get_device_name(0), rows)
    if limits is not None:
        mark("time")
        _time(made, kernel, launch, known, limits)
    return made


def require(known: Launches) -> None:
    """Raises where there is no GPU, or another one than the kernels were written for."""
    if not torch.cuda.is_available():
        raise EnvironmentLackError("there is no GPU here", "kernels can be launched only where there is one")
    major, minor = torch.cuda.get_device_capability(0)
    here = f"cuda:{10 * major + minor}"
    if here != known.index.target:
        raise UsageError(
            f"these kernels are written for {known.index.target}", f"the GPU here is a {here}", f"save them with --target {here}"
        )


def restricted(autotuner: Any, launch: Launch) -> Any:
    """The kernel with the launch's configuration as its only one; Inductor's search for a better one is off."""
    autotuner.inductor_meta = {**autotuner.inductor_meta, **dict.fromkeys(_SEARCHES, False)}
    alike = [one for one in autotuner.configs if _is(one, launch)]
    if alike:
        autotuner.configs = alike[:1]
        return autotuner
    from triton import Config

    options: dict[str, Any] = dict(launch.options)
    autotuner.configs = [Config(dict(launch.blocks), num_warps=launch.num_warps, num_stages=launch.num_stages, **options)]
    return autotuner


def _is(config: Any, launch: Launch) -> bool:
    own, saved = (
        {name: value for name, value in one.items() if isinstance(value, (int, str))} for one in (config.kwargs, launch.blocks)
    )
    return (config.num_warps, config.num_stages, own) == (launch.num_warps, launch.num_stages, saved)


Change = Callable[[torch.Tensor], torch.Tensor]


def arguments(
    launch: Launch, known: Launches, change: Change | None = None, device: str = "cuda"
) -> tuple[list[Any], dict[int, torch.Tensor]]:
    """(the launcher's arguments on a device, storage -> its bytes there). `change` is made to floating-point storages first."""
    kinds: dict[int, set[str]] = {}
    for tensor in launch.tensors.values():
        kinds.setdefault(tensor.storage, set()).add(tensor.dtype)
    storages: dict[int, torch.Tensor] = {}
    for place, storage in enumerate(launch.storages):
        data = bytearray(known.tensors.get(storage.before))
        whole = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
        if change is not None and len(kinds.get(place, ())) == 1 and (kind := next(iter(kinds[place]))) in _MOVED:
            whole = change(flat(whole, dtype_of(kind))).view(torch.uint8)
        storages[place] = whole.to(device)
    tensors = {
        name: torch.empty(0, dtype=dtype_of(one.dtype), device=device).set_(
            storages[one.storage].untyped_storage(), one.offset, one.shape, one.stride
        )
        for name, one in launch.tensors.items()
    }
    return [tensors[one] if isinstance(one, str) else one for one in launch.passed], storages


def run(kernel: Any, launch: Launch, known: Launches, change: Change | None = None) -> dict[int, torch.Tensor]:
    """Launches once on fresh arguments. Returns each storage's bytes afterwards, on the CPU."""
    given, storages = arguments(launch, known, change)
    kernel.run(*given, stream=torch.cuda.current_stream().cuda_stream)
    torch.cuda.synchronize()
    return {place: storage.cpu() for place, storage in storages.items()}


def _one_rounding_away(values: torch.Tensor) -> torch.Tensor:
    """Each value larger or smaller by eps, repeatably."""
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, values.shape, generator=generator, dtype=torch.int8).to(values.dtype) * 2 - 1
    return values + values * signs * torch.finfo(values.dtype).eps


def bench(call: Callable[[], object]) -> float:
    """Seconds of a call: the median of as many as fit into a tenth of a second, the L2 cache emptied before each."""
    from triton.testing import do_bench

    return float(do_bench(call, warmup=25, rep=100, return_mode="median")) / 1e3  # type: ignore[arg-type]


def _time(made: Judged, kernel: Any, launch: Launch, known: Launches, limits: Ceilings) -> None:
    given, _ = arguments(launch, known)
    stream = torch.cuda.current_stream().cuda_stream
    seconds = bench(lambda: kernel.run(*given, stream=stream))
    made.place = place_of(launch, known.source(launch), seconds, limits)
    written = [one.argument for one in launch.written if one.argument.startswith("in_")]
    if any(launch.storages[launch.tensors[name].storage].after for name in written):
        made.notes.append(MUTATES)


def place_of(launch: Launch, source: str, seconds: float, limits: Ceilings) -> Any:
    """Where a launch of that time stands. Bytes: those that the interpreter saw it touch."""
    moved = None
    if launch.bytes_read is not None and launch.bytes_written is not None:
        moved = launch.bytes_read + launch.bytes_written
    return placed(seconds, moved, launch.flops, kind_of(source, (one.dtype for one in launch.tensors.values())), limits)


