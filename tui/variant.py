"""A variant of a graph: its graph.py in the user's editor, then a case, judged as the graph was, beside what it was
before.

Each step is a command (`import`, `triage`, `diff`), and the graph stays as it is. A text that cannot become a case is
opened again by the key; its file stays.

For example: `edit(room, Here(graph="myrun/0_0/forward", node="relu"))`.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from ..dumps.atomic import free_path, write_file
from ..dumps.opening import read
from ..dumps.program.module import program
from ..dumps.store import resolve_graph
from ..toolkit.isolation.imports import TRUST, option_words
from .here import Here
from .job_files import NORMAL, option
from .jobs import Job
from .room import Room
from .verdicts import ShownVerdict, of_graph

STEM = "graphdbg-variant"


def edit(room: Room, here: Here) -> None:
    """Opens the text of the graph at the node; a changed text becomes a case, which is judged."""
    graph = here.needed("a variant starts from a graph")
    known = lambda: (program(resolve_graph(graph).record), of_graph(graph))  # noqa: E731
    begin = lambda read_text: _edit(room, here, graph, *read_text) if room.is_current else None  # noqa: E731
    room.work(known, begin, group="variant", doing="editing the graph")


def _edit(room: Room, here: Here, graph: str, text: str, judged: ShownVerdict | None) -> None:
    drafts, whole = room.workbench.drafts, text.encode("utf-8", "backslashreplace")
    path, line = drafts.get(graph, (free_path(STEM, ".py", bare=False), line_of(text, here.node or "")))
    if not path.is_file():
        write_file(path, whole)
    drafts[graph] = path, line
    try:
        room.workbench.edit(path, line)
    finally:
        if path.is_file() and read(path) == whole:
            path.unlink()  # nobody's words are in it
        if not path.is_file():
            del drafts[graph]
    if graph not in drafts:
        room.notify("Nothing was changed.", timeout=4)
        return
    case, imports = str(free_path(str(path.with_suffix("")))), judged.imports if judged is not None else ()
    words = ["import", str(path), "--like", graph, "-o", case, *option_words([*imports, TRUST])]
    room.run_job(words, partial(_imported, room, here.at(graph=graph, other=case, node=None), judged), doing="import")
    room.notify(f"graphdbg import {path} ...", markup=False, timeout=2)


def _imported(room: Room, here: Here, judged: ShownVerdict | None, job: Job, code: int) -> None:
    assert here.graph is not None and here.other is not None
    if code:
        place, path = re.search(r"\bline (\d+),", job.last_said()), Path(job.words[1])
        if place is not None and path.is_file():
            room.workbench.drafts[here.graph] = path, int(place[1])
        room.job_failed(job, code, f"V opens your text again; it is in {job.words[1]}", doing="import")
        return
    room.workbench.drafts.pop(here.graph, None)
    room.run_job(judging(here.other, judged), partial(_judged, room), doing="triage")
    if room.is_current:
        room.workbench.go("diff", here)


def _judged(room: Room, job: Job, code: int) -> None:
    if code not in NORMAL:
        room.job_failed(job, code, "in Replay (4) r judges it again", doing="triage")


def judging(case: str, judged: ShownVerdict | None) -> list[str]:
    """The command that judges a case as the graph was judged last."""
    words = judged.words if judged is not None else ()
    rung = (judged.rung if judged is not None else "") or option(words, "--rung") or "inductor"
    kept = [word for name in ("--seed", "--device") if (value := option(words, name)) for word in (name, value)]
    imports = option_words(judged.imports) if judged is not None else []
    return ["triage", case, "--rungs", rung, "--all", *kept, *imports, "--json-lines"]


def line_of(text: str, node: str) -> int:
    """The line of a node in a graph.py; of an input, or without a node of that name, the line of forward.

    >>> line_of("class Graph:\\n  def forward(self, x):\\n    relu = aten.relu.default(x)", "relu")
    3
    """
    lines = [1]
    for start in ("def forward(", f"{node} = "):
        lines += [at for at, line in enumerate(text.splitlines(), 1) if line.strip().startswith(start)][-1:]
    return lines[-1]
