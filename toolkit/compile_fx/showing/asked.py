"""What was asked of `graphdbg compile`, checked before anything is compiled: names, order, places to write to.

Every refusal is a sentence that says what there is instead. Must not import torch.

>>> check_stage(saved, "lowr", "--until")
Traceback (most recent call last):
...
UsageError: no stage is called 'lowr': the stages are pre_grad, ... Did you mean 'lower'?
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ....dumps.errors import UsageError
from ....dumps.store import SavedGraph
from ...triton.targets import CHIPS, DEFAULT, FORMS, target_of
from ...verdicts.ladder_words import address
from ...verdicts.next_command import with_flags
from ..stage import NAMES, STAGES, first_stage, order, reaches

REWRITING = tuple(name for name, stage in STAGES.items() if stage.rewrites)
_GRAPHS = {
    "pre_grad": ("dynamo",),
    "capture": ("pre_grad", "dynamo"),
    "joint": ("joint", "inference", "pre_grad", "dynamo"),
    "partition": ("joint", "joint_passed", "pre_grad", "dynamo"),
    "post_grad": ("forward", "backward", "inference", "joint", "dynamo"),
}
_BEHIND_GRAPHS = "it makes no graph"
_RECORDED_ON = re.compile(r"DeviceProperties\(type='cuda'[^)]*\bcc=(\d+)")


def entry_of(saved: SavedGraph, package: str = "") -> str:
    """The first stage that runs for a graph; what becomes a package goes through all of them."""
    if package:
        return NAMES[0]
    training = saved.stage in ("joint", "joint_passed") and "num_fwd_outputs" in saved.record.compile_kwargs
    return first_stage(saved.stage, training_joint=training)


def sibling(saved: SavedGraph, stages: Sequence[str]) -> str:
    """The address of a graph of the same compile that was recorded at the first of `stages` that there is; else
    empty."""
    if saved.run is None:
        return ""
    head = saved.local_id.rpartition("/")[0]
    same = [one for one in saved.run.graphs() if one.local_id.rpartition("/")[0] == head]
    for stage in stages:
        for one in same:
            if one.stage == stage and one.id != saved.id:
                return address(one)
    return ""


def check_stage(saved: SavedGraph, name: str, option: str) -> None:
    """Raises UsageError for a name that is no stage, or one that this graph has behind it."""
    order(name)
    entered = entry_of(saved)
    applied = saved.stage.startswith("post_grad") and name == "post_grad"
    inference = name == "partition" and saved.stage in ("inference", "joint_passed") and order(name) >= order(entered)
    if inference and not _has_backward(saved):
        raise UsageError(f"{address(saved)} is not partitioned", "it is an inference graph, without a backward")
    if order(name) >= order(entered) and not applied:
        return
    found = sibling(saved, _GRAPHS.get(name, ()))
    asked_for = option if option.startswith("--skip ") else f"{option} {name}"
    fix = (
        f"try {with_flags(f'graphdbg compile {found} {asked_for}')}"
        if found
        else f"record it with graphdbg dump --stages {_recorded(name)}"
    )
    raise UsageError(f"{address(saved)} was recorded after {name}", "that stage does not run for it any more", fix)


def check_diff(saved: SavedGraph, stage: str, until: str | None) -> None:
    """Raises UsageError where there are no graphs before and after a stage to compare."""
    order(stage)
    if stage not in REWRITING:
        why = {
            "capture": "it makes other graphs of the one that it takes",
            "partition": "it makes two graphs of one: graphdbg diff compares saved ones",
        }.get(stage, f"{_BEHIND_GRAPHS}: --emit source shows what comes of it")
        raise UsageError(f"--diff {stage} has nothing to compare", why, f"--diff takes {', '.join(REWRITING)}")
    check_stage(saved, stage, "--diff")
    if not reaches(until, stage):
        raise UsageError(
            f"--diff {stage} needs {stage} to run", f"--until {until} stops before it", "leave --until out"
        )


def check_skip(saved: SavedGraph, names: Sequence[str]) -> None:
    """Raises UsageError for what is no stage and no pass, cannot be skipped, or lies behind this graph."""
    from ..passes.names import asked, resolve

    stages, _ = asked(names)
    for name in sorted(stages):
        if needed := STAGES[name].needed:
            before = [one for one in REWRITING if order(one) < order(name) and order(one) >= order(entry_of(saved))]
            fix = f"--until {before[-1]} stops before it" if before else "leave it in"
            raise UsageError(f"cannot skip {name}", needed, fix)
        check_stage(saved, name, "--skip")
    for name in names:
        if name in STAGES:
            continue
        found = sorted({stage for stage, _ in resolve(name)}, key=order)
        if all(order(stage) < order(entry_of(saved)) for stage in found):
            check_stage(saved, found[-1], f"--skip {name}")


def check_emit(kinds: Sequence[str], target: str | None, *, device: str | None, folder: Path | None) -> list[str]:
    """The forms of single kernels among `kinds`. Raises UsageError for kinds that are unknown, or what cannot be
    printed."""
    for kind in kinds:
        if kind not in ("source", *FORMS):
            near = difflib.get_close_matches(kind, ("source", *FORMS), 1)
            why = f"it takes source, {', '.join(FORMS)}"
            raise UsageError(f"--emit knows no {kind!r}", why, f"did you mean {near[0]}?" if near else "")
    forms = [kind for kind in FORMS if kind in kinds]
    if (forms or target) and device is not None:
        why = "--device moves the graph to a device that is here, --target writes code for a GPU that need not be"
        raise UsageError("--device and a target are two different things", why, "leave one of them out")
    if "cubin" in kinds and folder is None:
        raise UsageError("--emit cubin prints nothing", "machine code is binary", "write it with -o DIR")
    return forms


def target_for(saved: SavedGraph, named: str | None) -> str:
    """The GPU that kernels are written for: the one that was named, that of the recording, or the usual one."""
    if named is not None:
        return target_of(named).name
    for file in saved.code_files():
        found = _RECORDED_ON.search(file.read_text()) if file.name == "output_code.py" else None
        if found is not None and int(found.group(1)) in CHIPS:
            return f"cuda:{found.group(1)}"
    return DEFAULT


def check_package(path: Path, others: Mapping[str, object]) -> None:
    """Raises before anything is compiled where no package can be written to `path`, or with options that stop before
    its end."""
    if path.suffix != ".pt2":
        raise UsageError(
            f"cannot write a package to {path}", "torch loads only files whose name ends in .pt2", "add it"
        )
    if path.exists():
        raise UsageError(f"{path} is there already", "nothing is overwritten", "name another file")
    if given := [name for name, value in others.items() if value]:
        raise UsageError(
            "--package runs every stage as it is", f"{given[0]} asks for something else", f"leave {given[0]} out"
        )


def _has_backward(saved: SavedGraph) -> bool:
    return "num_fwd_outputs" in saved.record.compile_kwargs


def _recorded(stage: str) -> str:
    return ",".join(
        dict.fromkeys(("dynamo" if stage == "pre_grad" else stage if stage == "joint" else "forward", "dynamo"))
    )


def not_run_after(until: str) -> list[str]:
    """The stages that a compile leaves out."""
    return list(NAMES[order(until) + 1 :])


def check_code(until: str, emit: str) -> None:
    """Raises UsageError where a compile stops before there is code to print."""
    if not reaches(until, "codegen"):
        raise UsageError(f"--emit {emit} needs the code", f"--until {until} stops before codegen", "leave --until out")
