"""Asks children for the launches of a graph, and for one launch alone on the GPU at a time. Imports no torch.

A kernel that kills its process is reported as one that died; the others go on.

For example:

    with opened(None, "inductor", *TASKS) as children:
        saved = launches_of(graph, Path("launches"), "cuda:90", children)
        rows = [alone(saved, launch, children, None) for launch in saved.launches]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...dumps.errors import GraphdbgError
from ..isolation import Answer, ForkServer, ask
from ..triton.targets import DEFAULT
from ..verdicts.ladder_words import address
from ..verdicts.signature import how_ended
from .judged import JudgedLaunch
from .launches import INDEX, Launch, Launches, open_launches
from .roofline import Ceilings

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph

SAVE = f"{__package__}.saving_child:task"
_ALONE = f"{__package__}.alone"
TASKS = (SAVE, _ALONE)
"""What a server should import once for these questions."""


class RunError(GraphdbgError):
    """The graph's compile or run went wrong before all of its kernels were launched: a finding, not a mistake of the
    user's."""

    exit_code = 1


def gpu(children: ForkServer) -> dict[str, Any]:
    """Name and capability of the GPU here; empty where there is none."""
    answer = ask(f"{_ALONE}:gpu", {}, 120.0, server=children).answer()
    return answer.value if answer.status == "done" else {}


def target_here(hardware: dict[str, Any]) -> str:
    """The target that stands for a GPU, or the default one."""
    return f"cuda:{hardware['capability']}" if hardware else DEFAULT


def launches_of(
    saved: SavedGraph,
    folder: Path,
    target: str,
    children: ForkServer,
    *,
    names: Sequence[str] | None = None,
    seed: int = 0,
    imports: Sequence[str] = (),
    limit_s: float = 600.0,
) -> Launches:
    """Interprets a graph's kernels in a child and saves launches to `folder`: those of `names` (None: all). Raises
    RunError where the run itself went wrong."""
    payload = {
        "path": str(saved.path.absolute()),
        "graph": address(saved),
        "folder": str(folder.absolute()),
        "target": target,
        "names": None if names is None else list(names),
        "seed": seed,
        "imports": list(imports),
    }
    answer = ask(SAVE, payload, limit_s, server=children).end()
    if answer.status != "done":
        raise _failed(answer, folder)
    return open_launches(folder)


def _failed(answer: Answer, folder: Path) -> RunError:
    count = len(open_launches(folder).launches) if (folder / INDEX).is_file() else 0
    said = (
        f"{answer.error.type.rpartition('.')[2]}: {answer.error.message}".splitlines()[0]
        if answer.error
        else ended(answer)
    )
    what = f"the graph failed in {answer.stage or 'loading'} after {count} launch{'es' * (count != 1)}"
    return RunError(what, said, "graphdbg replay --rung triton_interpret tells more")


def ended(answer: Answer) -> str:
    """How a process ended, as text."""
    if answer.error is not None:
        said = str(answer.error.message).strip().splitlines() or [""]
        return f"{answer.error.type.rpartition('.')[2]} in {answer.stage or 'loading'}: {said[0]}"
    return how_ended(answer)


def ceilings(children: ForkServer, limit_s: float = 300.0) -> Ceilings | str:
    """The highest rates of the GPU, or why they are not known."""
    answer = ask(f"{_ALONE}:ceilings", {}, limit_s, server=children).answer()
    return msgspec.convert(answer.value, Ceilings) if answer.status == "done" else ended(answer)


def alone(
    known: Launches, launch: Launch, children: ForkServer, limits: Ceilings | None, limit_s: float = 600.0
) -> JudgedLaunch:
    """One launch on the GPU, in a child of its own. Runs the source, so only where it is trusted."""
    payload = {
        "folder": str(known.folder.absolute()),
        "launch": launch.folder,
        "ceilings": None if limits is None else msgspec.to_builtins(limits),
    }
    answer = ask(f"{_ALONE}:task", payload, limit_s, server=children).answer()
    if answer.status == "done":
        return msgspec.convert(answer.value, JudgedLaunch)
    return JudgedLaunch.of(launch, "the GPU", [], died=ended(answer))


def interpreted(
    known: Launches, wanted: Sequence[Launch], children: ForkServer, limit_s: float = 600.0
) -> list[JudgedLaunch]:
    """The interpreter's results of launches against eager's. Raises RunError where the child that compares ends."""
    payload = {"folder": str(known.folder.absolute()), "launches": [launch.folder for launch in wanted]}
    answer = ask(f"{_ALONE}:compared", payload, limit_s, server=children).answer()
    if answer.status != "done":
        raise RunError("the results could not be compared", ended(answer))
    return msgspec.convert(answer.value, list[JudgedLaunch])
