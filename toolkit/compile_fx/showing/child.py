# pyright: basic
"""What a child does for `graphdbg compile`: compiles a saved graph for fake inputs and reports each stage as it goes.

No tensor of the graph's inputs is made, and nothing is run; with `device` everything is moved, for which inputs are
made up. Runs in a child process, since a compile may crash it. No compile cache is read or written.

For example: `ask("graphdbg.toolkit.compile_fx.showing.child:task", {"path": "run/0_0/forward", ...}, server=server)`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from ....dumps import live
from ....dumps.errors import DeviceMissingError, GraphdbgError
from ....dumps.store import SavedGraph, load_graph
from ...isolation.child import failure_of, is_memory_error, mark
from ...kernels.records import MISSING_DEVICE, CompileFailure
from ...live import gpu_only
from ...live.case import Case, Live, follow_saved
from ...live.eager import copy_graph
from ...live.entries import mode_of, patterns_without_device, shared_fakes
from ...live.spec import FULL_STAGES, ReplaySpec, in_force, settings
from ...triton.emission import architecture, triton_sources
from ...triton.needs import require_triton
from ...triton.pretended import pretending
from ...triton.retarget import put, retargeted
from ...triton.targets import target_of
from ..entering import enter
from ..errors import carried, explain
from ..package import compile_ahead_of_time
from ..pipeline import Observer, Pipeline
from ..stage import Stage
from ..telling import Teller, tell
from ..work import Work
from .asking import Request

_NO_DEVICE = (
    "not compiled with CUDA",
    "NVIDIA driver",
    "No CUDA GPUs",
    "CUDA driver",
    "active drivers",
    "no GPU",
    "re-initialize CUDA",  # a build with CUDA, in a forked child
    "triton",
)
"""What torch and Triton say where there is no device."""


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """Compiles; returns {} when all went well or a stage failed, which the events then say. Raises what a user can
    mend."""
    mark("load the graph")
    saved = load_graph(payload["path"])
    request = msgspec.convert(payload, Request)
    case = _case(saved, request.device)
    teller = Teller(Path(payload["folder"]), request)
    about = _for_target(saved, case, teller) if request.target else {"target": "", "assembler": ""}
    devices = sorted({value.device.type for value in case.inputs if isinstance(value, torch.Tensor)})
    lacking = [device for device in devices if device != "cpu" and not _has(device) and not request.target]
    until = request.until
    if lacking and until is None:
        until = "codegen"
    if until is None and not request.target and (why := gpu_only.refusal(case.gm)) is not None:
        until = "codegen"
        case.notes.append(f"{why}; so it stops after codegen, and --target cuda:90 shows its kernels for a GPU")
    count = sum(len(part.graph.nodes) for part in case.gm.modules() if isinstance(part, torch.fx.GraphModule))
    tell(
        "start", devices=devices, lacking=lacking, torch=str(torch.__version__), nodes=count, notes=case.notes, **about
    )
    began = time.perf_counter()
    try:
        with patterns_without_device() if lacking or request.target else contextlib.nullcontext():
            lost = _compile(case, teller, request, until)
        tell("notes", notes=lost)
    except BaseException as error:  # whatever a stage raises is what is to be told
        if not teller.failed and not isinstance(error, Exception):
            raise
        if (mistake := _mistake(error)) is not None:
            raise mistake from None
        tell("error", error=_trouble(error, teller, lacking), seconds=time.perf_counter() - began)
        return {}
    tell("done", seconds=time.perf_counter() - began)
    return {}


def _case(saved: SavedGraph, device: str | None) -> Live:
    """The graph on fake values: recorded ones, with their symbols; of inputs of which too little is known, or moved
    ones, fakes of made-up inputs."""
    if device is None:
        gm, fakes, mode = live.fake_module(saved.record, saved.tensors, where=str(saved.path))
        notes = follow_saved(gm, mode, saved.record)
        users = [len(node.users) for node in gm.graph.nodes if node.op == "placeholder"]
        if all(value is not None or not used for value, used in zip(fakes, users, strict=True)):
            return Live(gm, list(fakes), ReplaySpec.of(saved.record), notes)
    try:
        case = Case(saved).live(device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise DeviceMissingError(f"the graph cannot be moved to {device}", str(error).splitlines()[0]) from error
    gm = copy_graph(case.gm)
    fakes = shared_fakes(gm, case.inputs, case.spec.dynamic)[0]
    return Live(gm, fakes, case.spec, case.notes)


def _for_target(saved: SavedGraph, case: Live, teller: Teller) -> dict[str, str]:
    """Moves the case to the pretended GPU, reports what the recording has for it, and names target and assembler."""
    require_triton()
    import triton

    on_gpu = any(isinstance(value, torch.Tensor) and value.is_cuda for value in case.inputs)
    if case.spec.stage not in FULL_STAGES:
        case.inputs[:] = retargeted(case.gm, case.inputs, mode_of(case.gm, case.inputs)).fakes
    if not on_gpu:
        case.notes.append("recorded on the CPU; these are the kernels that Inductor writes for a GPU")
    for file in saved.code_files():
        if file.name == "output_code.py":
            teller.recorded.update(triton_sources(file.read_text()))
    target = target_of(teller.wanted.target)
    assembler = f"Triton {triton.__version__}, {architecture(target.capability)}"
    return {"target": target.text(), "assembler": assembler}


def _compile(case: Live, teller: Teller, request: Request, until: str | None) -> list[str]:
    onto = [_Onto()] if request.target and case.spec.stage in FULL_STAGES else []
    pipeline = Pipeline([*onto, teller.kernels, teller], skip=request.skip, until=until)
    teller.reports = pipeline.reports
    pretended = pretending(target_of(request.target)) if request.target else contextlib.nullcontext()
    with settings(case.spec.config) as lost, in_force(case.spec), pretended:
        if request.package:
            compile_ahead_of_time(case.gm, case.inputs, path=request.package, pipeline=pipeline)
        else:
            enter(case.gm, case.inputs, case.spec, pipeline)
    teller.tell_skipped()
    return [*lost, *pipeline.told_of_skipped()]


class _Onto(Observer):
    """Puts graphs onto the pretended GPU behind AOTAutograd, whose engine takes no tensors of a GPU that torch does not
    have."""

    def before(self, stage: Stage, work: Work) -> None:
        if stage.name == "joint":
            put(work.gm, None)
        elif stage.name == "post_grad":
            work.inputs = put(work.gm, list(work.inputs))[0]


def _has(device: str) -> bool:
    return device == "meta" or (device == "cuda" and torch.cuda.is_available())


def _mistake(error: BaseException | None) -> GraphdbgError | None:
    """An error that the user can fix, also where torch has wrapped it."""
    for _ in range(20):
        if error is None or isinstance(error, GraphdbgError):
            return error
        error = getattr(error, "inner_exception", None) or error.__cause__
    return None


def _trouble(error: BaseException, teller: Teller, lacking: Sequence[str]) -> CompileFailure:
    """The account of an error: in which stage, of what type (the one that torch wrapped), behind which nodes, at which
    lines."""
    account = carried(error) or explain(error, teller.work, teller.failed or "entering")
    inner = getattr(error, "inner_exception", None) or error
    part = teller.name_of(teller.work) if teller.work is not None else ""
    nodes = account.nodes
    failure = failure_of(inner)
    trouble = CompileFailure(teller.failed, failure.type, str(error), part)
    trouble.kind, trouble.nodes = account.kind, [node.node for node in nodes]
    trouble.lines = list(dict.fromkeys(node.line for node in nodes if node.line))
    trouble.kernel, trouble.excerpt, trouble.advice = account.kernel, account.text(), account.fix
    trouble.traceback = failure.traceback
    if lacking and any(word in str(inner) for word in _NO_DEVICE):
        trouble.kind, device = MISSING_DEVICE, ", ".join(lacking)
        trouble.message = f"{teller.failed} asks the device itself, and there is no {device} device here"
        trouble.advice = "--target cuda:90 writes the code for a GPU that is not here; --device cpu moves the graph"
    if is_memory_error(inner):
        trouble.advice = (
            trouble.advice or "memory ran out: close what else runs, or compile a smaller graph (graphdbg minify)"
        )
    return trouble
