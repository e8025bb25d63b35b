"""The cheapest change that was seen to make a graph right, as lines to paste at the top of a script.

Tried in the order of what they cost in speed, each in a child, on the graph itself: the run's own settings at torch's
values, one operator left to eager's kernel (the one that the verdict names first), a few settings, one function left
uncompiled, every operator left to eager. A change that makes another failure, or only a smaller one, is none. Imports
no torch.

For example:

    work_around(load_graph("myrun/0_0/dynamo"), server, How(), verdict)
    # 'from torch._inductor.lowering import make_fallback\nmake_fallback(torch.ops.aten.amin.default, ...)'
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ...dumps.walk import string, user_frame
from ..isolation import ForkServer
from ..replaying.replay import How
from ..verdicts.verdict import ROUNDING, Verdict
from . import bisect_words as words
from .bisect_asking import BisectQuestions
from .bisect_narrowing import own_settings
from .bisect_records import Bisection, Clock, OutOfTime, Trial
from .bisect_settings import Setting
from .uncompiled import EAGER, functions

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph

OPERATORS, SETTINGS, FUNCTIONS, MOST = 3, 4, 4, 12
"""So many of each are tried alone, and so many operators together; `bisect` searches on."""

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


class Change(NamedTuple):
    """One thing to try, and the lines that do it."""

    trial: Trial
    code: str


def work_around(
    saved: SavedGraph, server: ForkServer, how: How, verdict: Verdict, *, max_time_s: float | None = None
) -> str | None:
    """The lines of the first change under which the graph is right; None where it does not fail again, where none
    helps, or where the time is over. Raises GraphdbgError for a graph that cannot be loaded.
    """
    rounding = verdict.verdict == ROUNDING
    result = Bisection(saved.id, saved.stage)
    asking = BisectQuestions(
        saved, server, result, lambda _: None, how, ROUNDING if rounding else "auto", Clock(max_time_s)
    )
    try:
        asking.reproduce()
        if not result.reproduced:
            return None
        if (own := own_settings(asking)) and own[0].workaround is not None:
            return _with_import(own[0].workaround.code)
        for change in changes(asking, verdict):
            if asking.probe(change.trial) == "gone":
                return change.code
        if asking.probe_rung("lite") == "gone":
            return LITE
        return None if rounding else EAGER
    except OutOfTime:
        return None
    finally:
        asking.close()


def changes(asking: BisectQuestions, verdict: Verdict) -> Iterator[Change]:
    """The changes to try, the cheapest first."""
    rounding = verdict.verdict == ROUNDING
    operator_names = operators(asking, verdict)
    groups = [[op] for op in operator_names[:OPERATORS]] + ([operator_names] if 1 < len(operator_names) <= MOST else [])
    fallbacks = [Change(Trial(f"eager's {', '.join(ops)}", fall_back=ops), words.fallback_code(ops)) for ops in groups]
    known = {(setting.room, setting.name): setting for setting in asking.settings()}
    names = _FIRST[ROUNDING if rounding else verdict.kind if verdict.kind in _FIRST else ""]
    settings = [known["inductor", name] for name in names if ("inductor", name) in known][:SETTINGS]
    lines = [Change(_of(setting), words.setting_code(setting)) for setting in settings]
    yield from [*lines, *fallbacks] if rounding else [*fallbacks, *lines]
    if asking.saved.stage == "dynamo":
        for function in functions(asking.saved, _named(asking, verdict))[:FUNCTIONS]:
            yield Change(Trial(f"{function.name} uncompiled", uncompiled=function.nodes), function.code)


def _named(asking: BisectQuestions, verdict: Verdict) -> Iterator[str]:
    """The nodes of a Dynamo graph that a verdict names, by name or by line; all of them, the last first, where it names
    none."""
    record, where = asking.saved.record, verdict.where
    nodes = [node for node in record.graph.nodes if node.op.startswith("call_")]
    matching = [node for node in nodes if where is not None and node.name == where.node]
    if where is not None and where.line:
        matching += [node for node in nodes if user_frame(string(record.strings, node.stack))[0] == where.line]
    return (node.name for node in matching or reversed(nodes))


def operators(asking: BisectQuestions, verdict: Verdict) -> list[str]:
    """The operators of the compile, the likeliest first: that of the node named, those of its line, the last ones."""
    lowered = [application for application in asking.applications("lowerings") if not application.required]
    taken_apart = asking.applications("decomposition")
    node, line = (verdict.where.node, verdict.where.line) if verdict.where is not None else ("", "")
    stem = re.sub(r"_\d+$", "", node)
    names = (
        [application.name for application in reversed(lowered)][:1]
        if verdict.kind in ("crash", "signal", "hang", "memory")
        else []
    )
    names += [application.name for application in lowered if node and application.label == node]
    names += [application.name for application in taken_apart if stem and application.name.split(".")[1:2] == [stem]]
    names += [application.name for application in reversed(lowered) if line and application.line.startswith(line)]
    names += [application.name for application in reversed([*taken_apart, *lowered])]
    return [name for name in dict.fromkeys(names) if _IS_OPERATOR.fullmatch(name) and not name.startswith("aten.view")]


_IS_OPERATOR = re.compile(r"\w+\.\w+\.\w+")


def _with_import(code: str) -> str:
    module = code.partition(".config")[0]
    return f"import {module}.config\n{code}" if ".config." in code and not code.startswith("import") else code


def _of(setting: Setting) -> Trial:
    return Trial(setting.text(), settings={setting.room: {setting.name: setting.value}})
