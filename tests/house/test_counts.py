"""A number and its noun agree: "1 graph", never "1 graphs". Counts are written by `dumps/wording.py`, in all rooms."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

import pytest

from graphdbg.dumps.wording import counted, plural

from .source_tree import ROOT, front, modules

NOUNS = (
    "answer",
    "atom",
    "box",
    "candidate",
    "character",
    "child",
    "compile",
    "core",
    "dimension",
    "edge",
    "element",
    "error",
    "execution",
    "failure",
    "file",
    "finding",
    "graph",
    "hop",
    "input",
    "kernel",
    "launch",
    "line",
    "match",
    "mismatch",
    "node",
    "number",
    "operation",
    "output",
    "parameter",
    "part",
    "partition",
    "pass",
    "placeholder",
    "process",
    "program",
    "query",
    "rank",
    "recompile",
    "remark",
    "result",
    "row",
    "setting",
    "size",
    "stage",
    "step",
    "stride",
    "subgraph",
    "suspect",
    "tensor",
    "time",
    "trace",
    "value",
    "warp",
    "worker",
)
PLURAL = re.compile(rf" (?:more |other |fresh |source )?({'|'.join(map(plural, NOUNS))})\b")

ALLOWED = {
    "minifier/demo.py",  # nodes of a failing graph, its input and its output among them
    "minifier/report/bundle.py",
    "minifier/report/trying.py",  # "recorded inputs": a word stands there, no number
}


def wrong(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and text of each placeholder with a plural behind it; those of constants and "1.5 times" are left out."""
    for node in nodes:
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, behind in zip(node.values, node.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(behind, ast.Constant):
                continue
            noun = PLURAL.match(str(behind.value))
            if noun is None or _is_constant(value.value) or (noun[1] == "times" and value.format_spec is not None):
                continue
            yield value.lineno, ast.unparse(value.value) + str(behind.value)[:30]


def _is_constant(expression: ast.expr) -> bool:
    names = [part.id.lstrip("_") for part in ast.walk(expression) if isinstance(part, ast.Name)]
    return all(name.isupper() for name in names if name != "len")


def test_no_count_stands_before_a_plural_that_is_always_one() -> None:
    results = [
        f"{path}:{line}: {text}"
        for module in [*front(), *modules()]
        if (path := module.path.relative_to(ROOT).as_posix()) not in ALLOWED
        for line, text in wrong(module.nodes)
    ]
    assert not results, "use counted() of dumps/wording.py:\n" + "\n".join(results)


@pytest.mark.parametrize(
    "text", ["{len(rows)} graphs", "{one.count:,} more processes", "{total:.0f} executions", "{n} times"]
)
def test_the_check_finds_what_it_is_for(text: str) -> None:
    assert len(list(wrong(ast.walk(ast.parse(f'f"{text} in all"'))))) == 1


@pytest.mark.parametrize(
    "text", ["{MOST} files", "{len(NAMES)} values", "{ratio:.1f} times", "{counted(n, 'graph')} of"]
)
def test_the_check_lets_the_rest_alone(text: str) -> None:
    assert not list(wrong(ast.walk(ast.parse(f'f"{text} in all"'))))


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "graph", "1 graph"),
        (0, "graph", "0 graphs"),
        (2, "process", "2 processes"),
        (3, "more query", "3 more queries"),
        (2, "match", "2 matches"),
        (2, "box", "2 boxes"),
        (2, "day", "2 days"),
    ],
)
def test_a_noun_follows_its_number(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


def test_phrases_and_formats() -> None:
    assert counted(1, "graph was", "graphs were") == "1 graph was"
    assert counted(12_000, "graph was", "graphs were", form=",") == "12,000 graphs were"
