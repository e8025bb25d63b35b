"""In the user's own process: starts what runs beside each compiled call, where the environment or a block asks for it.

For example:

    with graphdbg.shadow(calls="10") as triaged:
        train()
    triaged.verdict.verdict  # -> 'ok'
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .records import FILE, OPTIONS, VARIABLE, read

if TYPE_CHECKING:
    from .concluding import ProgramTriage


def start_from_environment() -> None:
    """Starts the runs beside compiled calls, until this process ends; its forks do not run any. Called by torch's
    plug-in group at `import torch` (see `recorder.autoload`)."""
    from .shadowing import Shadow

    shadow = Shadow(Path(os.environ[VARIABLE]), **json.loads(os.environ.get(OPTIONS) or "{}"))
    shadow.start()
    atexit.register(shadow.stop)


@contextmanager
def shadow(
    folder: str | os.PathLike[str] | None = None, *, calls: str | int | None = None, max_time_s: float | None = None
) -> Iterator[ProgramTriage]:
    """Runs each call of what is given to `torch.compile` inside the block beside eager and under each backend.

    What is yielded is filled in when the block ends: `verdict` (a Verdict), `calls`, `summary`, `drift`, as `graphdbg
    triage -- CMD` reports them. `folder`: a new folder for what departs (default: graphdbg-triage-N); `calls`: "N", the
    first N calls of each function, or "A:B", its calls A to B-1, counted from 0 (default: the first 3, and each that
    compiles again, up to the first that departs); `max_time_s`: seconds after which no call is looked at. The block's
    own results are its own.

    With several ranks each looks at its own calls, the same ones. Raises UsageError where the folder exists or `calls`
    names none.

    For example:

        with graphdbg.shadow() as found:
            torch.compile(model)(batch).sum().backward()
    """
    from ..verdicts.verdict import cannot_tell
    from .concluding import ProgramTriage, concluded
    from .judging import JudgedCall, judge_graphs, judgeable
    from .run import new_folder, range_of
    from .shadowing import Shadow

    text = None if calls is None else str(calls)
    first, last = range_of(text)
    path = new_folder(Path(folder) if folder is not None else None)
    seconds = max_time_s if max_time_s is not None else float("inf")
    inside = Shadow(path, first=first, last=last, recompiles=text is None, go_on=text is not None, seconds=seconds)
    triaged = ProgramTriage(cannot_tell("the block has not ended"), [], {}, [], str(path))
    inside.start()
    try:
        yield triaged
    finally:
        inside.stop()
        program = read(path / FILE)
        graphs = JudgedCall()
        if (call := judgeable(program)) is not None:
            graphs = judge_graphs(call, None, lambda text: None, program.modules)
        final = concluded(program, path, graphs, [])
        for name in ("verdict", "calls", "counts", "summary", "notes", "at", "drift"):
            setattr(triaged, name, getattr(final, name))
