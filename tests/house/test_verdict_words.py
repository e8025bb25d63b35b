"""The words of a verdict stand in one place, and nobody tells one verdict from another by its text."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence

from .source_tree import modules

WORDS = frozenset(
    {
        "ok",
        "fails",
        "rounding",
        "nondeterministic",
        "cannot_tell",
        "wrong",
        "NaN",
        "missing error",
        "slow compile",
        "skipped",
        "no reference",
        "cannot judge",
        "not judged",
        "lost",
        "same",
        "pass",
        "other",
        "gone",
        "invalid",
        "timeout",
        "infra",
        "needed",
        "replaceable",
    }
)
KINDS = frozenset(
    {
        "crash",
        "signal",
        "accuracy",
        "wrong_numbers",
        "nan",
        "metadata",
        "missing_error",
        "hang",
        "memory",
        "slow",
        "slow_compile",
    }
)
"""Of a failure, as a signature or a record names them: a table from these to texts is one of words, too."""
HOME = {"toolkit.verdicts.verdict", "toolkit.verdicts.verdict_words"}
EXCEPT = {"toolkit.compile_fx.showing.asking", "toolkit.health.running"}
"""How a child process ended, by the server's own words."""
CUTS = frozenset(
    {"startswith", "endswith", "partition", "rpartition", "split", "splitlines", "removeprefix", "removesuffix"}
)


def tables(tree: ast.AST) -> Iterator[ast.expr]:
    """Literals that hold two or more words of verdicts, or texts for them; not where a value is looked for among
    some."""
    nodes = list(ast.walk(tree))
    told_apart = {id(side) for node in nodes if isinstance(node, ast.Compare) for side in node.comparators}
    told_apart |= {id(node.slice) for node in nodes if isinstance(node, ast.Subscript)}
    told_apart |= {
        id(node.value) for node in nodes if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
    }
    for node in nodes:
        if isinstance(node, ast.Dict):
            texts = [
                item
                for value in node.values
                for item in ast.walk(value)
                if isinstance(item, ast.Constant) and isinstance(item.value, str) and " " in item.value
            ]
            if texts and len(held(node.keys, WORDS | KINDS)) > 1:
                yield node
        elif (
            isinstance(node, (ast.Tuple, ast.List, ast.Set))
            and id(node) not in told_apart
            and len(held(node.elts, WORDS)) > 1
        ):
            yield node


def held(nodes: Sequence[ast.expr | None], words: frozenset[str]) -> list[str]:
    """Those of the words that stand there."""
    return [node.value for node in nodes if isinstance(node, ast.Constant) and node.value in words]


TEXT = re.compile(r"""\bverdict$|verdict['"]\]$|\brecord\.reason$|verdict_words\.text\(.*\)$""")
"""An expression that is such a text."""


def cuts(tree: ast.AST) -> Iterator[ast.expr]:
    """Calls that look into the text of a verdict or into a record's reason."""
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr in CUTS and TEXT.search(ast.unparse(called.value)):
            yield called


def places(rule: Callable[[ast.AST], Iterator[ast.expr]], telling: re.Pattern[str]) -> dict[str, list[int]]:
    """Module -> the lines where the rule finds something; a module without what is `telling` in its text is not
    parsed."""
    looked_at = [
        module
        for module in modules()
        if module.name not in HOME and telling.search(module.path.read_text(encoding="utf-8"))
    ]
    seen = {item.name: [node.lineno for node in rule(item.tree)] for item in looked_at}
    return {name: lines for name, lines in seen.items() if lines}


def test_the_words_of_verdicts_are_in_one_place() -> None:
    quoted = "|".join(f'"{word}"' for word in sorted(WORDS | KINDS))
    assert set(places(tables, re.compile(f"(?s)(?:{quoted}).*(?:{quoted})"))) == EXCEPT


def test_no_text_of_a_verdict_is_taken_apart() -> None:
    assert places(cuts, re.compile(rf"""(?:verdict|reason|text\(.*\))['"]?\]?\.(?:{"|".join(CUTS)})\(""")) == {}


def test_the_rule_sees_a_table_and_a_cut() -> None:
    assert list(tables(ast.parse('{"wrong": "is wrong", "crash": "it crashes"}')))
    assert list(tables(ast.parse('ORDER = ("crash", "wrong", "ok")')))
    assert not list(tables(ast.parse('verdict in ("same", "pass")')))
    assert list(cuts(ast.parse('outcome.verdict.startswith("skipped")')))
    assert list(cuts(ast.parse('row["verdict"].splitlines()[0]')))
