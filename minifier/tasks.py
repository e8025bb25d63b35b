"""Tasks of the fork server's children for the minifier: record values once, then build and judge one candidate each.

Also: what a child of the fork server does under `--check 'cmd: ...'`: writes the candidate as a case folder and
becomes the command.

A folder of its own (`work`) holds what the first child leaves for the others: the index of values, their tensors, the
atoms. Every function takes and returns plain JSON values.

For example:

    ask("graphdbg.minifier.tasks:probe", {"work": ..., "case": ..., "rung": "inductor", ...}, server=server)
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import torch

from ..dumps import live, walk
from ..dumps.errors import NoGraphError
from ..dumps.store import load_graph
from ..dumps.torchside.values import fake_of
from ..dumps.wording import size_text
from ..toolkit.blame.node_tasks import first_wrong, noticed
from ..toolkit.cutting.atoms import Atoms
from ..toolkit.cutting.parts import Invalid, atoms_in, keep_fakes, keep_values, made_fakes, one_operator, part_of
from ..toolkit.cutting.spill import load_values
from ..toolkit.isolation.child import mark, report
from ..toolkit.judging.judge import Watch, judge
from ..toolkit.live.case import Case, Live
from ..toolkit.live.entries import mode_of, shared_fakes
from ..toolkit.live.inlining import inlinable, inlined
from ..toolkit.live.spec import FULL_STAGES, in_force, settings
from ..toolkit.live.values import input_bytes, leaves
from ..toolkit.replaying.costs import PeakMemory, empty_code_cache
from ..toolkit.replaying.fidelity import CompiledArtifacts
from ..toolkit.replaying.gate import gated, unlike
from ..toolkit.replaying.own_nan import with_own_nan
from ..toolkit.replaying.replay import BUSY, factor
from ..toolkit.verdicts.outcome import Outcome
from ..toolkit.verdicts.signature import Signature
from ..toolkit.verdicts.verdict import UNLIKE, WHOLE, Verdict
from ..toolkit.verdicts.verdict import judged as of
from .asking import RUNNING
from .dropin import loose_outputs
from .passes import NAMES, pass_of
from .passes.forms import numbered
from .passes.names import RENAMED
from .passes.switches import early
from .passes.symbolic import Renewing, node_count
from .search.problem import Candidate


def prepare(payload: dict[str, Any]) -> dict[str, Any]:
    """Runs the case eagerly once, spills every value to `work`, and returns the atoms and the size of the whole.

    With "only_compiled" nothing is run: only the form of every value is kept (see `made_fakes`). "ends_at" names a node
    that killed an earlier process, and is not run.
    """
    mark("eager")
    case = _whole(Case.at(payload["case"]), payload)
    atoms = _kept(case, payload)
    with settings(case.spec.config) as lost:
        notes = [*case.notes, *lost]
    return {
        "atoms": atoms.to_json(),
        "nodes": node_count(case.gm),
        "input_bytes": input_bytes(case.inputs),
        "notes": notes,
        "switches": early(case),
        "inlinable": [] if payload["only_compiled"] else inlinable(case.gm),
    }


def _kept(case: Live, payload: dict[str, Any]) -> Atoms:
    """Leaves in `work` what candidates are built from: the values of one run, or the forms of all values."""
    work = Path(payload["work"])
    if payload["only_compiled"]:
        return keep_fakes(case, work)
    return keep_values(case, work, seed=payload["seed"], ends_at=payload.get("ends_at", ""), running=work / RUNNING)


def inline(payload: dict[str, Any]) -> dict[str, Any]:
    """Writes the case with its higher-order operators inlined at `out`."""
    case = Case.at(payload["case"])
    whole = case.live(seed=payload["seed"])
    with in_force(whole.spec):
        gm = inlined(whole.gm, whole.inputs)
    live.save_graph(gm, whole.inputs, payload["out"], like=case.saved.record)
    return {}


def probe(payload: dict[str, Any]) -> dict[str, Any]:
    """Builds one candidate (None: the original) and judges it: size, signature or None, verdict."""
    if payload.get("uncached"):  # an access out of bounds then leaves the memory that torch holds
        os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    mark("build")
    try:
        original = Case.at(payload["case"])
        case = _load(original, payload)
        if payload.get("control"):
            case = one_operator(case)
    except Invalid as error:
        return {"invalid": str(error)}
    cuda = any(isinstance(item, torch.Tensor) and item.is_cuda for item in case.inputs)
    size: dict[str, Any] = {"nodes": node_count(case.gm), "input_bytes": input_bytes(case.inputs), "cuda": cuda}
    report(size)
    named: list[str] = []
    whole = payload["candidate"] is None
    if payload["only_compiled"]:
        payload["lean"] = "fakes"
    as_recorded = whole and payload["rung"] == "inductor" and not payload["only_compiled"]
    watched = CompiledArtifacts(original.saved) if as_recorded else None

    @contextmanager
    def watch() -> Generator[None]:
        with noticed(named, case.gm) if whole else nullcontext(), watched.compiling() if watched else nullcontext():
            yield

    outcome = judged(case, payload, watch)
    asked = payload["check"] == "nan" or payload["own_nan"]
    outcome = with_own_nan(outcome, case, original.saved, asked=asked, seed=payload["seed"])
    if watched and not payload["anyway"]:
        watched.compare(outcome)
        outcome.unlike = unlike(original.saved, outcome, watched, case.inputs)
        outcome.verdict = gated(original.saved, outcome, outcome.unlike, payload["imports"])
        if outcome.verdict.detail == UNLIKE:
            return size | {"invalid": outcome.text, "record": outcome.verdict.plain()}
    if whole:
        size["culprits"] = named or first_wrong(case.gm, outcome)
    signature = msgspec.to_builtins(outcome.signature)
    return size | {"signature": signature, "record": outcome.verdict.plain(), "seconds": outcome.seconds}


def outputs(payload: dict[str, Any]) -> dict[str, Any]:
    """Positions that a candidate returns, and those that it could do without (see dropin.loose_outputs)."""
    case = _load(Case.at(payload["case"]), payload)
    returned, loose = loose_outputs(case.gm, atoms_in(Path(payload["work"])))
    return {"returned": returned, "loose": loose}


def propose(payload: dict[str, Any]) -> dict[str, Any]:
    """The edits that one pass proposes for a candidate, in rounds."""
    case = _load(Case.at(payload["case"]), payload)
    with in_force(case.spec), _mode(payload, case), numbered(payload["deadly"]):
        return {"rounds": pass_of(payload["pass"]).propose(case)}


def together(payload: dict[str, Any]) -> dict[str, Any]:
    """The plainest edits on several axes at once, and the passes that propose more after them."""
    case = _load(Case.at(payload["case"]), payload)
    with in_force(case.spec), numbered(payload["deadly"]):
        edits, left = plainest(case)
    return {"edits": edits, "left": left}


def emit(payload: dict[str, Any]) -> dict[str, Any]:
    """Writes a candidate as a case folder at `out`, in place of the files of an earlier task that died there."""
    shutil.rmtree(payload["out"], ignore_errors=True)
    case = Case.at(payload["case"])
    emitted, record = _load(case, payload), case.saved.record
    gm, inputs, spec = emitted.gm, emitted.inputs, emitted.spec
    config: dict[str, Any] = {}
    for room, values in record.config.items():
        if kept := {key: value for key, value in values.items() if key in spec.config.get(room, {})}:
            config[room] = kept
    renamed = gm.meta.get(RENAMED, {})
    record.inputs = [msgspec.structs.replace(item, name=renamed.get(item.name, item.name)) for item in record.inputs]
    record = msgspec.structs.replace(record, config=config)
    if any(fake_of(node) is None for node in gm.graph.nodes if node.op == "placeholder"):
        fakes, mode = shared_fakes(gm, inputs, dynamic=False)
        key = "example_value" if spec.stage in FULL_STAGES else "val"
        with in_force(spec), mode:
            Renewing(gm, key).run(*fakes, enable_io_processing=False)
    entered: dict[str, Any] = {name: getattr(spec, name) for name in ("stage", "compile_kwargs", "ambient")}
    live.save_graph(gm, inputs, payload["out"], like=record, **entered)
    reported = {"recorded_at": record.stage} if spec.stage != record.stage else {}
    return {"nodes": node_count(gm), "input_bytes": input_bytes(inputs), "spec": msgspec.to_builtins(spec) | reported}


def cut(payload: dict[str, Any]) -> dict[str, Any]:
    """Writes the named nodes as a case at `out`. The case returns the values that other nodes read. A value that it
    reads from other nodes is an input: the recorded value, or the one that eager computes from the graph's inputs
    ("only_compiled": its form alone).
    """
    mark("eager")
    work, wanted = Path(payload["work"]), set(payload["names"])
    case = _whole(Case.at(payload["case"]), payload)
    atoms = _kept(case, payload)
    keep = {atoms.of_node[name] for name in wanted & atoms.of_node.keys()}
    kept = {name for atom in keep for name in atoms.nodes[atom]}
    behind = [node.name for node in case.gm.graph.nodes if node.name in wanted and node.name not in atoms.order]
    if behind:
        last = next(reversed([name for name in atoms.order if name in atoms.of_node]))
        why = f"eager itself raises at {last}, an earlier node"
        raise NoGraphError(f"cannot cut {behind[0]}", why, f"end at {last} or before")
    if not keep:
        why = "inputs, outputs and sizes compute nothing"
        raise NoGraphError("there is nothing to cut out", why, "name a node that computes a tensor")
    mark("build")
    values = load_values(work, mode_of(case.gm, case.inputs) if payload["only_compiled"] else None)
    own = [node for node in case.gm.graph.nodes if node.name in kept]
    read_outside = [node.name for node in own if any(user.name not in kept for user in node.users)]
    read_outside = [name for name in read_outside if any(True for _ in leaves(values.tree(name)))]
    random = sorted(name for atom in atoms.random if atom in keep for name in atoms.nodes[atom])
    returned = frozenset(atoms.positions(read_outside)) if read_outside else None
    with settings(case.spec.config) as lost:
        notes = [*case.notes, *lost]
    try:
        reported = emit(payload | {"candidate": Candidate(frozenset(keep), returned=returned).to_json()})
    except Invalid as error:
        fix = "include the nodes between them"
        raise NoGraphError("these nodes make no graph of their own", str(error), fix) from error
    came = sorted(kept - wanted, key=atoms.order.index)
    size = {key: reported[key] for key in ("nodes", "input_bytes")}
    return size | {"kept": len(kept), "came": came, "random": random, "notes": notes}


def _load(case: Case, payload: dict[str, Any]) -> Live:
    """A candidate of a case; the case itself where there is none. Raises Invalid."""
    if payload["candidate"] is None:
        return _whole(case, payload)
    candidate, work = Candidate.from_json(payload["candidate"]), Path(payload["work"])
    whole = loaded = part_of(case, work, candidate.keep, bypass=candidate.bypass, returned=candidate.returned)
    for edit in candidate.edits:
        try:
            with in_force(loaded.spec), _mode(payload, whole):
                loaded = pass_of(edit.partition(" ")[0]).apply(loaded, edit)
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError) as error:
            raise Invalid(f"{edit}: {error}") from error
    return loaded


def _whole(case: Case, payload: dict[str, Any]) -> Live:
    return made_fakes(case.saved) if payload["only_compiled"] else case.live(seed=payload["seed"])


def _mode(payload: dict[str, Any], case: Live) -> Any:
    """The context that a pass works in: for synthesised inputs, their fake mode."""
    return mode_of(case.gm, case.inputs) if payload["only_compiled"] else nullcontext()


def judged(case: Live, payload: dict[str, Any], watch: Watch = nullcontext) -> Outcome:
    """The judgement of one graph, with the amounts that were asked for: too slow, too much memory.

    Compile and first run of the rung alone are measured, eager before them is not; a graph that fails in any other way
    keeps that verdict. The time is that of one query at a time, from an empty code cache, with a control (see
    `toolkit.replaying.replay`).
    """
    slow, large = payload.get("slower_than"), payload.get("memory_over")
    peak = PeakMemory()
    watch = watch if large is None else peak.watched
    more: dict[str, Any] = {"seed": payload["seed"], "watch": watch, "lean": payload.get("lean", "")}
    with nullcontext() if slow is None else empty_code_cache():
        outcome = judge(case, payload["rung"], payload["check"], **more)
    if outcome.signature is not None or not outcome.ok or outcome.verdict.skipped:
        return outcome
    took, most = "", ""
    if slow is not None:
        took, most = f"compile and first run took {outcome.seconds:.2f} s", f"{slow:g} s"
        if outcome.seconds > slow:
            busy = factor(len(case.gm.graph.nodes))
            fair = outcome.seconds / (busy if busy >= BUSY else 1.0)
            if busy >= BUSY:
                took += f" ({fair:.2f} s of them its own: a harmless compile takes {busy:.1f} times its work now)"
            if fair > slow:
                raw = f"{took}, more than {most}"
                outcome.signature = Signature("slow", "run", message=f"{slow:g}", size=fair, raw=raw)
    if large is not None:
        took, most = f"compile and first run needed {size_text(peak.bytes, digits=2)}", size_text(large, digits=2)
        if peak.bytes > large:
            raw, size = f"{took}, more than {most}", float(peak.bytes)
            outcome.signature = Signature("memory", "run", message=str(large), detail="peak", size=size, raw=raw)
    if outcome.signature is not None:
        outcome.verdict = of(outcome.signature, payload["rung"], reason=took, detail=WHOLE)
    elif took:
        outcome.verdict = Verdict("ok", reason=took)
    return outcome


AXES = ("dims", "values", "strides")
"""The passes whose edits are made together. Switches are not: they change how the case is run."""


def plainest(case: Live) -> tuple[list[str], list[str]]:
    """The plainest form that a case may have on several axes at once: sizes of 1, ones, contiguous; one query for all
    of them.

    Returns the edits (none where nothing can be plainer), and the passes that still have something to propose after
    them. Most failures of a kernel or a compiler do not depend on any of these axes.
    """
    edits: list[str] = []
    for name in AXES:
        plainest = _plainest(name, case)
        try:
            for edit in plainest:
                case = pass_of(name).apply(case, edit)
        except (RuntimeError, ValueError, TypeError, IndexError):  # not all of them at once
            return [], list(NAMES)
        edits += plainest
    return edits, [name for name in NAMES if pass_of(name).propose(case)]


def _plainest(name: str, case: Live) -> list[str]:
    """The round of a pass after which it would propose least: the one to size 1, the one of ones, all strides."""
    rounds: list[list[str]] = pass_of(name).propose(case)
    if name != "dims":
        return rounds[0] if rounds else []
    to_one = [edits for edits in rounds if all(edit.endswith(" 1") for edit in edits)]
    return (to_one or rounds or [[]])[0]


SHELL = "/bin/sh"


def run(payload: dict[str, Any]) -> dict[str, Any]:
    """Writes the case, then becomes the command: where that could be started, this does not return, and the exit code
    is the answer. `ready`: a case folder to be copied."""
    mark("build")
    case = Path(payload["folder"]) / "case"
    if payload["ready"] is None:
        try:
            emitted = emit({**payload, "out": str(case)})
        except Invalid as error:
            return {"invalid": str(error)}
        report({"nodes": emitted["nodes"], "input_bytes": emitted["input_bytes"]})
    else:
        shutil.copytree(payload["ready"], case)
        report({"nodes": walk.node_count(load_graph(case).record.graph), "input_bytes": payload["input_bytes"]})
    command = payload["command"].replace("{case}", shlex.quote(str(case)))
    sys.stdout.flush()
    sys.stderr.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what is ignored stays so
        signal.signal(number, signal.SIG_DFL)
    os.chdir(payload["directory"])
    mark("command")
    os.closerange(3, 4096)
    return os.execve(SHELL, ["sh", "-c", command], payload["environment"])
