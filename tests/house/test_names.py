"""Plain English in names and sentences: the field's words, and no variable whose name says nothing of what it is."""

from __future__ import annotations

import ast
import re

from .source_tree import ROOMS, ROOT, Module, modules

SAY_NOTHING = {"found", "one", "made", "told"}
OF_THE_HOUSE = re.compile(r"\b(anew|befell|befalls|made[ -]up)\b")
"""Again, happened to, synthesised."""
_RULE = re.compile(r"([A-Z][^{};]*)\{[^{}]*[a-z-]+: [^{}]*\}")


def _variables(module: Module) -> set[str]:
    stored = (node.id for node in module.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    fields = {
        node.target.id
        for node in module.nodes
        if isinstance(node, ast.ClassDef)
        for node in node.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return ({*stored} - fields) | {node.arg for node in module.nodes if isinstance(node, ast.arg)}


def test_variables_say_what_they_are() -> None:
    """Fields of what is saved or printed as JSON keep their names."""
    said = {module.name: named for module in modules(*ROOMS, "tests") if (named := _variables(module) & SAY_NOTHING)}
    assert said == {}


def test_no_two_classes_share_a_name() -> None:
    """Also where one of them is private: a reader of a traceback or a search result has the name alone."""
    places: dict[str, list[str]] = {}
    for module in modules():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(module.name)
    assert len(places) > 500
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_the_fields_words_are_used() -> None:
    texts = [
        *(module.path for room in ROOMS for module in modules(room)),
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
    ]
    said = {
        f"{path.relative_to(ROOT)}:{number}": line
        for path in texts
        if path.name != "CHANGELOG.md"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if OF_THE_HOUSE.search(re.sub(r"`[^`]*`|\"--anew|--anew", "", line))
    }
    assert said == {}


def test_styles_name_widgets_that_exist() -> None:
    """A rule of CSS for a class that was renamed applies to nothing, and nobody says so."""
    known, named = {"Screen"}, dict[str, str]()
    for module in modules("tui"):
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                known.add(node.name)
            elif isinstance(node, ast.ImportFrom):
                known |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _RULE.search(node.value):
                for rule in _RULE.finditer(node.value):
                    named |= dict.fromkeys(re.findall(r"(?<![\w.#:-])[A-Z]\w+", rule[1]), module.name)
    assert {name: where for name, where in named.items() if name not in known} == {}
    assert len(named) > 20
