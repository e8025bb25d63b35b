# pyright: basic
"""What the children of the fork server do for a search by node: record values, judge the whole, judge one compiled
part.

A part is judged by the local test (see `departures`) on its own inputs. Random graphs are compiled with
`fallback_random`, so that compiled code draws eager's numbers. Every function takes and returns plain JSON values.

For example: `ask("graphdbg.toolkit.blame.node_tasks:part", {"atoms": [3, 4], "returned": None, ...}, server=server)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import fx

from ...dumps.walk import user_frame
from ..cutting.parts import Invalid, atoms_in, keep_values, part_of
from ..cutting.spill import load_values
from ..isolation.child import is_memory_error, mark
from ..judging.departures import Departure, departures
from ..judging.judge import judge
from ..judging.missing import missing
from ..judging.nan_origins import nan_origins
from ..live.case import Case, Live
from ..live.eager import clone_inputs, copy_graph, draws_from_generator, is_uninitialised
from ..live.entries import shared_fakes
from ..live.execution import Attributes, execute, returned
from ..live.spec import ReplaySpec, in_force, no_caches, settings
from ..node_values.measuring import tappable, target_of
from ..rungs import CannotRun
from ..rungs import rung as rung_named
from ..verdicts.signature import Signature, from_exception
from .culprits import noticed


def prepare(payload: dict[str, Any]) -> dict[str, Any]:
    """Runs the graph eagerly, spills every value to `work`; returns atoms, a row for each node, and where eager has a
    NaN."""
    mark("eager")
    work = Path(payload["work"])
    case = _live(payload)
    spec = case.spec.forward_only
    with settings(spec.config), in_force(spec):
        torch.manual_seed(payload["seed"])
        origins = nan_origins(copy_graph(case.gm), clone_inputs(case.inputs))
        nan = [{"node": origin.node.name, "inf": origin.inf} for origin in origins]
    atoms = keep_values(replace(case, spec=spec), work, seed=payload["seed"])
    values = load_values(work)
    taps = set(tappable(case.gm, values)) & atoms.of_node.keys()
    rows = []
    for node in case.gm.graph.nodes:
        tap = node.name in taps and not is_uninitialised(
            node
        )  # a kernel of the user's is given memory that holds nothing
        held = values.tree(node.name) if tap else None
        line, _ = user_frame(node.meta.get("stack_trace") or "")
        rows.append(
            {
                "name": node.name,
                "op": node.op,
                "target": target_of(node),
                "line": line,
                "inputs": [argument.name for argument in node.all_input_nodes],
                "tap": tap,
                "overload": hasattr(node.target, "_schema"),
                "bytes": 0 if held is None else math.prod(held.shape) * held.dtype.itemsize,
            }
        )
    return {"atoms": atoms.to_json(), "nodes": rows, "nan": nan}


def whole(payload: dict[str, Any]) -> dict[str, Any]:
    """Judges the graph as `replay` does, with one compile, and tests its outputs locally."""
    mark("load")
    case = _live(payload)
    case = replace(case, spec=_drawing_like_eager(case.spec, case.gm))
    raised: list[str] = []
    outcome = judge(
        case,
        payload["rung"],
        payload.get("check", "auto"),
        seed=payload["seed"],
        keep_outputs=True,
        watch=lambda: noticed(raised, case.gm, kernels=False),
    )
    wrong: list[Departure] = []
    outputs, outcome.outputs = outcome.outputs, None
    signature = outcome.signature
    if signature is not None and signature.kind in ("accuracy", "nan") and outputs is not None:
        mark("compare")
        with settings(case.spec.config), in_force(case.spec.forward_only):
            got = _named(case.gm, outputs)
            wrong = departures(case.gm, case.inputs, got, seed=payload["seed"])
    return {"outcome": msgspec.to_builtins(outcome), "departures": _plain(wrong), "raised": raised}


def part(payload: dict[str, Any]) -> dict[str, Any]:
    """Compiles the kept atoms (all where `atoms` is None) fed with eager's values; returns the values that depart, or
    how else it failed.

    `returned`: None for natural outputs, else names of nodes. `fallback`: operators to leave to eager's kernels.
    """
    mark("build")
    for op in payload.get("fallback") or ():
        from . import switching

        switching.fall_back(op)
    try:
        piece = _part(payload)
    except Invalid as error:
        return {"invalid": str(error), "departures": [], "signature": None}
    gm, inputs, spec = piece.gm, piece.inputs, _drawing_like_eager(piece.spec, piece.gm).forward_only
    rung = rung_named(payload["rung"])
    step = "compile"
    with settings(spec.config), no_caches(), in_force(spec):
        try:
            mark("compile")
            copied = copy_graph(gm)
            attributes = Attributes(gm)
            with rung.around(copied, spec):
                fakes = shared_fakes(copied, inputs, spec.dynamic)[0]
                compiled = rung.build(copied, fakes, spec)
                step = "run"
                mark("run")
                outputs = execute(compiled, clone_inputs(inputs), seed=payload["seed"]).outputs
        except CannotRun as reason:
            return {"invalid": str(reason), "departures": [], "signature": None}
        except Exception as error:  # noqa: BLE001  whatever the rung raises is the finding
            memory = is_memory_error(error)
            if not memory and (why := missing(error)):
                return {"invalid": why, "departures": [], "signature": None}
            signature = Signature("memory", step) if memory else from_exception(error, step)
            return {"signature": msgspec.to_builtins(signature), "departures": []}
        mark("compare")
        attributes.restore()
        wrong = departures(gm, inputs, _named(gm, outputs), seed=payload["seed"])
    return {"departures": _plain(wrong), "signature": None}


def _live(payload: dict[str, Any]) -> Live:
    return Case.at(payload["path"]).live(seed=payload["seed"], device=payload["device"])


def _part(payload: dict[str, Any]) -> Live:
    if payload["atoms"] is None and payload["returned"] is None:
        return _live(payload)
    work = Path(payload["work"])
    atoms = atoms_in(work)
    keep = range(len(atoms)) if payload["atoms"] is None else payload["atoms"]
    returned = None if payload["returned"] is None else atoms.positions(payload["returned"])
    return part_of(Case.at(payload["path"]), work, set(keep), returned=returned, device=payload["device"])


def _drawing_like_eager(spec: ReplaySpec, gm: fx.GraphModule) -> ReplaySpec:
    if not draws_from_generator(gm):
        return spec
    inductor = {**spec.config.get("inductor", {}), "fallback_random": True}
    return msgspec.structs.replace(spec, config={**spec.config, "inductor": inductor})


def _named(gm: fx.GraphModule, outputs: Sequence[Any]) -> dict[str, torch.Tensor]:
    """The outputs by the nodes that they are values of, without inputs that are only passed through."""
    return {
        leaf.name: value
        for leaf, value in zip(returned(gm), outputs, strict=False)
        if isinstance(leaf, fx.Node) and leaf.op not in ("placeholder", "get_attr") and isinstance(value, torch.Tensor)
    }


def _plain(wrong: Sequence[Departure]) -> list[dict[str, Any]]:
    return [departure._asdict() for departure in wrong]
