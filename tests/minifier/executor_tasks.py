"""What the tests of executors ask a forked child to do; imported there by name."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


def look(payload: dict[str, Any]) -> dict[str, Any]:
    """Says where it runs and what it sees of a case; where `seconds` is given, after so long, `started` holding its
    pid."""
    if "started" in payload:
        with Path(payload["started"]).open("a") as file:
            file.write(f"{os.getpid()} {os.getppid()}\n")
    time.sleep(payload.get("seconds", 0))
    case, work = Path(payload["case"]), Path(payload.get("work", "/nothing"))
    return {
        "server": os.getppid(),
        "case": payload["case"],
        "files": {
            str(path.relative_to(case)): path.stat().st_size for path in sorted(case.rglob("*")) if path.is_file()
        },
        "work": {path.name: path.read_text() for path in sorted(work.glob("*"))},
    }
