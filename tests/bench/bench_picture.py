"""The benchmark of README: graphdbg.minifier.minifier and functorch.compile.minifier on the same graphs with the same
planted bugs, measured and drawn as docs/pictures/benchmark.svg. What was measured stands in its <desc> as JSON.

    python -m tests.bench.bench_picture

Counts do not depend on the machine: queries asked (lower is faster where a query is a compile) and nodes left.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from functorch.compile import minifier as stock

from graphdbg.minifier import minifier as ours
from tests.planted.planted_graphs import bug, graphs

from .bench_minifier import measure

KINDS = {"1 op": "one operation", "chain of 3": "three in a row", "far pair": "two far apart"}
SEEDS, LIMIT = 2, 1500
PICTURE = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "benchmark.svg"
INK, OURS, THEIRS = "#768390", "#009485", "#c69026"


def measured() -> list[dict[str, float | str]]:
    """A row for each kind of bug: medians over graphs and seeds, for ours and for torch's."""
    rows: list[dict[str, float | str]] = []
    for kind, words in KINDS.items():
        pairs = []
        for gm, inputs in graphs(200).values():
            for seed in range(SEEDS):
                if (predicate := bug(gm, kind, seed)) is not None:
                    sides = (ours, 10 * LIMIT), (stock, LIMIT)
                    runs = [measure(run, gm, inputs, predicate, limit) for run, limit in sides]
                    assert all(run.nodes is not None for run in runs), f"{kind}: stopped after {LIMIT} queries"
                    pairs.append(runs)
        row: dict[str, float | str] = {"bug": words, "cases": len(pairs)}
        for name, at in (("ours", 0), ("torch", 1)):
            row[f"{name} queries"] = statistics.median(pair[at].calls for pair in pairs)
            row[f"{name} nodes"] = statistics.median(pair[at].nodes for pair in pairs)
        rows.append(row)
    return rows


def picture(rows: list[dict[str, float | str]]) -> str:
    """Two columns of bars, queries and nodes left, a group for each kind of bug."""
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="840" height="{70 + 56 * len(rows)}" role="img">',
        f"<title>graphdbg beside torch's minifier</title><desc>{json.dumps(rows)}</desc>",
        f"<style>text {{ font: 13px system-ui, sans-serif; fill: {INK} }} .h {{ font-weight: 600 }}</style>",
        '<text class="h" x="150" y="20">queries asked</text><text class="h" x="510" y="20">nodes left</text>',
    ]
    for at, row in enumerate(rows):
        top = 34 + 56 * at
        drawn.append(f'<text x="0" y="{top + 23}">{row["bug"]}</text>')
        for left, what in ((150, "queries"), (510, "nodes")):
            most = max(float(row[f"{name} {what}"]) for row in rows for name in ("ours", "torch"))
            for line, (name, fill) in enumerate((("ours", OURS), ("torch", THEIRS))):
                value = float(row[f"{name} {what}"])
                width, y = max(2.0, 240 * value / most), top + 20 * line
                label = "graphdbg" if name == "ours" else "torch"
                drawn.append(f'<rect x="{left}" y="{y}" width="{width:.0f}" height="16" rx="2" fill="{fill}"/>')
                drawn.append(f'<text x="{left + width + 6:.0f}" y="{y + 13}">{value:g} {label}</text>')
    cases = sum(int(row["cases"]) for row in rows)
    said = f"medians of {cases} cases: four graphs of about 200 nodes, {SEEDS} places each"
    drawn += [f'<text x="0" y="{56 + 56 * len(rows)}">{said}; shorter is better</text>', "</svg>\n"]
    return "\n".join(drawn)


def main() -> None:
    """Measures and draws."""
    PICTURE.write_text(picture(measured()), encoding="utf-8")


if __name__ == "__main__":
    main()
