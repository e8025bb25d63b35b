"""Runs a user's command once under each backend: same environment but for what selects the backend, output kept in files.

Everything but the last leg gets its backend from torch itself (TORCH_COMPILE_OVERRIDE_BACKENDS); the last runs as the user
wrote it, with the mode and options of the script. Legs that compile with Inductor's tables draw random numbers as eager does.
A leg that takes too long is killed with everything that it started.

>>> leg = run_leg("eager", ["python", "train.py"], Path("out"), limit_s=60)
>>> leg.exit_code
0
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from . import leg as inside

LEGS = ("eager", "eager again", "aot_eager", "aot_eager_decomp_partition", "as written")
"""In order; "eager again" shows what differs from run to run by itself."""

_GRACE_S = 3.0


class Leg(msgspec.Struct):
    """One run of the command. `exit_code` is that of the shell (128 + signal); `hang`: it was killed when its time was over.

    `graphs`: how many Dynamo compiled (None: no process lived to say so); `overridden`: torch knows how to override backends.
    """

    name: str
    folder: Path
    exit_code: int
    seconds: float
    hang: bool = False
    graphs: int | None = None
    overridden: bool = True

    @property
    def stdout(self) -> str:
        """What it printed."""
        return (self.folder / f"{self.file_name}.stdout").read_text(errors="replace")

    @property
    def stderr_end(self) -> str:
        """The last line of its stderr that says anything."""
        text = (self.folder / f"{self.file_name}.stderr").read_text(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if "Error" in line and not line.startswith(("File ", "raise "))]
        return (errors or lines or [""])[-1]

    @property
    def file_name(self) -> str:
        """Its name in the folder."""
        return self.name.replace(" ", "-")


def environment(name: str) -> dict[str, str]:
    """What a leg's environment has beyond the user's own."""
    backend = {"eager again": "eager", "as written": ""}.get(name, name)
    chosen = {"TORCH_COMPILE_OVERRIDE_BACKENDS": f">=0:{backend}"} if backend else {}
    return chosen | ({inside.RANDOM_VARIABLE: "1"} if name in ("aot_eager_decomp_partition", "as written") else {})


def run_leg(name: str, command: Sequence[str], folder: Path, limit_s: float) -> Leg:
    """Runs the command to its end, or to the end of its time. KeyboardInterrupt ends the leg and goes on up."""
    leg = Leg(name, folder, 0, 0.0)
    note = folder / f"{leg.file_name}.note"
    began = time.monotonic()
    outputs = [(folder / f"{leg.file_name}.{stream}").open("wb") for stream in ("stdout", "stderr")]
    kept = {
        key: value for key, value in os.environ.items() if key not in ("GRAPHDBG", "TORCH_COMPILE_OVERRIDE_BACKENDS")
    }
    with contextlib.ExitStack() as stack:
        for file in outputs:
            stack.enter_context(file)
        child = subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=outputs[0], stderr=outputs[1], start_new_session=True,
            env={**kept, **environment(name), inside.VARIABLE: str(note.absolute()), "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            leg.hang, code = True, _end(child)
        except BaseException:
            _end(child)
            raise
    leg.exit_code = code if code >= 0 else 128 - code
    leg.seconds = time.monotonic() - began
    if lines := inside.read(note):
        leg.graphs = sum(line["graphs"] for line in lines)
        using = [line for line in lines if line["graphs"]]
        leg.overridden = all(line["backends"] for line in using)
    note.unlink(missing_ok=True)
    return leg


def _end(child: subprocess.Popen[bytes]) -> int:
    """Ends the child and its whole process group: asked first, then killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE_S)
    return child.wait()
