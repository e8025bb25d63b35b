"""Starts children that save the launches of a graph, and that run one launch at a time on the GPU. Imports no torch.

A kernel that kills its process is reported as one that died; the other launches go on.

For example:

    with opened(None, "inductor", *TASKS) as children:
        saved = launches_of(graph, Path("launches"), "cuda:90", children)
        rows = [alone(saved, launch, children, None) for launch in saved.launches]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ...dumps.errors import GraphdbgError
from ...dumps.store import SavedGraph
from ...dumps.tables import Column, render
from ...dumps.wording import count_text, size_text
from ..isolation import ForkServer, TaskResult, ask
from ..live.how import USUAL, How
from ..triton.targets import DEFAULT
from ..verdicts.ladder_words import address
from ..verdicts.signature import how_ended
from .launches import INDEX, Launch, Launches, open_launches

COPY_BYTES = 1 << 30
MATRIX = 8192
SMALL_MEMORY = 8 << 30
SHORTEST = 2.0
"""A kernel shorter than this many times the shortest launch is bound neither by memory nor by compute."""


class Ceilings(msgspec.Struct, frozen=True):
    """The ceilings of one GPU: bandwidth in bytes read plus written per second; peaks in operations per second by kind
    ("bf16", "fp16", "tf32", "fp32", "fp64"); seconds of the shortest launch."""

    device: str
    capability: int
    bandwidth: float
    peaks: dict[str, float]
    launch_s: float


class KernelBound(msgspec.Struct, frozen=True):
    """Where one kernel stands under the roofline. Shares are of the measured ceilings; None: unknown. `bound`:
    "memory", "compute", "launch" or ""."""

    seconds: float
    bytes: int | None
    flops: int | None
    kind: str
    bandwidth: float | None
    bandwidth_share: float | None
    rate: float | None
    rate_share: float | None
    intensity: float | None
    bound: str


def placed(seconds: float, moved: int | None, flops: int | None, kind: str, ceilings: Ceilings) -> KernelBound:
    """Places a kernel that takes `seconds`, moves `moved` bytes and does `flops` operations of a kind under the
    roofline."""
    peak = ceilings.peaks.get(kind)
    bandwidth = moved / seconds if moved is not None else None
    rate = flops / seconds if flops is not None else None
    intensity = flops / moved if flops is not None and moved else None
    share = bandwidth / ceilings.bandwidth if bandwidth is not None else None
    rate_share = rate / peak if rate is not None and peak else None
    bound = ""
    if seconds < SHORTEST * ceilings.launch_s:
        bound = "launch"
    elif intensity is not None and peak:
        bound = "memory" if intensity < peak / ceilings.bandwidth else "compute"
    return KernelBound(seconds, moved, flops, kind, bandwidth, share, rate, rate_share, intensity, bound)


_DOT = re.compile(r"\btl\.dot(?:_scaled)?\s*\(")
_PLAIN = re.compile(
    r"input_precision\s*=\s*[\"']ieee[\"']|allow_tf32\s*=\s*False|ALLOW_TF32\s*:\s*tl\.constexpr\s*=\s*False"
)


def kind_of(source: str, dtypes: Iterable[str]) -> str:
    """The kind of peak that applies to a kernel: with `tl.dot` that of tensor cores for its narrowest float input, else
    that of its widest dtype, at least float32."""
    known = set(dtypes)
    if known & {"float64", "complex128"}:
        return "fp64"
    if not _DOT.search(source):
        return "fp32"
    narrow = [kind for name, kind in (("bfloat16", "bf16"), ("float16", "fp16")) if name in known]
    return [*narrow, "fp32" if _PLAIN.search(source) else "tf32"][0]


def measured(bench: Callable[[Callable[[], object]], float]) -> Ceilings:
    """Measures device 0 in a few seconds; `bench` gives the seconds of a call. Restores settings."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    small = properties.total_memory < SMALL_MEMORY
    ones = torch.ones(COPY_BYTES // (8 if small else 1) // 4, device="cuda")
    copy = torch.empty_like(ones)
    bandwidth = 2 * ones.nbytes / bench(lambda: copy.copy_(ones))
    launch_s = bench(lambda: copy[:1].zero_())
    peaks = {}
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for kind, dtype, tf32, share in (
            ("bf16", torch.bfloat16, False, 1),
            ("fp16", torch.float16, False, 1),
            ("tf32", torch.float32, True, 1),
            ("fp32", torch.float32, False, 2),
            ("fp64", torch.float64, False, 4),
        ):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            size = MATRIX // (2 if small else 1) // share
            left, right = (torch.randn(size, size, device="cuda", dtype=torch.float32).to(dtype) for _ in range(2))
            matrix = torch.empty(size, size, device="cuda", dtype=dtype)
            peaks[kind] = 2 * size**3 / bench(partial(torch.mm, left, right, out=matrix))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return Ceilings(properties.name, properties.major * 10 + properties.minor, bandwidth, peaks, launch_s)


class Against(msgspec.Struct, frozen=True):
    """The comparison of a result with its reference. `error`: of floats, the largest of an element relative to its size
    plus the RMS, or the relative RMS error to float64; of integers, the share of elements that differ; None: not
    finite. `why`: how it differs, or why the difference does not count."""

    error: float | None
    tolerance: float | None
    ok: bool
    why: str = ""


class Argument(msgspec.Struct):
    """One argument that a kernel wrote. `interpreter`, `eager`: the comparison with each; None where there is no
    reference."""

    name: str
    buffer: str
    node: str
    type: str
    interpreter: Against | None = None
    eager: Against | None = None

    @property
    def ok(self) -> bool:
        """Whether no comparison failed."""
        return all(comparison is None or comparison.ok for comparison in (self.interpreter, self.eager))


class JudgedLaunch(msgspec.Struct):
    """The result of one launch. `died`: how the process ended, if it died; `where`: "interpreter", or the GPU's
    name."""

    kernel: str
    number: int
    call: int
    calls: int
    grid: tuple[int, int, int] = (1, 1, 1)
    config: str = ""
    where: str = ""
    nodes: list[str] = []
    arguments: list[Argument] = []
    place: KernelBound | None = None
    died: str = ""
    notes: list[str] = []

    @classmethod
    def of(cls, launch: Launch, where: str, arguments: list[Argument], died: str = "") -> JudgedLaunch:
        """Builds the result of one launch."""
        which = launch.kernel, launch.number, launch.call, launch.calls, launch.grid, launch.config_text()
        return cls(*which, where, launch.nodes, arguments, died=died)

    @property
    def ok(self) -> bool:
        """Whether the launch ran and its results agree."""
        return not self.died and all(argument.ok for argument in self.arguments)


def table(launches: Sequence[Launch]) -> str:
    """A table with one row per kernel: name, launches, and grid, configuration and arguments of its first launch."""
    rows: list[list[str]] = []
    for name in dict.fromkeys(launch.kernel for launch in launches):
        first, *others = (launch for launch in launches if launch.kernel == name)
        more = "" if all(launch.grid == first.grid for launch in others) else " ..."
        rows.append([name, str(first.calls), _grid(first.grid) + more, first.config_text(), _arguments(first)])
    return render([*map(Column, ("KERNEL", "LAUNCHES", "GRID", "CONFIG", "ARGUMENTS"))], rows)


def _arguments(launch: Launch) -> str:
    texts = [f"{name} {tensor.text()}" for name, tensor in launch.tensors.items()]
    numbers = [str(argument) for argument in launch.passed if not isinstance(argument, str)]
    return ", ".join([*texts, *numbers])


def listed(known: Launches) -> dict[str, Any]:
    """The list as JSON: one object for each launch."""
    rows = [
        {
            "kernel": launch.kernel,
            "launch": launch.number,
            "call": launch.call,
            "calls": launch.calls,
            "grid": list(launch.grid),
            "config": launch.config_text(),
            "blocks": launch.blocks,
            "num_warps": launch.num_warps,
            "num_stages": launch.num_stages,
            "arguments": [{"name": name, "type": tensor.text()} for name, tensor in launch.tensors.items()],
            "numbers": [value for value in launch.passed if not isinstance(value, str)],
            "written": [{"name": row.argument, "buffer": row.buffer, "node": row.node} for row in launch.written],
            "nodes": launch.nodes,
            "bytes_read": launch.bytes_read,
            "bytes_written": launch.bytes_written,
            "flops": launch.flops,
        }
        for launch in known.launches
    ]
    index = known.index
    return {"graph": index.graph, "target": index.target, "notes": index.notes, "launches": rows}


def report(judged: JudgedLaunch, limits: Ceilings | None = None) -> str:
    """One launch: what it wrote and whether that is right, its time, and where it stands."""
    which = f"{judged.kernel}, launch {judged.call} of {judged.calls}"
    head = f"{which}, grid {_grid(judged.grid)}, {judged.config}   {judged.where}"
    lines = [head, *map(_argument, judged.arguments)]
    if judged.died:
        lines.append(f"died      {judged.died}")
    if judged.place is not None:
        lines += placing(judged.place, limits)
    return "\n".join([*lines, *(f"note      {note}" for note in judged.notes)])


def placing(place: KernelBound, limits: Ceilings | None) -> list[str]:
    """The report's lines about time, bytes and operations."""
    top = f" of {count_text(limits.bandwidth, 'B/s')} measured here" if limits is not None else ""
    speed = ""
    if place.bandwidth is not None:
        speed = f" -> {count_text(place.bandwidth, 'B/s')}, {place.bandwidth_share:.0%}{top}"
    if place.flops is None:
        work = "FLOPs ?"
    else:
        per = f", {place.intensity:.3g} per byte" if place.intensity is not None else ""
        share = f", {place.rate_share:.1%} of the {place.kind} peak" if place.rate_share is not None else ""
        work = f"FLOPs {count_text(place.flops)}{per}{share}"
    words = {
        "memory": " -> memory bound",
        "compute": " -> compute bound",
        "launch": " -> as short as a launch: bound by neither",
    }
    time = f"time      {place.seconds * 1e6:.1f} us (do_bench, median)"
    return [time, f"bytes     {size_text(place.bytes)}{speed}     {work}{words.get(place.bound, '')}"]


def _argument(row: Argument) -> str:
    named = " = ".join(filter(None, [row.name, row.buffer, f"node {row.node}" if row.node else ""]))
    against = [("interpreter", row.interpreter), ("eager", row.eager)]
    parts = [_against(name, comparison) for name, comparison in against if comparison is not None]
    if row.eager is None:
        parts.append("eager ?")
    return f"{named}  {row.type}  {' · '.join(parts)}   {'ok' if row.ok else 'DIFFERS'}"


def _against(name: str, comparison: Against) -> str:
    why = f": {comparison.why}" if comparison.why else ""
    if comparison.error is None or comparison.tolerance is None:
        return f"{name} not finite{why}"
    return f"{name} {comparison.error:.2g} (tolerance {comparison.tolerance:.2g}){why}"


def document(known: Launches, judged: Sequence[JudgedLaunch], limits: Ceilings | None, device: str) -> dict[str, Any]:
    """All results as JSON."""
    return {
        "graph": known.index.graph,
        "target": known.index.target,
        "device": device,
        "notes": known.index.notes,
        "ceilings": msgspec.to_builtins(limits),
        "ok": all(launch.ok for launch in judged),
        "launches": [{"ok": launch.ok, **msgspec.to_builtins(launch)} for launch in judged],
    }


def _grid(grid: Sequence[int]) -> str:
    return f"({','.join(str(size) for size in grid)})"


SAVE = f"{__package__}.saving_child:task"
_ALONE = f"{__package__}.alone"
TASKS = (SAVE, _ALONE)
"""What a server should import once for these questions."""


class RunError(GraphdbgError):
    """The graph's compile or run failed before all of its kernels were launched: a finding, no mistake of the
    user's."""

    code = "GD33"
    exit_code = 1


def gpu(children: ForkServer) -> dict[str, Any]:
    """Name and capability of the GPU here; empty where there is none."""
    answer = ask(f"{_ALONE}:gpu", {}, 120.0, server=children).answer()
    return answer.value if answer.status == "done" else {}


def target_here(hardware: dict[str, Any]) -> str:
    """The target name of a GPU; the default target where there is none."""
    return f"cuda:{hardware['capability']}" if hardware else DEFAULT


def launches_of(
    saved: SavedGraph,
    folder: Path,
    target: str,
    children: ForkServer,
    names: Sequence[str] | None = None,
    how: How = USUAL,
) -> Launches:
    """Interprets a graph's kernels in a child and saves launches to `folder`: those in `names` (None: all). Raises
    RunError where the run failed."""
    payload = {**how.payload(saved), "graph": address(saved), "folder": str(folder.absolute()), "target": target}
    payload["names"] = None if names is None else list(names)
    answer = ask(SAVE, payload, how.limit_s, server=children).end()
    if answer.status != "done":
        raise _failed(answer, folder)
    return open_launches(folder)


def _failed(answer: TaskResult, folder: Path) -> RunError:
    count = len(open_launches(folder).launches) if (folder / INDEX).is_file() else 0
    error = answer.error
    said = f"{error.type.rpartition('.')[2]}: {error.message}".splitlines()[0] if error else ended(answer)
    what = f"the graph failed in {answer.stage or 'loading'} after {count} launch{'es' * (count != 1)}"
    return RunError(what, said, "graphdbg replay --rung triton_interpret tells more")


def ended(answer: TaskResult) -> str:
    """How a process ended, as text."""
    if answer.error is not None:
        said = str(answer.error.message).strip().splitlines() or [""]
        return f"{answer.error.type.rpartition('.')[2]} in {answer.stage or 'loading'}: {said[0]}"
    return how_ended(answer)


def ceilings(children: ForkServer, limit_s: float = 300.0) -> Ceilings | str:
    """The highest rates of the GPU, or why they are not known."""
    answer = ask(f"{_ALONE}:ceilings", {}, limit_s, server=children).answer()
    return msgspec.convert(answer.value, Ceilings) if answer.status == "done" else ended(answer)


def alone(
    known: Launches, launch: Launch, children: ForkServer, limits: Ceilings | None, limit_s: float = 600.0
) -> JudgedLaunch:
    """Runs one launch on the GPU, in a child of its own. Executes the saved source, so only for trusted folders."""
    payload = {"folder": str(known.folder.absolute()), "launch": launch.folder, "ceilings": msgspec.to_builtins(limits)}
    answer = ask(f"{_ALONE}:task", payload, limit_s, server=children).answer()
    if answer.status == "done":
        return msgspec.convert(answer.value, JudgedLaunch)
    return JudgedLaunch.of(launch, "the GPU", [], died=ended(answer))


def interpreted(
    known: Launches, wanted: Sequence[Launch], children: ForkServer, limit_s: float = 600.0
) -> list[JudgedLaunch]:
    """Compares the interpreter's results of launches with eager's. Raises RunError where the comparing child dies."""
    payload = {"folder": str(known.folder.absolute()), "launches": [launch.folder for launch in wanted]}
    answer = ask(f"{_ALONE}:compared", payload, limit_s, server=children).answer()
    if answer.status != "done":
        raise RunError("the results could not be compared", ended(answer))
    return msgspec.convert(answer.value, list[JudgedLaunch])
