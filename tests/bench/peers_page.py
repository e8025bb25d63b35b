"""The tables of docs/comparison.md that are made from docs/comparison.json."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "comparison.md"
KINDS = {
    "crash": "crash: C++ that does not compile",
    "wrong": "wrong numbers",
    "nan": "NaN",
    "hang": "compiler hangs",
    "segfault": "segfault at run time",
}
TOOLS = {"torch": "torch's minifier", "torch, --no-isolate": "torch's minifier, `--no-isolate`"}

Row = dict[str, Any]


def cell(row: Row | None, ours: Row) -> str:
    """Queries, nodes, time beside ours, and what became of it."""
    if row is None:
        return "would hang or die itself"
    if "bytes" in row:
        before, after = row["bytes"]
        text = f"{before} B of text to {after} B"
    elif row["nodes"] is None:
        return row.get("why") or "nothing left"
    else:
        text = f"{row['queries']} queries, " if row["ended"] and row["queries"] else ""
        text += f"{row['nodes']} nodes"
    if row is not ours:
        text += f", {row['seconds'] / ours['seconds']:.1f} × the time"
    if not row["ended"]:
        text += ", stopped at the limit"
    if "bytes" in row:
        return text
    return text + (", its repro shows it" if row["verified"] else ", no repro that shows it")


def minified(numbers: dict[str, Any]) -> str:
    """A row for each kind of bug, a column for each tool."""
    names = list(next(iter(numbers["minify"].values())))
    lines = ["| bug | " + " | ".join(TOOLS.get(name, name) for name in names) + " |", "|---" * (len(names) + 1) + "|"]
    for kind, rows in numbers["minify"].items():
        cells = [cell(rows.get(name), rows["graphdbg"]) for name in names]
        lines.append(f"| {KINDS[kind]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def recorded(numbers: dict[str, Any]) -> str:
    """A row for each tool: the step beside no tool, bytes, what a SIGKILL leaves."""
    rows = numbers["record"]
    lines = ["| tool | a step, to no tool | KiB on disk | its graph is there after SIGKILL |", "|---|---|---|---|"]
    for name, row in rows.items():
        if name == "nothing":
            continue
        step = f"{row['step'] / rows['nothing']['step']:.1f}" if row["step"] else "the program failed"
        size = f"{row['bytes'] / 1024:.0f}" + (f", {row['html'] / 1024:.0f} more as HTML" if row["html"] else "")
        lines.append(f"| {name} | {step} | {size} | {'yes' if row['after_kill'] else 'no'} |")
    return "\n".join(lines)


def filled(text: str, numbers: dict[str, Any]) -> str:
    """The page with the tables between their marks; what was not measured stays as it stands."""
    for name, key, table in (("minified", "minify", minified), ("recorded", "record", recorded)):
        if key not in numbers:
            continue
        body = f"<!-- {name} -->\n\n{table(numbers)}\n\n<!-- /{name} -->"
        text = re.sub(rf"<!-- {name} -->.*?<!-- /{name} -->", lambda _, body=body: body, text, flags=re.DOTALL)
    return text


def write(numbers: dict[str, Any]) -> None:
    """Fills the page."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), numbers), encoding="utf-8")
