"""What the children of the property test do: they become a repro, with the flags of a command line."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys
from typing import Any

from graphdbg.toolkit.isolation.warming import forget_copied_tables


def run(payload: dict[str, Any]) -> dict[str, Any]:
    """Exit code and output of a program, as a Python of its own would have them; of our modules none is left."""
    forget_copied_tables()
    ours = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "graphdbg"}
    sys.modules.update(dict.fromkeys(ours))  # type: ignore[arg-type]
    sys.argv, reported = [payload["program"], *payload["flags"]], io.StringIO()
    os.chdir(payload["folder"])
    with contextlib.redirect_stdout(reported), contextlib.redirect_stderr(reported):
        try:
            runpy.run_path(payload["program"], run_name="__main__")
            code: Any = 0
        except SystemExit as end:
            code = end.code
        except Exception as error:  # noqa: BLE001  the program's own hook tells what it is
            code = _hooked(error)
        finally:
            sys.modules.update(ours)
    if isinstance(code, str):
        reported.write(code)
        code = 1
    return {"code": int(code or 0), "output": reported.getvalue()}


def _hooked(error: Exception) -> Any:
    """What the program's own hook makes of an exception that nobody awaits."""
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as end:
        return end.code
    return 1
