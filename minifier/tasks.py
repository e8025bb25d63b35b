# pyright: basic
"""What the children of the fork server do for the minifier: record values once, then build and judge one candidate each.

A folder of its own (`work`) holds what the first child leaves for the others: the index of values, their tensors, the atoms.
Every function takes and returns plain JSON values.

>>> server.call("graphdbg.minifier.tasks:probe", {"work": ..., "case": ..., "candidate": None, "rung": "inductor", ...})
"""

from __future__ import annotations

import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import fx

from ..dumps import live
from ..dumps.store import load_graph
from ..toolkit import _torch
from ..toolkit.blame.culprits import first_wrong, noticed
from ..toolkit.carried import fake_of
from ..toolkit.fake_values import fake_case, keep_fakes, one_operator
from ..toolkit.imports import import_modules
from ..toolkit.inlining import inlinable, inlined
from ..toolkit.isolation.child import mark, tell
from ..toolkit.live_case import LiveCase, live_case
from ..toolkit.parts import Invalid, atoms_in, keep_values, part_of
from ..toolkit.spec import FULL_STAGES, ReplaySpec
from ..toolkit.surroundings import in_force
from ..toolkit.values import input_bytes
from .asking import RUNNING
from .fxproblem import loose_outputs
from .measuring import judged
from .passes import Case, pass_of
from .passes.names import RENAMED
from .passes.switches import early
from .passes.symbolic import Renewing
from .passes.together import together as plainest
from .problem import Candidate


def prepare(payload: dict[str, Any]) -> dict[str, Any]:
    """Runs the case eagerly once, spills every value to `work`, and returns the atoms and the size of the whole.

    With "made_up" nothing is run: only the form of every value is kept (see toolkit.fake_values). "ends_at" names a node that
    took an earlier process with it, and is not run.
    """
    mark("import")
    import_modules(payload["imports"])
    mark("eager")
    work = Path(payload["work"])
    case = _whole(payload)
    atoms = keep_fakes(case, work) if payload["made_up"] else keep_values(
        case, work, seed=payload["seed"], ends_at=payload.get("ends_at", ""), running=work / RUNNING
    )
    return {
        "atoms": atoms.to_json(),
        "nodes": len(case.gm.graph.nodes),
        "input_bytes": input_bytes(case.inputs),
        "notes": case.notes,
        "switches": early(Case(case.gm, case.inputs, case.spec)),
        "inlinable": [] if payload["made_up"] else inlinable(case.gm),
    }


def inline(payload: dict[str, Any]) -> dict[str, Any]:
    """Writes the case with its higher-order operators inlined at `out`."""
    import_modules(payload["imports"])
    saved = load_graph(payload["case"])
    case = live_case(saved, seed=payload["seed"])
    with in_force(case.spec):
        gm = inlined(case.gm, case.inputs)
    live.save_graph(gm, case.inputs, payload["out"], like=saved.record)
    return {}


def probe(payload: dict[str, Any]) -> dict[str, Any]:
    """Builds one candidate (None: the original) and judges it: size, signature or None, verdict in words."""
    if payload.get("uncached"):  # an access out of bounds then leaves the memory that torch holds
        os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    mark("import")
    import_modules(payload["imports"])
    mark("build")
    try:
        gm, inputs, spec = _load(payload)
        if payload.get("control"):
            gm, inputs = one_operator(LiveCase(gm, inputs, spec, []))
            spec = ReplaySpec()
    except Invalid as error:
        return {"invalid": str(error)}
    cuda = any(isinstance(one, torch.Tensor) and one.is_cuda for one in inputs)
    size = {"nodes": len(gm.graph.nodes), "input_bytes": input_bytes(inputs), "cuda": cuda}
    tell(size)
    named: list[str] = []
    whole = payload["candidate"] is None
    if payload["made_up"]:
        payload["lean"] = "fakes"
    outcome = judged(gm, inputs, spec, payload, (lambda: noticed(named, gm)) if whole else nullcontext)
    if whole:
        size["culprits"] = named or first_wrong(gm, outcome)
    return size | {"signature": msgspec.to_builtins(outcome.signature), "verdict": outcome.verdict, "seconds": outcome.seconds}


def outputs(payload: dict[str, Any]) -> dict[str, Any]:
    """What a candidate returns, and which of that it could do without (see fxproblem.loose_outputs)."""
    import_modules(payload["imports"])
    gm, _, _ = _load(payload)
    returned, loose = loose_outputs(gm, atoms_in(Path(payload["work"])))
    return {"returned": returned, "loose": loose}


def propose(payload: dict[str, Any]) -> dict[str, Any]:
    """The edits that one pass proposes for a candidate, in rounds."""
    import_modules(payload["imports"])
    gm, inputs, spec = _load(payload)
    with in_force(spec), _mode(payload, gm, inputs):
        return {"rounds": pass_of(payload["pass"]).propose(Case(gm, inputs, spec))}


def together(payload: dict[str, Any]) -> dict[str, Any]:
    """The plainest edits on several axes at once, and the passes that propose more after them."""
    import_modules(payload["imports"])
    gm, inputs, spec = _load(payload)
    with in_force(spec):
        edits, left = plainest(Case(gm, inputs, spec))
    return {"edits": edits, "left": left}


def emit(payload: dict[str, Any]) -> dict[str, Any]:
    """Writes a candidate as a case folder at `out`, in place of what a task left there that died before it could say so."""
    import_modules(payload["imports"])
    shutil.rmtree(payload["out"], ignore_errors=True)
    gm, inputs, spec = _load(payload)
    record = load_graph(payload["case"]).record
    kept = {room: {key: value for key, value in values.items() if key in spec.config.get(room, {})}
            for room, values in record.config.items()}  # fmt: skip
    renamed = gm.meta.get(RENAMED, {})
    record.inputs = [msgspec.structs.replace(item, name=renamed.get(item.name, item.name)) for item in record.inputs]
    record = msgspec.structs.replace(record, config={room: values for room, values in kept.items() if values})
    if any(fake_of(node) is None for node in gm.graph.nodes if node.op == "placeholder"):
        fakes, mode = _torch.shared_fakes(gm, inputs, dynamic=False)
        with in_force(spec), mode:
            Renewing(gm, "example_value" if spec.stage in FULL_STAGES else "val").run(*fakes, enable_io_processing=False)
    live.save_graph(
        gm, inputs, payload["out"], like=record, stage=spec.stage, compile_kwargs=spec.compile_kwargs, ambient=spec.ambient
    )
    told = {"recorded_at": record.stage} if spec.stage != record.stage else {}
    return {"nodes": len(gm.graph.nodes), "input_bytes": input_bytes(inputs), "spec": msgspec.to_builtins(spec) | told}


def _load(payload: dict[str, Any]) -> tuple[fx.GraphModule, list[Any], ReplaySpec]:
    saved = load_graph(payload["case"])
    if payload["candidate"] is None:
        case = _whole(payload)
        return case.gm, case.inputs, case.spec
    candidate = Candidate.from_json(payload["candidate"])
    module, inputs, spec = part_of(
        saved, Path(payload["work"]), candidate.keep, bypass=candidate.bypass, returned=candidate.returned
    )
    case = Case(module, inputs, spec)
    for edit in candidate.edits:
        try:
            with in_force(spec), _mode(payload, module, inputs):
                case = pass_of(edit.partition(" ")[0]).apply(case, edit)
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError) as error:
            raise Invalid(f"{edit}: {error}") from error
        spec = case.spec
    return case.gm, case.inputs, spec


def _whole(payload: dict[str, Any]) -> LiveCase:
    saved = load_graph(payload["case"])
    return fake_case(saved) if payload["made_up"] else live_case(saved, seed=payload["seed"])


def _mode(payload: dict[str, Any], gm: fx.GraphModule, inputs: list[Any]) -> Any:
    """What a pass works in: made-up inputs are cut and made in their fake mode."""
    return _torch.mode_of(gm, inputs) if payload["made_up"] else nullcontext()
