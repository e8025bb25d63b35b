"""Runs a program that lies in a dump, as a module of its own: kernels, operators and passes of the user's.

Only where trust is given. Tracebacks and Triton find its lines through linecache, so no file is written.

For example: `run("add_kernel", "x = 1", "run/0_0/forward", "its kernel").x` gives `1`.
"""

from __future__ import annotations

import hashlib
import linecache
import sys
from types import ModuleType

from .. import trust
from ..errors import EnvironmentLackError, RefusedError


def run(name: str, program: str, where: str, what: str, package: str = "") -> ModuleType:
    """The module. Raises RefusedError without trust, EnvironmentLackError where the program fails here."""
    if not trust.given():
        raise RefusedError(where, f"{what} lies in the dump as source", "read it, then add --trust")
    key = hashlib.sha256(f"{name}\n{program}".encode()).hexdigest()[:16]
    path = f"graphdbg-sources/{key}/{name}.py"
    linecache.cache[path] = (len(program), None, program.splitlines(keepends=True), path)
    module = ModuleType(f"graphdbg_source_{key}")
    module.__file__, module.__package__ = path, package or None
    sys.modules[module.__name__] = module  # inspect looks there
    try:
        exec(compile(program, path, "exec"), vars(module))  # trusted
    except Exception as error:
        sys.modules.pop(module.__name__, None)
        why = f"{what} fails here ({type(error).__name__}: {error})"
        raise EnvironmentLackError(where, why, "load the dump with the packages that it was recorded with") from error
    return module
