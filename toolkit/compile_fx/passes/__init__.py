"""The named passes inside pre_grad, joint and post_grad, and the names that users write for them.

`table` lists them and which cannot be skipped, `watching` observes and skips them while a stage runs; torch's passes
are called as they are. A name is `post_grad.remove_noop_ops`, or bare for every stage that has one; a pattern of a
group is `joint.attention_patterns/pointless_convert`, or bare where its name is known. Stages are also understood as
`graphdbg bisect` prints them (`post_grad_passes.remove_noop_ops`). Importing this package imports no torch.

>>> pipeline = Pipeline(skip=("post_grad.remove_noop_ops",), watch_passes=True)
>>> compiled = compile_fx(torch.fx.symbolic_trace(model), [x], pipeline=pipeline)
>>> [row.name for report in pipeline.reports for row in report.passes if row.changed]
['early_patterns']
>>> resolve("remove_noop_ops")
[('joint', 'remove_noop_ops'), ('post_grad', 'remove_noop_ops')]
>>> resolve("pass_pattern_1/mul_softmax_pattern")
[('joint', 'softmax_patterns/mul_softmax_pattern'), ('post_grad', 'matmul_patterns/mul_softmax_pattern')]
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from ....dumps.errors import CannotSkipError, UnknownWordError
from ....dumps.wording import counted
from ..stage import NAMES as STAGE_NAMES
from ..stage import REWRITING
from .table import FAMILIES, PASSES, NamedPass


def outcomes(skip: Collection[tuple[str, str]], reports: Collection[PassReport]) -> list[str]:
    """A sentence for each pass to be skipped: how often it was, or that it never ran. `reports`: of the whole
    compile."""
    return [_outcome(stage, name, reports) for stage, name in sorted(skip)]


def _outcome(stage: str, name: str, reports: Collection[PassReport]) -> str:
    group, _, pattern = name.partition("/")
    mine = [
        run
        for run in reports
        if run.stage == stage and group in (run.name, getattr(known(stage, run.name), "name", ""))
    ]
    if pattern:
        count = sum(match.skipped for report in mine for match in report.matched if same_pattern(match.name, pattern))
        met = f"kept from {counted(count, 'match')}"
        return f"{stage}.{name}: {met}" if count else f"{stage}.{name} matched nothing in this graph: nothing skipped"
    count = sum(bool(report.skipped_because) for report in mine)
    outcome = f": skipped {counted(count, 'time')}" if count else " did not run for this graph: nothing skipped"
    return f"{stage}.{name}{outcome}"


@dataclass
class Matched:
    """One pattern in one pass: how often it was applied (or kept from it), and where in the user's code."""

    name: str
    count: int = 0
    skipped: int = 0
    lines: list[str] = field(default_factory=list[str])


@dataclass
class PassReport:
    """One run of one pass.

    `graph`: path of the graph inside the stage's graph, "" for the stage's own (`true_graph_0` is a body of cond).
    `inside`: the pass that ran it. `seconds` includes passes inside. `removed` and `added` count operators; `rewired`
    nodes that got other arguments; `reordered`: whether the remaining nodes have another order. Values in `meta` are
    not compared.
    """

    stage: str
    name: str
    graph: str = ""
    alias: str = ""
    inside: str = ""
    seconds: float = 0.0
    nodes_before: int | None = None
    nodes_after: int | None = None
    removed: dict[str, int] = field(default_factory=dict[str, int])
    added: dict[str, int] = field(default_factory=dict[str, int])
    rewired: int = 0
    reordered: bool = False
    matched: list[Matched] = field(default_factory=list[Matched])
    skipped_because: str = ""
    error: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.stage}.{self.name}"

    @property
    def changed(self) -> bool:
        """Whether the pass changed the graph's nodes, their arguments or their order."""
        return bool(self.removed or self.added or self.rewired or self.reordered)

    @property
    def matches(self) -> int:
        """How many matches of patterns were applied."""
        return sum(match.count for match in self.matched)


GROUPS = {"pre_grad_passes": "pre_grad", "joint_graph_passes": "joint", "post_grad_passes": "post_grad"}
"""Torch's name of a group of passes -> the stage."""
_STAGES = {**{name: name for name in REWRITING}, **GROUPS}


def names(stage: str | None = None) -> list[str]:
    """`stage.pass` of each pass of the table, in the order in which they run; of one stage where given."""
    return [row.full_name for row in PASSES.values() if stage in (None, row.stage)]


def listing() -> str:
    """All passes as text, a line each: the name, other names, what it does, when it runs, and whether it can be
    skipped."""
    return "\n".join(_line(row) for row in PASSES.values())


def known(stage: str, name: str) -> NamedPass | None:
    """The row of a pass, also of one of a family (`custom_backend_passes_cuda`)."""
    of_family = (row for row in PASSES.values() if row.stage == stage and fnmatchcase(name, row.name))
    return PASSES.get((stage, name)) or next(of_family, None)


def resolve(name: str) -> list[tuple[str, str]]:
    """(stage, name) of each pass meant, a pattern as (stage, group/pattern). Raises UsageError for a name that is
    none."""
    stage, bare = _split(name)
    stages = (stage,) if stage else REWRITING
    group, slash, pattern = bare.partition("/")
    exactly = name.startswith(f"{stage}.") and PASSES.get((stage or "", group))
    passes = [(row.stage, _own(row, group)) for row in ([exactly] if exactly else _called(group, stages))]
    if slash:
        passes = [(where, f"{group_name}/{pattern}") for where, group_name in passes]
    else:
        passes = passes or [(row.stage, f"{row.name}/{bare}") for row in _with_pattern(bare, stages)]
    if passes and (not slash or pattern):
        return passes
    near = _near(name, bare)
    fix = f"{near}; `--skip list` lists all" if near else "`graphdbg compile RUN/ID --skip list` lists all"
    raise UnknownWordError(f"no pass or stage is called {name!r}", _why(bare, stages), fix)


def asked(skip: Iterable[str]) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """What to skip as (stages, passes). Raises UsageError for unknown names and for passes that no graph can do
    without.

    A bare name of several passes means those that can be skipped; it is an error only where none can be.
    """
    stages: set[str] = set()
    passes: set[tuple[str, str]] = set()
    for name in (skip,) if isinstance(skip, str) else skip:
        if name in STAGE_NAMES or name in _STAGES:
            stages.add(_STAGES.get(name, name))
            continue
        keys = resolve(name)
        possible = [key for key in keys if not _row(key).always_needed]
        if not possible:
            row = _row(keys[0])
            raise CannotSkipError(f"the pass {row.full_name} cannot be skipped", row.needed or "", "leave it in")
        passes.update(possible)
    return frozenset(stages), frozenset(passes)


def same_pattern(name: str, asked: str) -> bool:
    """Whether `asked` means a pattern: by its name, by a glob with `*`, or by a word for several patterns."""
    return any(fnmatchcase(name, glob) for glob in patterns_of(asked))


def patterns_of(pattern: str) -> tuple[str, ...]:
    """The globs that a requested pattern stands for; a word for several patterns is replaced by their names."""
    return FAMILIES.get(pattern, (pattern,))


def _split(name: str) -> tuple[str | None, str]:
    head, dot, rest = name.partition(".")
    return (_STAGES[head], rest) if dot and head in _STAGES else (None, name)


def _row(key: tuple[str, str]) -> NamedPass:
    row = known(key[0], key[1].partition("/")[0])
    assert row is not None, key
    return row


def _called(name: str, stages: Iterable[str]) -> list[NamedPass]:
    rows = [row for row in PASSES.values() if row.stage in stages]
    return [row for row in rows if fnmatchcase(name, row.name) or name in (*row.aliases, row.name.rstrip("_*"))]


def _own(row: NamedPass, name: str) -> str:
    return name if fnmatchcase(name, row.name) else row.name


def _with_pattern(name: str, stages: Iterable[str]) -> list[NamedPass]:
    rows, wanted = [row for row in PASSES.values() if row.stage in stages], patterns_of(name)
    return [row for row in rows if any(fnmatchcase(each, glob) for each in wanted for glob in row.patterns)]


def _why(bare: str, stages: Iterable[str]) -> str:
    if "/" in bare and any(_called(bare.partition("/")[0], stages)):
        return "behind the slash goes the name of a pattern"
    counts = (f"{sum(row.stage == stage for row in PASSES.values())} of {stage}" for stage in stages)
    return f"the stages are {', '.join(STAGE_NAMES)}; the passes, {', '.join(counts)}, have other names"


def _near(name: str, bare: str) -> str:
    choices: dict[str, list[str]] = {stage: [] for stage in STAGE_NAMES}
    for row in PASSES.values():
        for each in (row.name, *row.aliases, *(pattern for pattern in row.patterns if "*" not in pattern)):
            choices.setdefault(each, []).append(row.stage)
    near = difflib.get_close_matches(bare, choices, 1) or difflib.get_close_matches(name, choices, 1)
    if not near:
        return ""
    where = f" ({', '.join(dict.fromkeys(choices[near[0]]))})" if choices[near[0]] else ""
    return f"did you mean {near[0]}{where}"


def _line(row: NamedPass) -> str:
    also = f" ({', '.join(row.aliases)})" if row.aliases else ""
    parts = [f"{row.full_name}{also}: {row.does}"]
    if row.when:
        parts.append(f"runs with {row.when}")
    if row.only:
        parts.append(f"torch {row.only}")
    if row.needed:
        where = f" in a graph with {' or '.join(row.needed_for)}" if row.needed_for else ""
        parts.append(f"cannot be skipped{where}: {row.needed}")
    return "; ".join(parts)


def pattern_name(entry: Any) -> str:
    """What a pattern is called: its own name, its handler, or the function that it was traced from."""
    check = getattr(entry, "extra_check", None)
    traced = dict(
        zip(getattr(check, "__code__", _NONE).co_freevars, getattr(check, "__closure__", None) or (), strict=False)
    )
    handler = getattr(entry, "handler", None) or (traced["search_fn"].cell_contents if "search_fn" in traced else None)
    while isinstance(handler, functools.partial):
        handler = handler.func
    return str(getattr(entry, "pattern_name", None) or getattr(handler, "__name__", None) or type(entry).__name__)


_NONE = compile("", "", "exec")
"""An empty code object, with no free variables."""
