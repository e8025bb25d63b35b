"""What bisect says: sentences for what was found, what it means, what to type next. Decides nothing.

>>> plural("lowerings")
'lowerings'
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...dumps import wording
from ...dumps.graph_folder import JOURNAL_FILE
from ...dumps.journal import DECOMPOSITION, LOWERING
from ...dumps.store import SavedGraph
from ...dumps.wording import counted
from ..live.spec import FULL_STAGES
from ..verdicts.own_passes import OwnPass, of_the_run, registered_for
from ..verdicts.verdict import ROUNDING, Layer, Where, cannot_tell
from ..verdicts.verdict import Verdict as Record
from .bisect_asking import Setting
from .bisect_records import Application, Bisection, Culprit

FUSION = "fusion: with each node compiled to a kernel of its own the failure is gone"

AOT = (
    "AOTAutograd (tracing, functionalisation or the partitioner): the graph is wrong before Inductor sees it, and no"
    " decomposition explains it"
)

DECOMPOSED = (
    "a decomposition, or AOTAutograd: the graph is wrong before Inductor sees it, and without any decomposition it"
    " fails in another way, so which one is not known"
)

_LAYERS: dict[str, Layer] = {
    "decomposition": "decomposition",
    "decomposed": "decomposition",
    "aot": "aot_autograd",
    "cudagraphs": "cudagraphs",
}
"""Kind of a finding -> the layer that it is in, where that is not Inductor."""


def plural(subsystem: str) -> str:
    """The plural of a subsystem's applications, for sentences."""
    return subsystem.replace("_", " ") if subsystem != "decomposition" else "decompositions"


def not_run(subsystem: str, saved: SavedGraph, all_required: bool) -> str:
    """Why a subsystem has nothing to switch off for this graph."""
    stage = saved.stage
    if all_required:
        return "everything in it must run"
    if subsystem == "cudagraphs":
        return "this compile makes no CUDA graphs"
    if subsystem == "decomposition" and stage not in FULL_STAGES:
        return f"not run at this stage: a graph of the stage {stage} is decomposed already"
    behind = {
        "pre_grad_passes": stage != "dynamo",
        "joint_graph_passes": stage not in FULL_STAGES | {"joint", "inference"},
        "post_grad_passes": stage.startswith("post_grad"),
    }
    if behind.get(subsystem):
        return f"not run at this stage: it comes before this stage ({stage})"
    return "the compile of this graph applies no such thing"


def listed(applications: Sequence[Application]) -> str:
    """The names of the applications as a short list."""

    def named(application: Application) -> str:
        label = f"{application.label} ({application.name})" if application.subsystem == "lowerings" else ""
        return (label or application.name) + _half(application)

    return wording.listed(map(named, applications), 3)


def finding_text(kind: str, off: Sequence[Application], applied: Sequence[Application], alone: bool) -> str:
    """A finding as a sentence without its full stop."""
    first = off[0]
    if kind == "lowering":
        where = f" ({first.line})" if first.line else ""
        of = f"node `{first.label}`{_half(first)}, {first.name}{where}"
        if len(off) > 1:
            ops = ", ".join(dict.fromkeys(each.name for each in off))
            of = f"{ops} ({counted(len(off), 'node')}, the first is `{first.label}`{where})"
        what = f"the lowering of {of}, or the code made for it"
    elif kind == "decomposition":
        what = f"the decomposition of {', '.join(dict.fromkeys(each.name for each in off))}"
    elif kind == "pattern":
        what = match_text(off)
    elif kind == "cudagraphs":
        what = "the CUDA graph around the compiled code"
    else:
        origin = f" ({first.label})" if first.label else ""
        where = " and ".join(dict.fromkeys(each.subsystem for each in off))
        ran = f"run {first.index + 1} of {len(applied)}{_half(first)}"
        what = f"pass `{first.name}`{origin} of {where}, {ran}"
        if len({each.name for each in off}) > 1:
            what = f"{what}, together with {listed(off[1:])}"
        elif len(off) > 1:
            what = f"{what}; it ran {counted(len(off), 'time')}"
    return what if alone else f"{what}, but with only this off the failure stays"


def match_text(matches: Sequence[Application]) -> str:
    """A pattern match in words: its handler and its nodes. Of several, which are off together, some may be innocent."""
    first = matches[0]
    where = f" ({first.line})" if first.line else ""
    which = f"one or more of {counted(len(matches), 'match', 'matches')} of " if len(matches) > 1 else ""
    return f"{which}the pattern `{first.name}`{', the first' * bool(which)} on nodes {first.label}{where}"


def setting_text(setting: Setting) -> str:
    """A setting as a sentence without its full stop."""
    return f"{setting.means or 'a setting'}: {setting.text()} makes the failure go away"


def setting_code(setting: Setting) -> str:
    """A setting as Python to copy."""
    return f"import torch._{setting.room}.config\n{setting.text()}"


def own_setting_text(name: str) -> str:
    """A setting of the run's own as a sentence without its full stop."""
    return f"the run's own setting {name}: with torch's own value the failure is gone"


def fallback_code(ops: Sequence[str]) -> str:
    """Python to copy that leaves these operators to eager's kernels."""
    lines = [f"make_fallback(torch.ops.{op}, warn=False, override_decomp=True)" for op in ops]
    return "\n".join(["import torch", "from torch._inductor.lowering import make_fallback", *lines, _other_cache(ops)])


def undecomposed_code(ops: Sequence[str]) -> str:
    """Python to copy that keeps these operators whole."""
    lines = [f"decomposition.decompositions.pop(torch.ops.{op})" for op in ops]
    end = ["decomposition.fast_random_decomps.cache_clear()", _other_cache(ops)]
    return "\n".join(["import torch", "from torch._inductor import decomposition", *lines, *end])


def _other_cache(ops: Sequence[str]) -> str:
    """A Python line that changes torch's cache keys, which do not contain this change, so that no older compile is
    returned."""
    names = " ".join(ops)
    if len(names) > _MOST_NAMED:
        digest = hashlib.blake2b(names.encode(), digest_size=4).hexdigest()
        names = f"{ops[0]} and {len(ops) - 1} more {digest}"
    return f'torch.compiler.config.cache_key_tag = "without {names}"'


_MOST_NAMED = 70
"""How many characters of operator names `_other_cache` quotes, so that its line fits into a program."""


def conclude(result: Bisection, saved: SavedGraph, by: str | None = None) -> None:
    """Fills in the result's sentence, meaning, `by`, verdict and next command."""
    node, name = result.by_node, saved.name
    if result.findings:
        if _needs_fusion(result):
            result.findings.sort(key=lambda finding: finding.kind != "fusion")
        first = result.findings[0]
        result.by = "setting" if first.kind == "own_setting" else "pass"
        result.sentence, result.meaning = _sentence(first), _meaning(first, result)
        if first.kind == "fusion" and node is not None and node.alone is False:
            result.sentence = f"{node.sentence} Without fusion the graph is right (verified)."
        result.verdict = _record(result, saved).then(next_for(saved))
    elif node is not None and (by == "node" or node.node is not None or node.verdict.fault == "model"):
        result.by = "node" if node.verdict.failed else ""
        result.sentence = node.sentence
        unnamed = "bisect {name} --by pass" if result.reproduced else _JUDGE[node.verdict.exit_code == 0]
        result.verdict = _then(node.verdict, saved, "minify {name}" if node.node is not None else unnamed)
    elif result.stopped and not result.reproduced:
        result.sentence = f"The search ended before the graph was judged ({result.stopped})."
        result.verdict = cannot_tell(result.sentence).then(_again(name, by))
    elif not result.reproduced:
        record = result.verdict
        go_on = "bisect {name} --check rounding" if record.verdict == ROUNDING else _JUDGE[record.exit_code == 0]
        judged = f"{result.id} does not fail here ({result.failure}): nothing to bisect"
        result.sentence = judged if record.exit_code == 0 else f"{result.id}: {result.failure}"
        result.verdict = _then(record, saved, go_on)
    else:
        why, result.meaning = _unexplained(result)
        result.sentence = why[:1].upper() + why[1:] + "."
        other = _again(name, "node") if by == "pass" else f"graphdbg minify {name}"
        go_on = _again(name, by) if result.stopped else other
        result.verdict = cannot_tell(f"it fails ({result.failure}), but {why}").then(go_on)
    if result.verdict.failed and (own := _registered(result, saved)) is not None:
        result.sentence = f"{own.text} is the run's own. {result.sentence}"
        result.verdict = of_the_run(result.verdict, own)


def _registered(result: Bisection, saved: SavedGraph) -> OwnPass | None:
    """The decomposition or lowering that the run itself registered for the operator to blame; None where there is
    none."""
    if result.findings:
        first = result.findings[0]
        kind = {"decomposition": DECOMPOSITION, "lowering": LOWERING}.get(first.kind)
        return registered_for(saved, kind, [application.name for application in first.applications]) if kind else None
    node = result.by_node.node if result.by_node is not None else None
    return registered_for(saved, LOWERING, [node.target]) if node is not None else None


def next_for(saved: SavedGraph) -> str:
    """The command to go on with: minify the graph, or report what a minification left."""
    out = Path(saved.name).parent
    is_minified = saved.run is None and saved.path.name == "case" and (saved.path.parent / JOURNAL_FILE).is_file()
    return f"graphdbg report {shlex.quote(str(out))}" if is_minified else f"graphdbg minify {saved.name}"


def _needs_fusion(result: Bisection) -> bool:
    """Whether the wrong node is right alone and wrong only when fused; a finding on several lowerings then says
    less."""
    first, node, kinds = result.findings[0], result.by_node, {finding.kind for finding in result.findings}
    several = first.kind == "lowering" and len({application.name for application in first.applications}) > 1
    return several and "fusion" in kinds and node is not None and node.node is not None and node.alone is False


_PLACE = re.compile(r"^(.*?:\d+)\s.*$", re.DOTALL)
"""File and line, before the text of the line."""
_JUDGE = {True: "triage {run}", False: "triage {name}"}
"""How to go on with a graph that does not fail, and with one that could not be judged."""


def _again(name: str, by: str | None) -> str:
    return f"graphdbg bisect {name}" + (f" --by {by}" if by else "")


def _then(record: Record, saved: SavedGraph, command: str) -> Record:
    """The verdict with the next command, unless it has one already."""
    run = saved.name if saved.run is None else saved.run.name
    return record if record.next else record.then(f"graphdbg {command.format(name=saved.name, run=run)}")


def _record(result: Bisection, saved: SavedGraph) -> Record:
    """The verdict on the graph, in the layer and at the node of the first finding, with what works around it."""
    record, first = result.verdict, result.findings[0]
    application = first.applications[0] if first.applications else None
    # only a pass of the user's has a label
    users = first.kind == "pass" and application is not None and application.label
    seen = record.where or Where()
    if result.by_node is not None and result.by_node.node is not None:
        seen = msgspec.structs.replace(result.by_node.verdict.where or seen, name=seen.name)
    if application is not None and first.kind in ("lowering", "pattern") and application.label:
        line = _PLACE.sub(r"\1", application.line) or seen.line
        seen = Where(application.label.partition(", ")[0], line=line, name=seen.name)
    arounds = [finding.workaround for finding in result.findings if finding.workaround]
    lines = next((around.code for around in arounds if around.verified), None)
    if record.failed:
        layer = None if users else _LAYERS.get(first.kind, "inductor")
        record = msgspec.structs.replace(record, fault="custom_pass" if users else "compiler", layer=layer)
    where = msgspec.structs.replace(seen, graph=seen.graph or saved.name)
    return msgspec.structs.replace(record, where=where, workaround=lines)


def _sentence(first: Culprit) -> str:
    inside = f"; inside it, {first.detail}" if first.detail else ""
    if first.kind in ("setting", "own_setting", "fusion", "aot", "decomposed"):
        return f"{first.sentence[:1].upper()}{first.sentence[1:]}{inside}."
    right = ": with only that off the graph is right (verified)" if first.alone else ""
    return f"To blame is {first.sentence}{inside}{right}."


_MEANS = {
    "decomposition": (
        "The decomposition computes something else than the operator: the decomposed graph fails without any compiler."
    ),
    "aot": "It fails without Inductor's passes and kernels.",
    "decomposed": "It fails without Inductor's passes and kernels.",
    "fusion": "Each node's own kernel is right; the code that fuses several nodes into one kernel is not.",
    "own_setting": "The compiler is wrong with this setting of the program, and right with torch's default.",
    "setting": "No single pass or lowering explains the failure; what this setting changes in the compiler does.",
    "cudagraphs": "The compiled code is right when it is launched without a CUDA graph.",
}
_BESIDE = {
    "fusion": "The node's inputs are right, and so is its own kernel: the fault appears only with fusion.",
    "pass": "The graph is right with eager's kernel for this node, and also without the pass below.",
    "": "The node's inputs are right: with eager's kernel for this node the whole graph is right.",
}
"""What a finding on a lowering means, by the kind of another finding beside it ("": none)."""


def _meaning(first: Culprit, result: Bisection) -> str:
    if first.kind in ("pass", "pattern"):
        lowered = next((row.verdict for row in result.rows if row.subsystem == "lowerings"), None)
        if lowered == "same":
            return f"The {first.kind} itself is wrong: the failure stays when eager's kernels run everything after it."
        if lowered == "gone":
            return f"The {first.kind} may not be at fault: the lowering of the nodes that it makes could be wrong."
        return f"Without this {first.kind} the graph is right."
    if first.kind == "lowering":
        kinds = {"", *(finding.kind for finding in result.findings[1:])}
        return next(text for kind, text in _BESIDE.items() if kind in kinds)
    return _MEANS[first.kind]


def _unexplained(result: Bisection) -> tuple[str, str]:
    """Why nothing is convicted, as half a sentence, and what that means."""
    tried = [row.subsystem for row in result.rows if row.verdict is not None]
    same = [row.subsystem.replace("_", " ") for row in result.rows if row.verdict == "same"]
    stays = [name for name in same if not name.startswith("any of ")]
    at_once = "; nor does it go away without all kinds of passes at once" if len(stays) < len(same) else ""
    undecided = [row.subsystem for row in result.rows if row.verdict == "other"]
    if result.stopped:
        return f"nothing was found before the search ended ({result.stopped})", ""
    if not tried:
        return f"rung {result.rung} has no part that can be switched off", ""
    meaning = (
        "The fault is in a part that cannot be switched off: scheduling, code generation, or the code around kernels."
    )
    if undecided:
        names = ", ".join(undecided)
        meaning = f"Undecided, because switching them off causes another failure: {names}. Otherwise: {meaning}"
    why = f": the failure stays without any one of these: {', '.join(stays)}{at_once}" if stays else ""
    return f"no pass, lowering or setting explains it{why}", meaning


def _half(application: Application) -> str:
    return f" in the {application.half}" if application.half == "backward" else ""
