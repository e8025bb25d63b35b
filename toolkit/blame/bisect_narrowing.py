"""Narrows a guilty subsystem down to one application, and finds a work-around for it that a probe has verified.

Also: the cheapest change that was seen to make a graph right, as lines to paste at the top of a script.

The first k applications are the same in every compile, so a binary search over k can count. The application that it
finds is then switched off alone, by name, because later numbers shift once an earlier pass is off. A probe that fails
in another way decides nothing and is stepped around. Each probe is a whole compile.

For example: `narrow(asking, ["post_grad_passes"])[0].name` gives `'remove_noop_ops'`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from ...dumps.store import SavedGraph
from ...dumps.walk import string, user_frame
from ...dumps.wording import counted
from ..isolation import ForkServer
from ..replaying.replay import How
from ..verdicts.verdict import ROUNDING, Verdict
from ..verdicts.verdict_words import EAGER
from . import bisect_words as words
from .bisect_asking import BisectQuestions, Setting
from .bisect_records import Application, Clock, Culprit, Effect, Off, OutOfTime, Subsystem, Trial, Workaround
from .uncompiled import functions

T = TypeVar("T")

_STEPS_ASIDE = 6
"""How many neighbours of the middle are tried where the middle fails in another way."""


class NarrowedTo(NamedTuple):
    """The bounds of a binary search: right with the first `low` applications on, failing with the first `high`. They
    differ by one, unless every count between them fails in another way."""

    low: int
    high: int


def last_needed(count: int, ask: Callable[[int], Effect]) -> NarrowedTo:
    """The two counts between which the failure comes: with the first k of `count` applications on, `low` is right and
    `high` fails."""
    low, high = 0, count
    while high - low > 1:
        for at in _middle_first(low, high):
            verdict = ask(at)
            if verdict != "other":
                break
        else:
            return NarrowedTo(low, high)
        low, high = (at, high) if verdict == "gone" else (low, at)
    return NarrowedTo(low, high)


def single(items: Sequence[T], ask: Callable[[Sequence[T]], Effect], *, known: Effect | None = None) -> T | None:
    """The first item whose change alone makes the failure go away, by halves; None where no single one does.

    `ask` changes a whole group of items; `known` is its answer for all items, if there is one. A group that fails in
    another way is searched further.
    """
    verdict = (known or ask(items)) if items else "same"
    if verdict == "same":
        return None
    if len(items) == 1:
        return items[0] if verdict == "gone" else None
    middle = len(items) // 2
    first = single(items[:middle], ask)
    return first if first is not None else single(items[middle:], ask)


def _middle_first(low: int, high: int) -> list[int]:
    middle = (low + high) // 2
    inside = sorted(range(low + 1, high), key=lambda at: (abs(at - middle), at))
    return inside[: 1 + _STEPS_ASIDE]


_ROUNDS = 4
"""How many applications are looked for that must be off together."""

_KINDS = {
    "decomposition": "decomposition",
    "lowerings": "lowering",
    "pattern_matches": "pattern",
    "cudagraphs": "cudagraphs",
}
_SWITCHES = {"pattern": "pattern_matcher", "cudagraphs": "triton.cudagraphs"}
"""Kind of a finding -> the setting that does without it."""


def narrow(
    asking: BisectQuestions, subsystems: Sequence[str], whole: Effect | None = "gone", rung: str = ""
) -> list[Culprit]:
    """The applications in some subsystems that must be off for the failure to go away; empty where nothing was decided.

    `whole`: the verdict with all of them off. After "other" they are switched off in groups instead.
    """
    log = asking.log
    free = [application for application in log if application.subsystem in subsystems and not application.required]
    if whole == "other":
        hit = single(free, lambda group: _off(asking, group, rung), known=whole)
        return [] if hit is None else [_finding(asking, [hit], alone=True)]
    off: list[Application] = []
    for _ in range(_ROUNDS if free else 0):
        rest = [application for application in free if application not in off]
        span = last_needed(len(rest), lambda on, rest=rest: _first(asking, subsystems, rest, on, rung))
        for application in rest[span.low : span.high]:
            if _off(asking, [*off, application], rung) == "gone":
                return [_finding(asking, [*off, application], alone=True)]
        off += [application for application in rest if application.name == rest[span.high - 1].name]
        verdict = _named(asking, off, rung)
        if verdict == "gone":
            return [_finding(asking, off, alone=True)]
        if verdict == "other" or len(off) == len(free):
            break
    return [_finding(asking, off[-1:], alone=False)] if off else []


def explained_below(finding: Culprit, matches: Sequence[Culprit]) -> None:
    """Adds to the finding on a pass which of its pattern matches is to blame."""
    for match in matches:
        if match.alone:
            finding.detail = words.match_text(match.applications)


def worked_around(asking: BisectQuestions, finding: Culprit) -> None:
    """Finds a setting or a line of Python that works around the finding, and verifies it by a probe with that change
    alone."""
    names = list(dict.fromkeys(application.name for application in finding.applications))
    if finding.kind == "pass":
        _without_passes(asking, finding, names)
    elif finding.kind == "lowering":
        verified = asking.probe(Trial(f"eager's kernel for {', '.join(names)}", fall_back=names)) == "gone"
        finding.workaround = Workaround(words.fallback_code(names), verified)
    elif finding.kind == "decomposition":
        verified = asking.probe(Trial(f"{', '.join(names)} not decomposed", undecomposed=names)) == "gone"
        finding.workaround = Workaround(words.undecomposed_code(names), verified)
    elif finding.kind in _SWITCHES:
        setting = Setting("inductor", _SWITCHES[finding.kind], False)
        if asking.probe(_set([setting])) == "gone":
            finding.workaround = Workaround(words.setting_code(setting), verified=True)


def own_settings(asking: BisectQuestions) -> list[Culprit]:
    """Finds the run's own setting whose reset to torch's value makes the failure go away; [] where there is none. A
    user's pass is such a setting, too."""
    lines = asking.parts.own
    names = list(lines)

    def ask(group: Sequence[str]) -> Effect:
        description = group[0] if len(group) == 1 else f"{counted(len(group), 'setting')} of the run's own"
        return asking.probe(Trial(f"{description} as torch has it", defaults=[*group]))

    if not names:
        return []
    whole = ask(names)
    asking.result.rows.append(Subsystem("the run's own settings", len(names), whole))
    guilty = single(names, ask, known=whole)
    if guilty is None:
        return []
    name = guilty.partition(".")[2]
    # only a pass of the user's has a label
    if off := [application for application in asking.log if application.label and application.name == name]:
        culprit = _finding(asking, off, alone=True)
        culprit.workaround = Workaround(f"torch._inductor.config.{name} = None", verified=True)
        return [culprit]
    culprit = Culprit("own_setting", "settings", guilty, words.own_setting_text(guilty), alone=True)
    if "<" not in lines[guilty]:  # a value that Python can read
        culprit.workaround = Workaround(lines[guilty], verified=True)
    return [culprit]


def setting_finding(asking: BisectQuestions, *, generated_code: bool) -> list[Culprit]:
    """The first setting that alone makes the failure go away: all are tried at once, then halves.

    `generated_code`: also try the settings that change generated kernels (`cpp.`, `triton.`), which costs seconds for a
    precompiled header.
    """
    settings = asking.parts.settings
    if not generated_code:
        settings = [setting for setting in settings if not setting.name.startswith(("cpp.", "triton."))]

    def ask(group: Sequence[Setting]) -> Effect:
        return asking.probe(_set(group))

    whole = ask(settings) if settings else None
    row = Subsystem("settings", len(settings), whole, "" if settings else "all have these values already")
    asking.result.rows.append(row)
    guilty = single(settings, ask, known=whole)
    if guilty is None:
        row.reason = "several together, none alone" if whole == "gone" else row.reason
        return []
    culprit = Culprit("setting", "settings", guilty.name, words.setting_text(guilty), alone=True)
    culprit.workaround = Workaround(words.setting_code(guilty), verified=True)
    return [culprit]


def _first(
    asking: BisectQuestions, subsystems: Sequence[str], rest: Sequence[Application], on: int, rung: str
) -> Effect:
    """Probes with everything switched off but the first `on` of `rest`."""
    what = words.plural(subsystems[0]) if len(subsystems) == 1 else "passes"
    kept = [
        Off(name, keep=[application.key for application in rest[:on] if application.subsystem == name])
        for name in subsystems
    ]
    return asking.probe(Trial(f"first {on} of {len(rest)} {what} on", kept, rung=rung))


def _off(asking: BisectQuestions, group: Sequence[Application], rung: str) -> Effect:
    """Probes with only these applications switched off."""
    names = dict.fromkeys(application.subsystem for application in group)
    off = [Off(name, off=[application.key for application in group if application.subsystem == name]) for name in names]
    return asking.probe(Trial(f"only {words.listed(group)} off", off, rung=rung))


def _named(asking: BisectQuestions, group: Sequence[Application], rung: str) -> Effect:
    """Probes with these applications off, and others of the same names that appear only when they are off."""
    names = dict.fromkeys((application.subsystem, application.name) for application in group)
    subsystems = dict.fromkeys(subsystem for subsystem, _ in names)
    off = [Off(subsystem, names=[name for of, name in names if of == subsystem]) for subsystem in subsystems]
    return asking.probe(Trial(f"every {', '.join(name for _, name in names)} off", off, rung=rung))


def _finding(asking: BisectQuestions, off: list[Application], *, alone: bool) -> Culprit:
    subsystems = list(dict.fromkeys(application.subsystem for application in off))
    kind = _KINDS.get(subsystems[0], "pass")
    name = ", ".join(dict.fromkeys(application.name for application in off))
    applied = asking.applications(subsystems[0])
    return Culprit(kind, ", ".join(subsystems), name, words.finding_text(kind, off, applied, alone), alone, off)


def _without_passes(asking: BisectQuestions, finding: Culprit, names: Sequence[str]) -> None:
    # only a pass of the user's has a label
    users = list(dict.fromkeys(application.name for application in finding.applications if application.label))
    if users and len(users) == len(names):
        settings = {"inductor": dict[str, object](dict.fromkeys(users))}
        if asking.probe(Trial(f"{', '.join(users)} = None", settings=settings)) == "gone":
            code = "\n".join(f"torch._inductor.config.{name} = None" for name in users)
            finding.workaround = Workaround(code, verified=True)
            return
    before = str(asking.saved.record.config.get("inductor", {}).get("disabled_passes") or "")
    value = ",".join([*filter(None, [before]), *names])
    verdict = asking.probe(Trial(f"disabled_passes = {value!r}", settings={"inductor": {"disabled_passes": value}}))
    also = [
        f"{application.name} of {application.subsystem}" + (f" ({application.half})" if application.half else "")
        for application in asking.log
        if application.subsystem.endswith("_passes")
        and application not in finding.applications
        and application.name.upper() in value.upper()
    ]
    code = f"torch._inductor.config.disabled_passes = {value!r}"
    finding.workaround = Workaround(code, verdict == "gone", list(dict.fromkeys(also)))


OPERATORS, SETTINGS, FUNCTIONS, MOST = 3, 4, 4, 12
"""How many operators, settings and functions are tried one by one, and at most how many operators together; `bisect`
searches further."""

_FIRST = {
    "rounding": (
        "emulate_precision_casts",
        "eager_numerics.division_rounding",
        "eager_numerics.disable_ftz",
        "cpp.simdlen",
        "cpp.enable_floating_point_contract_flag",
        "layout_optimization",
    ),
    "crash": ("pattern_matcher", "cpp.simdlen", "use_joint_graph_passes", "max_fusion_size"),
    "": ("cpp.simdlen", "emulate_precision_casts", "pattern_matcher", "max_fusion_size"),
}
"""Rounding, or the kind of a failure -> the settings to try first."""

LITE = """import torch._inductor
for name, value in torch._inductor.list_mode_options("lite").items():
    setattr(torch._inductor.config, name, value)"""


def work_around(
    saved: SavedGraph, server: ForkServer, how: How, verdict: Verdict, *, max_time_s: float | None = None
) -> str | None:
    """Returns the Python lines of the first change under which the graph is right; None where the graph does not fail
    again, no change helps, or the time is over. Raises GraphdbgError for a graph that cannot be loaded.
    """
    rounding = verdict.verdict == ROUNDING
    check, clock = ROUNDING if rounding else "auto", Clock(max_time_s)
    asking = BisectQuestions(saved, server, "inductor", lambda _: None, how, check, clock)
    try:
        asking.reproduce()
        if not asking.result.reproduced:
            return None
        if (own := own_settings(asking)) and own[0].workaround is not None:
            return _with_import(own[0].workaround.code)
        for trial, code in changes(asking, verdict):
            if asking.probe(trial) == "gone":
                return code
        if asking.probe_rung("lite") == "gone":
            return LITE
        # left uncompiled, a subgraph (of `torch.cond`, flex attention) gets no gradients
        return None if rounding or saved.record.graph.subgraphs else EAGER
    except OutOfTime:
        return None
    finally:
        asking.close()


def changes(asking: BisectQuestions, verdict: Verdict) -> Iterator[tuple[Trial, str]]:
    """The changes to try, the cheapest first: the trial of each, and the Python lines that make it."""
    rounding = verdict.verdict == ROUNDING
    operator_names = operators(asking, verdict)
    groups = [[op] for op in operator_names[:OPERATORS]] + ([operator_names] if 1 < len(operator_names) <= MOST else [])
    fallbacks = [(Trial(f"eager's {', '.join(ops)}", fall_back=ops), words.fallback_code(ops)) for ops in groups]
    known = {(setting.room, setting.name): setting for setting in asking.parts.settings}
    names = _FIRST[ROUNDING if rounding else verdict.kind if verdict.kind in _FIRST else ""]
    settings = [known["inductor", name] for name in names if ("inductor", name) in known][:SETTINGS]
    lines = [(_set([setting]), words.setting_code(setting)) for setting in settings]
    yield from [*lines, *fallbacks] if rounding else [*fallbacks, *lines]
    if asking.saved.stage == "dynamo":
        for function in functions(asking.saved, _named_operators(asking, verdict))[:FUNCTIONS]:
            yield (Trial(f"{function.name} uncompiled", uncompiled=function.nodes), function.code)


def _named_operators(asking: BisectQuestions, verdict: Verdict) -> Iterator[str]:
    """The nodes of a Dynamo graph that a verdict names, by name or by line; all of them, the last first, where it names
    none."""
    record, where = asking.saved.record, verdict.where
    nodes = [node for node in record.graph.nodes if node.op.startswith("call_")]
    matching = [node for node in nodes if where is not None and node.name == where.node]
    if where is not None and where.line:
        matching += [node for node in nodes if user_frame(string(record.strings, node.stack))[0] == where.line]
    return (node.name for node in matching or reversed(nodes))


def operators(asking: BisectQuestions, verdict: Verdict) -> list[str]:
    """The operators that the compile lowered or decomposed, likeliest to be at fault first: the last one lowered, where
    the compile died; the one of the verdict's node; those of its line; all others, from last to first."""
    lowered = [application for application in asking.applications("lowerings") if not application.required]
    decomposed = asking.applications("decomposition")
    node, line = (verdict.where.node, verdict.where.line) if verdict.where is not None else ("", "")
    stem = re.sub(r"_\d+$", "", node)
    died = verdict.kind in ("crash", "signal", "hang", "memory")
    names = [application.name for application in lowered[-1:] if died]
    names += [application.name for application in lowered if node and application.label == node]
    names += [application.name for application in decomposed if stem and application.name.split(".")[1:2] == [stem]]
    names += [application.name for application in reversed(lowered) if line and application.line.startswith(line)]
    names += [application.name for application in reversed([*decomposed, *lowered])]
    return [name for name in dict.fromkeys(names) if _IS_OPERATOR.fullmatch(name) and not name.startswith("aten.view")]


_IS_OPERATOR = re.compile(r"\w+\.\w+\.\w+")


def _with_import(code: str) -> str:
    module = code.partition(".config")[0]
    return f"import {module}.config\n{code}" if ".config." in code and not code.startswith("import") else code


def _set(group: Sequence[Setting]) -> Trial:
    """The trial with these settings changed."""
    changed: dict[str, dict[str, Any]] = {}
    for setting in group:
        changed.setdefault(setting.room, {})[setting.name] = setting.value
    several = f"{counted(len(group), 'setting')} changed ({group[0].name} ... {group[-1].name})"
    return Trial(group[0].text() if len(group) == 1 else several, settings=changed)
