# pyright: basic
"""What the children of the fork server do for a search by node: record values, judge the whole, judge one compiled
part.

A part is judged by the local test (see `departures`) on its own inputs. Random graphs are compiled with
`fallback_random`, so that compiled code draws eager's numbers. Every function takes and returns plain JSON values.

For example: `ask("graphdbg.toolkit.blame.node_tasks:part", {"atoms": [3, 4], "returned": None, ...}, server=server)`.
"""

from __future__ import annotations

import contextlib
import math
import re
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import fx

from ...dumps.names import of_module
from ...dumps.opening import text_if_there
from ...dumps.walk import user_frame
from ..cutting.parts import Invalid, atoms_in, keep_values, part_of
from ..cutting.spill import load_values
from ..isolation.child import is_memory_error, mark
from ..judging.departures import WrongValue, departures
from ..judging.judge import judge
from ..judging.missing import missing
from ..judging.nan_origins import nan_origins
from ..live.case import Case, Live
from ..live.eager import clone_inputs, copy_graph, draws_from_generator, eager_draws, is_uninitialised
from ..live.entries import shared_fakes
from ..live.execution import Attributes, execute, returned
from ..live.spec import ReplaySpec, in_force, no_caches, settings
from ..node_values.standing import tappable, target_of
from ..rungs import CannotRun
from ..rungs import rung as rung_named
from ..verdicts.outcome import Outcome
from ..verdicts.signature import Signature, from_exception, inside, lowering_target
from . import switching

_LOCALS = ("n", "node", "fx_node", "current_node", "buffer", "scheduler_node", "snode")
_DEPTH = 20


def raised_at(error: BaseException, gm: fx.GraphModule) -> list[str]:
    """The names of the nodes of `gm` that were being compiled, the innermost first; empty where the exception names
    none.

    Read from the frames of the exception, with no further compile: Inductor's lowering, scheduler and code generators
    hold the fx node they are at, or an object that knows the nodes it came from, in a local variable. Where no frame
    holds one, the operator in the message is looked up.
    """
    there = {node.name for node in gm.graph.nodes}
    for cause in reversed(list(_chain(error))):
        for frame, _ in reversed(list(traceback.walk_tb(cause.__traceback__))):
            held = frame.f_locals
            known = [name for key in _LOCALS if key in held for name in _names(held[key])]
            names = [name for name in dict.fromkeys(known) if name in there]
            if names:
                return names
    for cause in _chain(error):
        if target := lowering_target(str(cause)):
            return [node.name for node in gm.graph.nodes if str(node.target) == target]
    return []


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and what it wraps, outermost first."""
    current: BaseException | None = error
    for _ in range(_DEPTH):
        if current is None:
            return
        yield current
        current = inside(current) or current.__cause__ or current.__context__


def _names(value: Any) -> list[str]:
    if isinstance(value, fx.Node):
        return [value.name] if value.op not in ("placeholder", "output") else []
    for holder in (value, getattr(value, "node", None)):
        if isinstance(node := getattr(holder, "origin_node", None), fx.Node):
            return [node.name]
        origins = getattr(holder, "origins", None)
        if isinstance(origins, Iterable) and (
            names := [origin.name for origin in origins if isinstance(origin, fx.Node)]
        ):
            return names
    return []


MOST = 32
FAR = 100.0
"""An output is called wrong if its error is over FAR times eager's own, and over a FAR-th of the worst output's."""
_KERNEL = re.compile(r"^(\w+) = async_compile\.\w+\([^\n]*?(?:'''|\"\"\")(.*?)(?:'''|\"\"\")", re.DOTALL | re.MULTILINE)
_SOURCE = re.compile(r"\S+\.(?:main\.)?cpp\b")


@contextlib.contextmanager
def noticed(collected: list[str], gm: fx.GraphModule, *, kernels: bool = True) -> Iterator[None]:
    """Adds to `collected` the names of nodes of `gm` that an exception inside names, and lets the exception through.
    `kernels`: also those that a refused kernel came from."""
    noted: dict[str, list[str]] = {}
    try:
        with switching.noting_kernels(noted) if kernels else contextlib.nullcontext():
            yield
    except Exception as error:
        there = {node.name for node in gm.graph.nodes}
        names = [name for name in _of_kernel(error, noted) if name in there] or raised_at(error, gm)
        collected.extend(name for name in names[:MOST] if name not in collected)
        raise


def first_wrong(gm: fx.GraphModule, outcome: Outcome) -> list[str]:
    """The earliest node in graph order whose value is a wrong output, as a list of one name.

    Empty where the failure is not in the numbers, or where no output is right: then the fault may lie anywhere before.
    """
    if outcome.signature is None or outcome.signature.kind not in ("accuracy", "nan"):
        return []
    leaves = returned(gm)
    if outcome.signature.kind == "nan":
        wrong = set(outcome.nan) - set(outcome.eager_nan)
    else:
        errors = [(output.name, output.rung or 0.0, output.eager or 0.0) for output in outcome.errors]
        off = {name: error for name, error, own in errors if error > FAR * own}
        wrong = {name for name, error in off.items() if error > max(off.values()) / FAR}
    called = zip(leaves, of_module(gm).outputs, strict=True)
    names = {leaf.name for leaf, name in called if name in wrong and isinstance(leaf, fx.Node)}
    computed = {leaf.name for leaf in leaves if isinstance(leaf, fx.Node) and leaf.op.startswith("call")}
    if computed <= names:
        return []
    return [node.name for node in gm.graph.nodes if node.name in names and node.op.startswith("call")][:1]


def _of_kernel(error: BaseException, kernels: dict[str, list[str]]) -> list[str]:
    """The nodes of the kernel that an error is about: named in its text, or in the C++ file that it names."""
    for cause in _chain(error):
        text = str(cause)
        for name, nodes in kernels.items():
            if re.search(rf"\b{re.escape(name)}\b", text):
                return nodes
        for match in _SOURCE.finditer(text[:2000]):
            refused = text_if_there(match.group())
            for wrapper in _wrappers(cause):
                for name, body in _KERNEL.findall(wrapper):
                    if refused and body.strip() in refused and name in kernels:
                        return kernels[name]
    return []


def _wrappers(error: BaseException) -> Iterator[str]:
    """The sources of the generated modules that were running when an exception was raised."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "<module>" and "async_compile" in frame.f_globals:
            yield text_if_there(frame.f_code.co_filename)


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
        row = {"name": node.name, "op": node.op, "target": target_of(node), "tap": tap}
        row["line"], _ = user_frame(node.meta.get("stack_trace") or "")
        row["inputs"] = [argument.name for argument in node.all_input_nodes]
        row["overload"] = hasattr(node.target, "_schema")
        row["bytes"] = 0 if held is None else math.prod(held.shape) * held.dtype.itemsize
        rows.append(row)
    return {"atoms": atoms.to_json(), "nodes": rows, "nan": nan}


def whole(payload: dict[str, Any]) -> dict[str, Any]:
    """Judges the graph as `replay` does, with one compile, and tests its outputs locally."""
    mark("load")
    case = _live(payload)
    case = replace(case, spec=_drawing_like_eager(case.spec, case.gm))
    raised: list[str] = []
    with _eager_draws(case.gm):
        outcome = judge(
            case,
            payload["rung"],
            payload.get("check", "auto"),
            seed=payload["seed"],
            keep_outputs=True,
            watch=lambda: noticed(raised, case.gm, kernels=False),
        )
    wrong: list[WrongValue] = []
    outputs, outcome.outputs = outcome.outputs, None
    signature = outcome.signature
    if signature is not None and signature.kind in ("accuracy", "nan") and outputs is not None:
        mark("compare")
        with settings(case.spec.config), in_force(case.spec.forward_only):
            got = _named(case.gm, outputs)
            wrong = departures(case.gm, case.inputs, got, seed=payload["seed"])
    plain = [departure._asdict() for departure in wrong]
    return {"outcome": msgspec.to_builtins(outcome), "departures": plain, "raised": raised}


def part(payload: dict[str, Any]) -> dict[str, Any]:
    """Compiles the kept atoms (all where `atoms` is None) fed with eager's values; returns the values that depart, or
    how else it failed.

    `returned`: None for natural outputs, else names of nodes. `fallback`: operators to leave to eager's kernels.
    """
    mark("build")
    for op in payload.get("fallback") or ():
        switching.fall_back(op)
    try:
        piece = _part(payload)
    except Invalid as error:
        return {"invalid": str(error), "departures": [], "signature": None}
    gm, inputs, spec = piece.gm, piece.inputs, piece.spec.forward_only
    rung = rung_named(payload["rung"])
    step = "compile"
    with settings(spec.config), no_caches(), in_force(spec), _eager_draws(gm):
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
    return {"departures": [departure._asdict() for departure in wrong], "signature": None}


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


def _eager_draws(gm: fx.GraphModule) -> contextlib.AbstractContextManager[None]:
    return eager_draws() if draws_from_generator(gm) else contextlib.nullcontext()


def _drawing_like_eager(spec: ReplaySpec, gm: fx.GraphModule) -> ReplaySpec:
    """The spec for `judge` with `fallback_random` where the graph draws random numbers: `judge` sets it and compiles
    once."""
    if not draws_from_generator(gm):
        return spec
    inductor = {**spec.config.get("inductor", {}), "fallback_random": True}
    return msgspec.structs.replace(spec, config={**spec.config, "inductor": inductor})


def _named(gm: fx.GraphModule, outputs: Sequence[Any]) -> dict[str, torch.Tensor]:
    """The output tensors by the name of the node that computes each, without inputs that are only passed through."""
    return {
        leaf.name: value
        for leaf, value in zip(returned(gm), outputs, strict=False)
        if isinstance(leaf, fx.Node) and leaf.op not in ("placeholder", "get_attr") and isinstance(value, torch.Tensor)
    }
