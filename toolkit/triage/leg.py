"""In the user's own process, while a script is triaged: notes at its end how much was compiled, for whom compares the runs.

Called by torch's plug-in group at `import torch` (see `recorder.autoload`). Changes one setting, where asked to: compiled code
then draws the random numbers that eager draws. Must never raise into the program.

>>> GRAPHDBG_LEG=note.jsonl python train.py; cat note.jsonl
{"graphs": 3, "backends": true}
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
from pathlib import Path
from typing import Any

from ...dumps.lines import append

VARIABLE = "GRAPHDBG_LEG"
RANDOM_VARIABLE = "GRAPHDBG_LEG_RANDOM"
"""Set: Inductor falls back to torch's own random functions. The variable of torch that overrides settings hands them to
backends that take none, and those fail."""


def start(note: str) -> None:
    """Will add a line to the note when this process ends; a fork of it adds none."""
    atexit.register(_write, Path(note), os.getpid())
    if os.environ.get(RANDOM_VARIABLE):
        from .. import torch_private as t
        from ..torch_private.importing import watch

        watch({t.NAMES.whole("inductor_config"): _draw_like_eager})


def _draw_like_eager(config: Any) -> None:
    config.fallback_random = True


def _write(note: Path, owner: int) -> None:
    if os.getpid() != owner:
        return
    from ..recorder.live_torch import counter, has_dynamo_setting

    with contextlib.suppress(OSError):
        line = {
            "graphs": counter("stats", "unique_graphs"),
            "backends": has_dynamo_setting("debug_backend_override"),
        }
        append(note, json.dumps(line).encode())


def read(note: Path) -> list[dict[str, int]]:
    """The lines of a note; empty where no process lived to write one, or none had torch and graphdbg."""
    try:
        return [json.loads(line) for line in note.read_text().splitlines()]
    except (OSError, ValueError):
        return []
