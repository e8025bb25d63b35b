"""From the text a user typed to what it names: a run, a graph of a run (`RUN/ID`), or a case folder.

>>> resolve("myrun/0_0/forward").id
'0_0/forward'
>>> resolve("myrun")
Run('myrun')
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from .compressed import stored
from .errors import UsageError
from .graph_folder import GRAPH_FILE, GRAPHS_FOLDER
from .index import is_run, runs
from .store import Run, SavedGraph, open_run


def resolve(text: str, cwd: str | Path | None = None) -> SavedGraph | Run:
    """What `text` names, relative to `cwd`: a run folder, RUN/ID (an id or its unambiguous beginning, with `1:` before it
    where needed), a graph's own folder inside a run, a case folder, or a folder that holds one as `case/`. A file that `pack`
    wrote stands for the run in it.

    Raises UsageError saying what was looked for and where.
    """
    path = Path(os.path.normpath(Path(cwd or "") / text))
    try:
        if not text or "\0" in text:
            raise UsageError(f"{text!r} names nothing", "a run, RUN/ID or a case folder is wanted")
        if is_script(text, cwd):
            fix = f"record it first: graphdbg dump -o myrun {shlex.quote(text)}"
            raise UsageError(f"{text} names a script", "a run, a graph of a run or a case folder is wanted", fix)
        if any(place.is_file() for place in (path, *path.parents)):
            from .pack.opening import folder_of  # late: hardly ever needed

            path = folder_of(path)
        if is_run(path):
            return open_run(path)
        for parent in path.parents:
            if is_run(parent):
                return _inside(open_run(parent), path.relative_to(parent))
        for folder in (path, path / "case"):
            if stored(folder / GRAPH_FILE) is not None:
                return SavedGraph(folder)
        folder = path.is_dir()
    except (OSError, ValueError) as error:
        raise UsageError(f"{text!r} names nothing", str(error)) from error
    why = "the folder holds neither run.json nor graph.json" if folder else "there is no such folder"
    raise UsageError(f"{text} is neither a run, a graph of a run nor a case folder", why, _hint(Path(cwd or ".")))


def is_script(text: str, cwd: str | Path | None = None) -> bool:
    """Whether `text` names a program in the place of something saved: a name that ends in .py, or an executable text with #!."""
    path = Path(cwd or "") / text
    if path.is_dir():
        return False
    if path.suffix == ".py":
        return True
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!" and os.access(path, os.X_OK)
    except (OSError, ValueError):
        return False


def resolve_graph(text: str, cwd: str | Path | None = None) -> SavedGraph:
    """The same where a graph is wanted: a run with one graph gives that graph. Raises UsageError for any other run."""
    found = resolve(text, cwd)
    if isinstance(found, SavedGraph):
        return found
    graphs = found.graphs()
    if len(graphs) == 1:
        return graphs[0]
    listed = ", ".join(graph.id for graph in graphs[:12]) + (" and more" if len(graphs) > 12 else "")
    why = f"it holds {listed}" if graphs else "it holds no graphs"
    raise UsageError(f"{text} is a run and one graph is wanted", why, f"name one as {text}/ID")


def _inside(run: Run, rest: Path) -> SavedGraph:
    parts = rest.parts
    if len(parts) == 4 and parts[1] == GRAPHS_FOLDER:  # the graph's own folder: <process>/graphs/<compile>/<stage>
        return run.graph(f"{parts[0]}:{parts[2]}/{parts[3]}")
    return run.graph("/".join(parts))


def _hint(cwd: Path) -> str:
    try:
        found = runs(cwd)
    except UsageError:
        found = []
    names = ", ".join(run.name for run in found[:8])
    return f"the runs here are {names}" if names else "there are no runs here: record one with graphdbg dump"
