"""The packages that graphdbg uses, each really imported, in a process of its own: one that crashes or hangs is a row as
well.

What is declared is read from the installed metadata, so that a dependency without a row of PACKAGES is looked at too.

>>> [finding.name for finding in packages() if not finding.ok]
['ray']
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from ...dumps.wording import flat


@dataclass
class HealthCheck:
    """What was looked for, whether it works, whether dump, ls and show cannot do without it, what was seen, what to do.

    `needed_by` names what does not work where it is missing, `without` what does without.
    """

    name: str
    ok: bool
    essential: bool
    found: str
    fix: str = ""
    needed_by: str = ""
    without: str = ""

    def advice(self) -> str:
        """The line under a row that is not ok; empty when there is nothing to add."""
        words = [f"needed by {self.needed_by}"] if self.needed_by else []
        words += [f"{self.without} do without"] if self.without else []
        return ": ".join(part for part in ("; ".join(words), self.fix) if part)


def row(name: str, *, essential: bool) -> Callable[[Callable[[], HealthCheck]], Callable[[], HealthCheck]]:
    """Makes a row of that name of whatever a check raises: a broken package may raise anything."""

    def decorated(check: Callable[[], HealthCheck]) -> Callable[[], HealthCheck]:
        @functools.wraps(check)
        def checked() -> HealthCheck:
            try:
                return check()
            except ImportError as error:
                return HealthCheck(name, False, essential, f"not asked: {flat(error)}")
            except Exception as error:  # noqa: BLE001  said in the row
                return HealthCheck(name, False, essential, f"cannot be asked: {type(error).__name__}: {flat(error)}")

        return checked

    return decorated


LIMIT_S = 60.0
_ABSENT = "not installed"
_OTHERS = "all other commands"


class Package(NamedTuple):
    """A package by its name on PyPI and its module: what needs it, and what does without."""

    name: str
    module: str
    essential: bool
    needed_by: str
    without: str
    fix: str = ""


PACKAGES = (
    Package("click", "click", True, "every command", ""),
    Package("msgspec", "msgspec", True, "every other command", ""),
    Package("sympy", "sympy", True, "dump and every command that loads a graph", "ls, show, diff, draw and pack"),
    Package("humanize", "humanize", True, "every command that prints sizes or ages", "dump, ls of a run and diff"),
    Package("platformdirs", "platformdirs", True, "tui and all that runs graphs",
        "dump, ls, show, diff, draw and pack"),
    Package("safetensors", "safetensors", False, "bisect, and minify where it takes parts out of a graph", _OTHERS),
    Package(
        "rich", "rich", False, "tui, and ls, show, diff, compile and minify on a terminal",
        "the last five through a pipe or with --json, and all other commands",
    ),
    Package("textual", "textual", False, "tui", _OTHERS),
    Package("textual-serve", "textual_serve.server", False, "tui --web", f"tui in a terminal and {_OTHERS}"),
    Package("aiohttp", "aiohttp.web", False, "tui --web", f"tui in a terminal and {_OTHERS}"),
    Package("pydot", "pydot", False, "draw and the backend graphdbg_draw", _OTHERS),
    Package(
        "pygraphviz", "pygraphviz", False, "draw -o of svg, png and pdf where `dot` is not on PATH",
        f"draw -o of a .dot file and {_OTHERS}", "pip install pygraphviz, or install Graphviz",
    ),
    Package(
        "triton", "triton", False,
        "the rung triton_interpret, kernel, compile --target and --emit of kernels' forms, Inductor on a GPU",
        "all other rungs and commands",
        "pip install 'graphdbg[triton]'" if sys.platform == "linux" else f"it has no build for {sys.platform}: use "
        "Linux",
    ),
    Package(
        "numpy", "numpy", False, "the interpreter of Triton kernels (the rung triton_interpret, kernel)",
        "all other rungs and commands",
    ),
    Package("ray", "ray", False, "minify --executor ray", f"minify on this machine and {_OTHERS}",
        "pip install 'graphdbg[ray]'"),
)  # fmt: skip

_CHILD = """
import importlib, importlib.metadata, json, os, sys
name, module, path = sys.argv[1:]
sys.path[:] = json.loads(path)
top = module.partition(".")[0]
try:
    made = importlib.import_module(module)
    whole = sys.modules[top]
    said = {"version": getattr(whole, "__version__", ""), "empty": getattr(whole, "__file__", None) is None}
    try:
        said["version"] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
except ModuleNotFoundError as error:
    said = {"absent": error.name == top, "error": str(error)}
except BaseException as error:
    said = {"error": f"{type(error).__name__}: {error}"}
print("\\n" + json.dumps(said, default=str), flush=True)
os._exit(0)
"""


def packages() -> list[HealthCheck]:
    """A row for each package, in the order of PACKAGES; then what is declared and is not among them."""
    known = {package.name for package in PACKAGES}
    more = [name for name in declared() if name not in known]
    every = [
        *PACKAGES,
        *(Package(name, name.replace("-", "_"), True, "graphdbg, which declares it", "") for name in more),
    ]
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(_finding, every, pool.map(_imported, every)))


def declared() -> list[str]:
    """The packages that the installed graphdbg asks for, extras included, without torch and what only its developers
    need."""
    try:
        wanted = importlib.metadata.requires("graphdbg") or []
    except importlib.metadata.PackageNotFoundError:  # a checkout that is not installed: PACKAGES has them all
        return []
    lines = [line for line in wanted if not re.search(r"extra\s*==\s*['\"]dev['\"]", line)]
    names = [re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower() for line in lines]
    return [name for name in dict.fromkeys(names) if name != "torch"]


def _imported(package: Package) -> tuple[bool, str]:
    """Whether the package can be imported, and its version or why not."""
    command = [sys.executable, "-c", _CHILD, package.name, package.module, json.dumps(sys.path)]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("GRAPHDBG")}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=LIMIT_S, env=ours, check=False
        )
    except subprocess.TimeoutExpired:
        return False, f"its import had not ended after {LIMIT_S:g} s"
    except OSError as error:
        return False, f"not asked: {flat(error)}"
    try:
        said = json.loads(done.stdout.strip().rpartition("\n")[2])
    except ValueError:
        return False, f"its import {_end(done)}"
    if "error" in said:
        return False, _ABSENT if said.get("absent") else f"cannot be imported: {flat(said['error'])}"
    if said["empty"]:
        return False, "an empty folder of its name is there, and no package"
    return True, str(said["version"]) or "there"


def _end(done: subprocess.CompletedProcess[str]) -> str:
    lines: Sequence[str] = done.stderr.strip().splitlines()
    last = f": {flat(lines[-1])}" if lines else ""
    if done.returncode >= 0:
        return f"ended the process with code {done.returncode}{last}"
    try:
        return f"ended the process by {signal.Signals(-done.returncode).name}"
    except ValueError:
        return f"ended the process by signal {-done.returncode}"


def _finding(package: Package, seen: tuple[bool, str]) -> HealthCheck:
    ok, state = seen
    fix, without = package.fix or f"pip install {package.name}", package.without
    if (
        not ok and state != _ABSENT
    ):  # others try to import it too: torch cannot be imported with a broken numpy, but with none
        remedy = f"repair it, or remove it: {without} do without" if without else "repair it"
        fix, without = f"{remedy}; {shlex.quote(sys.executable)} -c 'import {package.module}' shows where it fails", ""
    return HealthCheck(package.name, ok, package.essential, state, fix, package.needed_by, without)
