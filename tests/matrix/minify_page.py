"""The table of the minify matrix and its page: what became of each program that was minified against a planted fault.

Must not minify or run anything.

>>> print("\\n".join(table(cells)))
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from tests.matrix.emitted import WORDS, Cell, linted, small


@dataclass
class Reduced(Cell):
    """One graph minified: nodes and bytes of inputs before and after, and what the same with a callable left."""

    planted: str = ""
    before: int = 0
    after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    largest: int = 0
    """The largest size of a dimension that is left."""
    queries: int = 0
    called: str = ""
    """Nodes and bytes that are left with a callable, or why there are none."""
    commit: str = ""
    rung: str = ""


def table(cells: Sequence[Reduced]) -> Iterator[str]:
    """The Markdown table, reasons below it, and the sums."""
    yield "| program | stage | planted | nodes | input bytes | queries | repro | lines | by a callable |"
    yield "|---" * 9 + "|"
    notes: list[str] = []
    for cell in cells:
        notes += [f"{cell.program}, {cell.stage}: {cell.why}"] if cell.why else []
        word = f"{cell.word} [{len(notes)}]" if cell.why else cell.word
        sizes = f"{cell.before} → {cell.after or '-'} | {cell.bytes_before} → {cell.bytes_after if cell.after else '-'}"
        yield (
            f"| {cell.program} | {cell.stage} | {cell.planted} | {sizes} | {cell.queries or ''} | {word} | "
            f"{cell.lines or ''} "
            f"| {cell.called} |"
        )
    yield ""
    yield from (f"{number}. {' '.join(note.split())[:500]}" for number, note in enumerate(notes, 1))
    yield ""
    yield from sums(cells)


def sums(cells: Sequence[Reduced]) -> Iterator[str]:
    """What the table says in all."""
    names = list(dict.fromkeys(cell.program for cell in cells))
    good = [name for name in names if all(cell.works for cell in cells if cell.program == name)]
    some = [name for name in names if any(cell.works for cell in cells if cell.program == name)]
    counts = Counter(cell.word for cell in cells)
    text = ", ".join(f"{counts[word]} {word}" for word in (*WORDS, "cannot"))
    yield (
        f"{len(good)} of {len(names)} programs: every graph minified, its repro runs; {len(some)} with at "
        "least one such graph. "
        f"{len(cells)} graphs: {text}."
    )
    done = [cell for cell in cells if cell.after]
    beside, large = sum(cell.sidecar for cell in done), sum(cell.largest > 8 for cell in done)
    yield f"{beside} of {len(done)} results have a file of values beside their repro, {large} a dimension over 8."
    yield from filter(None, [small(cells), linted(cells)])


def page(cells: Sequence[Reduced], text: str) -> str:
    """docs/minify-matrix.md. `told`: what the script says of itself."""
    head, *rest = text.split("\n\n")
    commits = ", ".join(dict.fromkeys(cell.commit for cell in cells if cell.commit))
    rungs = ", ".join(dict.fromkeys(cell.rung for cell in cells if cell.rung))
    result = (
        f"Made by `tests/matrix/minify_matrix.py` at commit {commits} with torch {torch.__version__}, rung {rungs}."
    )
    return "\n".join(
        ["# The capture matrix, minified", "", head, "", rest[-1].strip(), "", result, "", *table(cells), ""]
    )


def commit() -> str:
    """The commit that is checked out, in short."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    ).stdout.strip()
