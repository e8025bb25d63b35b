# pyright: basic
"""The child's part for one saved launch: launches the kernel on the GPU with the saved arguments, compares the results,
measures the time.

Inductor's own launcher runs it, in the saved configuration, with strides, storage offsets and shared storages as they
were. An illegal access can end only this child. For trusted sources only.

What the kernel wrote is compared with the interpreter's bytes for the same arguments, and with eager's value of the
node. The interpreter ran the same code on the same arguments, so only rounding may differ: from another order of sums,
fused multiply-adds, the GPU's own exp and the like, element by element (`STRICT`, relative to |want| + RMS(want) over
what was written). Where sums cancel to nothing, only rounding is left: `noise` is how far the kernel's own result moves
when its inputs move by one rounding, and a difference of that size counts as rounding, too. Against eager, results are
judged as everywhere (`numerics.comparison`), by float64.

For example:

    ask("graphdbg.toolkit.launching.alone:task", {"folder": "launches", "launch": "0000_triton_relu_0", ...})
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch

from ...dumps.errors import BadValueError, DeviceMissingError
from ...dumps.wording import counted
from ..isolation.child import mark
from ..numerics.comparison import FACTOR, NO_REFERENCE, NOISE_FACTOR, Noise, compare, relative_rmse, rms, wide
from ..numerics.tolerance import tolerance
from ..triton.emission import loaded
from .asking import Against, Argument, Ceilings, JudgedLaunch, kind_of, measured, placed
from .launches import Launch, Launches, TensorLayout, Written, open_launches

_SEARCHES = ("dynamic_scale_rblock", "coordinate_descent_tuning", "combo_tuning_groups", "store_cubin")
_MOVED = {"float32", "float64"}
MUTATES = "the kernel changes its input: each timed run begins with what the run before left"
STRICT = {torch.float64: 64.0, torch.float32: 64.0, torch.float16: 2.0, torch.bfloat16: 2.0, torch.complex64: 64.0}
"""dtype -> roundings (eps) that an element may always be off; 2 for a dtype that is not listed."""
NOISE = 16.0
REPEATS = 4
FLIPS = 1000
"""One in so many elements of an integer or boolean result may differ: a comparison of two floats before it may flip."""
_STANDS = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""dtype that torch hardly computes with -> one with the same bits."""


def gpu(payload: dict[str, Any]) -> dict[str, Any]:
    """The GPU here: name and compute capability times ten; {} where there is none."""
    if not torch.cuda.is_available():
        return {}
    major, minor = torch.cuda.get_device_capability(0)
    return {"name": torch.cuda.get_device_name(0), "capability": 10 * major + minor}


def ceilings(payload: dict[str, Any]) -> dict[str, Any]:
    """The measured ceilings of the GPU, as `measured` gives them."""
    return msgspec.to_builtins(measured(bench))


def compared(payload: dict[str, Any]) -> list[dict[str, Any]]:
    """Without a GPU: the interpreter's results against eager's, of the launches in `launches`."""
    known = open_launches(Path(payload["folder"]))
    wanted = set(payload["launches"])
    return [msgspec.to_builtins(beside_eager(launch, known)) for launch in known.launches if launch.folder in wanted]


def beside_eager(launch: Launch, known: Launches) -> JudgedLaunch:
    """Judges the interpreter's result of a launch against eager."""
    return JudgedLaunch.of(launch, "interpreter", arguments_of(launch, known))


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """The body of the query: launches, compares, and measures the time where `ceilings` are given."""
    mark("load")
    known = open_launches(Path(payload["folder"]))
    launch = next(candidate for candidate in known.launches if candidate.folder == payload["launch"])
    limits = msgspec.convert(payload.get("ceilings"), Ceilings | None)
    with tempfile.TemporaryDirectory(prefix="graphdbg-kernel-") as folder:
        return msgspec.to_builtins(launched(launch, known, Path(folder), limits))


def launched(launch: Launch, known: Launches, folder: Path, limits: Ceilings | None = None) -> JudgedLaunch:
    """Launches one kernel on device 0 and judges it. `folder`: for its source. Raises what loading, compiling and
    launching raise."""
    require(known)
    mark("compile")
    source = known.source(launch)
    kernel = restricted(loaded(launch.kernel, source, folder), launch)
    mark("launch")
    results = run(kernel, launch, known)
    mark("compare")
    rows = arguments_of(launch, known, results)
    differs = any(row.interpreter is not None and not row.interpreter.ok for row in rows)
    if differs:
        moved = run(kernel, launch, known, _one_rounding_away)
        both = [(results, None), (moved, _one_rounding_away)] * REPEATS
        if "tl.atomic" in source or all(_alike(first, run(kernel, launch, known, how)) for first, how in both):
            rows = arguments_of(launch, known, results, moved)  # else it races, which is no rounding
    judged = JudgedLaunch.of(launch, torch.cuda.get_device_name(0), rows)
    if limits is not None:
        mark("time")
        _time(judged, kernel, launch, known, limits)
    return judged


def require(known: Launches) -> None:
    """Raises where there is no GPU, or not the GPU that the kernels were written for."""
    if not torch.cuda.is_available():
        raise DeviceMissingError("there is no GPU here", "launching a kernel needs a GPU")
    major, minor = torch.cuda.get_device_capability(0)
    here = f"cuda:{10 * major + minor}"
    if here != known.index.target:
        what, fix = f"these kernels are written for {known.index.target}", f"save them with --target {here}"
        raise BadValueError(what, f"the GPU here is a {here}", fix)


def restricted(autotuner: Any, launch: Launch) -> Any:
    """Restricts the kernel to the launch's configuration; switches Inductor's search for a better one off."""
    autotuner.inductor_meta = {**autotuner.inductor_meta, **dict.fromkeys(_SEARCHES, False)}
    from triton import Config

    options: dict[str, Any] = {**launch.options, "num_warps": launch.num_warps, "num_stages": launch.num_stages}
    alike = [config for config in autotuner.configs if _is(config, launch)]
    autotuner.configs = alike[:1] or [Config(dict(launch.blocks), **options)]
    return autotuner


def _is(config: Any, launch: Launch) -> bool:
    own, saved = (
        {name: value for name, value in settings.items() if isinstance(value, (int, str))}
        for settings in (config.kwargs, launch.blocks)
    )
    return (config.num_warps, config.num_stages, own) == (launch.num_warps, launch.num_stages, saved)


Change = Callable[[torch.Tensor], torch.Tensor]


def arguments(
    launch: Launch, known: Launches, change: Change | None = None, device: str = "cuda"
) -> tuple[list[Any], dict[int, torch.Tensor]]:
    """(the launcher's arguments on a device, storage -> its bytes there). `change`: applied to float storages first."""
    storages: dict[int, torch.Tensor] = {}
    for place, storage in enumerate(launch.storages):
        whole = flat(known.tensors.get(storage.before), torch.uint8)
        kinds = {tensor.dtype for tensor in launch.tensors.values() if tensor.storage == place}
        if change is not None and len(kinds) == 1 and kinds <= _MOVED:
            whole = change(flat(whole, dtype_of(*kinds))).view(torch.uint8)
        storages[place] = whole.to(device)
    tensors = {
        name: torch.empty(0, dtype=dtype_of(held_tensor.dtype), device=device).set_(
            storages[held_tensor.storage].untyped_storage(), held_tensor.offset, held_tensor.shape, held_tensor.stride
        )
        for name, held_tensor in launch.tensors.items()
    }
    return [tensors[argument] if isinstance(argument, str) else argument for argument in launch.passed], storages


def run(kernel: Any, launch: Launch, known: Launches, change: Change | None = None) -> dict[int, torch.Tensor]:
    """Launches once on fresh arguments. Returns each storage's bytes afterwards, on the CPU."""
    given, storages = arguments(launch, known, change)
    kernel.run(*given, stream=torch.cuda.current_stream().cuda_stream)
    torch.cuda.synchronize()
    return {place: storage.cpu() for place, storage in storages.items()}


def _alike(first: Mapping[int, torch.Tensor], second: Mapping[int, torch.Tensor]) -> bool:
    return all(torch.equal(first[place], second[place]) for place in first)


def _one_rounding_away(values: torch.Tensor) -> torch.Tensor:
    """Each value moved up or down by a relative eps, the same way in each call."""
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, values.shape, generator=generator, dtype=torch.int8).to(values.dtype) * 2 - 1
    return values + values * signs * torch.finfo(values.dtype).eps


def bench(call: Callable[[], object]) -> float:
    """The seconds of a call: the median of as many as fit into a tenth of a second, with the L2 cache flushed before
    each."""
    from triton.testing import do_bench

    return float(do_bench(call, warmup=25, rep=100, return_mode="median")) / 1e3  # type: ignore[arg-type]


def _time(judged: JudgedLaunch, kernel: Any, launch: Launch, known: Launches, limits: Ceilings) -> None:
    given, _ = arguments(launch, known)
    stream = torch.cuda.current_stream().cuda_stream
    seconds = bench(lambda: kernel.run(*given, stream=stream))
    judged.place = place_of(launch, known.source(launch), seconds, limits)
    written = [row.argument for row in launch.written if row.argument.startswith("in_")]
    if any(launch.storages[launch.tensors[name].storage].after for name in written):
        judged.notes.append(MUTATES)


def place_of(launch: Launch, source: str, seconds: float, limits: Ceilings) -> Any:
    """Where a launch with this time stands under the roofline, by the bytes that the interpreter saw it touch."""
    moved = None
    if launch.bytes_read is not None and launch.bytes_written is not None:
        moved = launch.bytes_read + launch.bytes_written
    kind = kind_of(source, (tensor.dtype for tensor in launch.tensors.values()))
    return placed(seconds, moved, launch.flops, kind, limits)


def dtype_of(name: str) -> torch.dtype:
    """The dtype of that name; names were checked when the folder was read."""
    return getattr(torch, name)


def flat(data: bytes | memoryview | torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Bytes as elements of a dtype; an incomplete last element is dropped."""
    dtype, width = _STANDS.get(dtype, dtype), dtype.itemsize
    if not len(data):
        return torch.empty(0, dtype=dtype)
    whole = data if isinstance(data, torch.Tensor) else torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return whole[: whole.numel() // width * width].view(dtype)


def view(data: bytes | memoryview | torch.Tensor, tensor: TensorLayout) -> torch.Tensor:
    """An argument as a view of the bytes of its storage."""
    return flat(data, dtype_of(tensor.dtype)).as_strided(tensor.shape, tensor.stride, tensor.offset)


def against_interpreter(
    before: torch.Tensor, want: torch.Tensor, have: torch.Tensor, moved: torch.Tensor | None = None
) -> Against:
    """Compares a whole storage after the launch (`have`) with the interpreter's (`want`), where either changed it.
    `moved`: the launch's result for inputs that were moved by one rounding."""
    touched = ~_same(before, want) | ~_same(have, want)
    allowed = STRICT.get(want.dtype, 2.0) * torch.finfo(want.dtype).eps if is_float(want) else 0.0
    if not bool(touched.any()):
        return Against(0.0, allowed, True)
    wanted, had = want[touched], have[touched]
    if not is_float(want):
        wrong = int((wanted != had).sum())
        free = 0 if moved is None else int((moved[touched] != had).sum())
        rounded = ", which rounding decides" if wrong <= free else ""
        why = f"{wrong} of {counted(wanted.numel(), 'element')} differ{rounded}" if wrong else ""
        return Against(wrong / wanted.numel(), allowed, wrong <= free, why)
    w, h = wide(wanted), wide(had)
    finite = torch.isfinite(w) & torch.isfinite(h)
    if odd := int((~finite & ~_same(wanted, had)).sum()):
        why = f"{odd} of {counted(w.numel(), 'element')} are NaN or Inf in one of the two alone"
        return Against(1.0, allowed, False, why)
    w, h = w[finite], h[finite]
    if not w.numel():
        return Against(0.0, allowed, True)
    apart = (h - w).abs()
    scale = w.abs() + float(rms(w))
    error = float(torch.where(apart > 0, apart / torch.where(scale > 0, scale, 1.0), 0.0).max())
    if error <= allowed:
        return Against(error, allowed, True)
    far = f"{int((apart > allowed * scale).sum())} of {counted(w.numel(), 'element')} far off"
    if moved is not None:
        spread = float((wide(moved[touched])[finite] - h).abs().nan_to_num(0.0).max())
        if bool((apart <= allowed * scale + NOISE * spread).all()):
            return Against(error, allowed, True, "as far as rounding its inputs moves it")
    return Against(error, allowed, False, far)


def against_eager(written: Written, launches: Launches, have: torch.Tensor, coarsest: float = 0.0) -> Against | None:
    """Compares a result with eager's value of its node; None where that is unknown. `coarsest`: the tolerance of the
    coarsest dtype that the kernel reads; it counts where there is no float64 value, since kernels skip roundings that
    eager makes on the way."""
    if not written.eager:
        return None
    eager = flat(launches.tensors.get(written.eager), dtype_of(written.dtype)).reshape(written.shape)
    truth = None
    if written.truth:
        truth = flat(launches.tensors.get(written.truth), dtype_of(written.truth_dtype)).reshape(written.shape)
    flips, count = eager.numel() // FLIPS, max(1, eager.numel())
    exact = None if truth is None else [truth]
    difference = compare(exact, [eager], [have], check=("nan", "accuracy"), noise=lambda output: Noise(flips))
    why = "" if difference is None else difference.text
    if not is_float(eager):
        return Against(float((eager != have).sum()) / count, flips / count, difference is None, why)
    base, own = tolerance(eager.dtype), 0.0 if truth is None else relative_rmse(eager, truth)
    by_truth = (FACTOR if own < 1.0 else NOISE_FACTOR) * own + base
    limit = NO_REFERENCE * max(base, coarsest) if truth is None else by_truth
    error = relative_rmse(have, eager if truth is None else truth)
    near = truth is None and coarsest > base and error <= limit
    return Against(error, limit, difference is None or near, "" if near else why)


def arguments_of(
    launch: Launch,
    launches: Launches,
    results: Mapping[int, torch.Tensor] | None = None,
    moved: Mapping[int, torch.Tensor] | None = None,
) -> list[Argument]:
    """A row for each written argument. `results`: storage -> its bytes after the launch; None: the interpreter's own,
    which are compared with eager only. `moved`: as `results`, for inputs moved by one rounding."""
    rows = []
    for written in launch.written:
        tensor = launch.tensors[written.argument]
        storage = launch.storages[tensor.storage]
        after = launches.tensors.get(storage.after)
        have = after if results is None else results[tensor.storage]
        row = Argument(written.argument, written.buffer, written.node, tensor.text())
        if results is not None:
            kept = (launches.tensors.get(storage.before), after, have, *([moved[tensor.storage]] if moved else ()))
            row.interpreter = against_interpreter(*(flat(data, dtype_of(tensor.dtype)) for data in kept))
        row.eager = against_eager(written, launches, view(have, tensor), _coarsest(launch))
        rows.append(row)
    return rows


def _coarsest(launch: Launch) -> float:
    """The largest tolerance among the dtypes of a kernel's arguments."""
    kinds = [dtype_of(tensor.dtype) for tensor in launch.tensors.values()]
    return max((tolerance(kind) for kind in kinds if kind.is_floating_point), default=0.0)


def is_float(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds floating-point or complex numbers."""
    return tensor.is_floating_point() or tensor.is_complex()


def _same(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    if tensor.dtype.itemsize == 1 and tensor.is_floating_point():
        return tensor.view(torch.uint8) == other.view(torch.uint8)
    return (tensor == other) | ((tensor != tensor) & (other != other))
