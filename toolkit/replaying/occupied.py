"""How busy the NVIDIA GPUs here are, as `nvidia-smi` reports it: a replay beside a training run is slow, or has no
memory.

Runs that program once; imports no torch and never touches a device itself.

>>> occupied()                          # "", or a sentence about memory that others use
''
"""

from __future__ import annotations

import shutil
import subprocess

from ...dumps.wording import size_text

PROGRAM = "nvidia-smi"
QUERY = "--query-gpu=index,memory.used,memory.total,utilization.gpu"
LIMIT_S = 5.0
SOME_MIB = 1000
"""Less than this is what an idle device holds."""


def occupied() -> str:
    """The GPUs that others use, in words; empty where there is none, or nothing is known."""
    program = shutil.which(PROGRAM)
    if program is None:
        return ""
    try:
        asked = [program, QUERY, "--format=csv,noheader,nounits"]
        done = subprocess.run(
            asked, capture_output=True, text=True, timeout=LIMIT_S, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return "; ".join(text for line in done.stdout.splitlines() if (text := _gpu(line)))


def _gpu(line: str) -> str:
    try:
        index, used, total, busy = (int(part) for part in line.split(","))
    except ValueError:
        return ""
    if used < SOME_MIB and busy < 10:
        return ""
    return f"GPU {index}: {size_text(used << 20)} of {size_text(total << 20)} used, {busy} % busy"
