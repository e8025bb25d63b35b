"""Notebook views of graphs, runs, verdicts and minifications: one HTML element with its own colours, light or dark like
the notebook; no script, nothing is fetched.

The colours and the look of texts and tables are those of the page of `graphdbg pack`. It judges and chooses nothing:
the caller brings the words, columns and cells that a terminal gets.

>>> shown("FAILS: wrong numbers", "bad", table([Column("rung")], [("inductor",)]))[:23]
'<div class="graphdbg"><'
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import GraphdbgError
from ..markup import Markup, joined, tag
from ..tables import Column
from ..wording import counted

if TYPE_CHECKING:
    from ..store import Run, SavedGraph

MOST_ROWS = 200
_TITLES = {"where": "file:line", "code": "your line"}
_LOOK = Path(__file__).parents[1] / "pack" / "look.css"
_OF_LIGHT, _OF_DARK = (
    f"[data-jp-theme-light={is_light}] .graphdbg, .vscode-{theme} .graphdbg"
    for is_light, theme in (("true", "light"), ("false", "dark"))
)
"""The CSS selectors with which JupyterLab or VS Code tell light from dark; elsewhere the system decides."""
_HERE = (
    "background: var(--bg); color: var(--fg); font: 14px/1.45 system-ui, sans-serif; padding: 8px 12px; "
    "border-radius: 6px; "
    "tr { background: none !important; } td, th { text-align: left; } pre { background: none; color: inherit; } "
    "p { margin: 2px 0; }"
)


def shown(title: str, tone: str, *inside: str) -> str:
    """Builds the element. `tone`: "bad", "ok", "doubt", or "" for a title that is no verdict."""
    return tag(
        "div", tag("style", _style()), tag("p", tag("b", title), class_=tone or None), *inside, class_="graphdbg"
    )


@cache
def _style() -> Markup:
    look = _LOOK.read_text(encoding="utf-8")
    light, dark = re.findall(r"(?s):root \{(.*?)\}", look)
    own = f".graphdbg {{{light} {_HERE} {look.partition('} }')[2]} }}"
    system = f"@media (prefers-color-scheme: dark) {{ .graphdbg {{{dark}}} }}"
    return Markup(f"{own} {system} {_OF_LIGHT} {{{light}}} {_OF_DARK} {{{dark}}}")


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Markup:
    """The HTML of the table that `tables.render` returns as text; empty columns are left out."""
    kept = [at for at, _ in enumerate(columns) if any(row[at] for row in rows)]
    heads = tag("tr", *(tag("th", columns[at].title) for at in kept))
    kinds = ["num mono" if column.right else "mono" for column in columns]
    cells = [tag("tr", *(tag("td", row[at], class_=kinds[at]) for at in kept)) for row in rows[:MOST_ROWS]]
    more = tag("p", f"and {len(rows) - MOST_ROWS} more", class_="dim") if len(rows) > MOST_ROWS else ""
    html = tag("table", tag("thead", heads), tag("tbody", *cells))
    return joined(tag("div", html, class_="scroll"), more) if rows else Markup()


def lines(texts: Sequence[str]) -> Markup:
    """A paragraph for each line."""
    return joined(*(tag("p", text) for text in texts))


def code(text: str) -> Markup:
    """A program, or an error, as preformatted text."""
    return tag("pre", text, class_="wrap") if text else Markup()


def commands(texts: Sequence[str]) -> Markup:
    """Commands for the next step, in the form of a notebook cell."""
    return code("\n".join(map(in_cell, texts)))


def in_cell(command: str) -> str:
    """A command line for a notebook cell; it also works where the kernel's Python is not the shell's."""
    there = shutil.which("graphdbg")
    ours = there is not None and Path(there).parent == Path(sys.executable).parent
    return f"!{command if ours else command.replace('graphdbg', f'{shlex.quote(sys.executable)} -m graphdbg', 1)}"


def of_graph(saved: SavedGraph) -> str:
    """The view of a graph: its nodes in the same table as on the page of `graphdbg pack`."""
    from ..pack.page import COLUMNS, graph

    try:
        page_graph = graph(saved, MOST_ROWS)
    except GraphdbgError as error:
        return shown(f"graph {saved.name}", "bad", lines([str(error)]))
    more = [f"graphdbg show {shlex.quote(saved.name)}"] if page_graph.total > MOST_ROWS else []
    said = f"graph {saved.id}: {counted(page_graph.total, 'node')}, {saved.status}"
    names = [row[0] for row in page_graph.rows]
    reads = [", ".join(names[at] for at in used if at < len(names)) for used in page_graph.inputs]
    rows = [(row[0], read, *row[1:]) for row, read in zip(page_graph.rows, reads, strict=True)]
    titles = [_TITLES.get(name, name) for name in (COLUMNS[0], "reads", *COLUMNS[1:])]
    inside = code(saved.error or ""), table([*map(Column, titles)], rows), commands(more)
    return shown(said, "bad" if saved.status == "failed" else "", *inside)


def of_run(run: Run) -> str:
    """The view of a run: one line for each graph."""
    from .ls import graph_cells

    graphs, typed = counted(len(run.rows), "graph"), shlex.quote(run.name)
    return shown(f"run {run.name}: {graphs}", "", table(*graph_cells(run.rows)), commands([f"graphdbg triage {typed}"]))
