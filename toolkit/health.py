"""What works on this machine and what is missing, as rows: the body of `graphdbg doctor`.

Each check is a small function that returns a Finding and never raises for what it looks for. torch is imported inside.

>>> [finding.name for finding in examine() if not finding.ok and finding.essential]
[]
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec


class Finding(msgspec.Struct):
    """One row: what was looked for, whether it is there, whether graphdbg cannot do without, what was seen, what to do."""

    name: str
    ok: bool
    essential: bool
    found: str
    fix: str = ""


def examine() -> list[Finding]:
    """All checks, in the order of what depends on what."""
    return [check() for check in CHECKS]


def _python() -> Finding:
    version = platform.python_version()
    return Finding(
        "python", sys.version_info >= (3, 10), True, f"{version} at {sys.executable}", "install Python 3.10 or newer"
    )


def _torch() -> Finding:
    fix = "install torch: pip install torch"
    if importlib.util.find_spec("torch") is None:
        return Finding("torch", False, True, "not installed", fix)
    try:
        import torch
    except (ImportError, OSError) as error:
        return Finding("torch", False, True, f"cannot be imported: {error}", fix)
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    tried = (
        "" if (2, 11) <= release <= (2, 15) else "; graphdbg was made for 2.11 to 2.15, so some stages may be missing"
    )
    return Finding("torch", release >= (2, 11), True, f"{torch.__version__}{tried}", "install torch 2.11 or newer")


def _compiler() -> Finding:
    fix = "install a C++ compiler (g++), or name one in CXX; without it Inductor cannot compile for the CPU"
    name = _compiler_name()
    if name is None:
        return Finding("C++ compiler", False, True, "none found", fix)
    source = "#include <vector>\nint main() { std::vector<int> v(3); return static_cast<int>(v.size()) - 3; }\n"
    with tempfile.TemporaryDirectory(prefix="graphdbg-doctor-") as folder:
        path = Path(folder) / "try.cpp"
        path.write_text(source)
        try:
            done = subprocess.run(
                [name, str(path), "-o", str(path.with_suffix(""))], capture_output=True, text=True, timeout=60
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Finding("C++ compiler", False, True, f"{name}: {error}", fix)
    if done.returncode:
        return Finding(
            "C++ compiler", False, True, f"{name} cannot compile a small program: {done.stderr.strip()[:200]}", fix
        )
    version = subprocess.run([name, "--version"], capture_output=True, text=True, check=False).stdout.splitlines()
    return Finding("C++ compiler", True, True, version[0] if version else name)


def _compiler_name() -> str | None:
    if importlib.util.find_spec("torch") is None:
        return shutil.which(os.environ.get("CXX", "g++"))
    from . import _torch as private

    return private.cpp_compiler()


def _triton() -> Finding:
    there = importlib.util.find_spec("triton") is not None
    found = (
        importlib.metadata.version("triton")
        if there and _has_metadata("triton")
        else ("there" if there else "not installed")
    )
    if sys.platform != "linux":
        fix = f"kernels for GPUs are written, interpreted and checked with it; it has no build for {sys.platform}: use Linux"
    else:
        fix = "kernels for GPUs are written, interpreted and checked with it, GPU or not: pip install 'graphdbg[triton]'"
    return Finding("triton", there, False, found, fix)


def _has_metadata(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _cuda() -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding("CUDA", False, False, "not asked: torch is missing")
    import torch

    if not torch.cuda.is_available():
        built = "this torch is built without CUDA" if torch.version.cuda is None else "no usable GPU"
        return Finding(
            "CUDA", False, False, built,
            "needed for graphs recorded on a GPU only; replay them with --device cpu or --rung triton_interpret",
        )
    names = ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    return Finding("CUDA", True, False, f"{torch.version.cuda}: {names}")


def _graphviz() -> Finding:
    from ..dumps.errors import GraphdbgError
    from .drawing import render

    fix = "needed for pictures only: pip install pygraphviz, or install Graphviz"
    try:
        _, renderer = render.rendered("digraph { a -> b }", "svg", 20.0)
    except GraphdbgError as error:
        return Finding("graphviz", False, False, error.why, fix)
    found = shutil.which("dot") if renderer == "dot" else f"that of pygraphviz {importlib.metadata.version(renderer)}"
    return Finding("graphviz", True, False, found or renderer)


def _cache() -> Finding:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "graphdbg"
    fix = f"make {home} writable, or set XDG_CACHE_HOME; without it each start of a fork server costs about 20 s more"
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        return Finding("cache folder", False, False, f"{home}: {error}", fix)
    seeds = sorted(path.name for path in (home / "seed").glob("*") if not path.name.startswith("."))
    return Finding(
        "cache folder", True, False, f"{home}, toolchain probes for {', '.join(seeds) if seeds else 'nothing yet'}"
    )


def _fork() -> Finding:
    from ..dumps.errors import GraphdbgError
    from .isolation import ForkServer

    fix = "graphdbg isolates each replay in a forked child; it needs Linux or macOS, and room for one more process"
    if not hasattr(os, "fork"):
        return Finding("isolation", False, True, f"no fork on {platform.system()}", fix)
    try:
        with ForkServer(warm="nothing") as server:
            answer = server.call("builtins:dict", {"alive": True}, limit_s=30)
    except (OSError, GraphdbgError) as error:
        return Finding("isolation", False, True, str(error), fix)
    ok = answer.status == "done" and answer.value == {"alive": True}
    seen = (
        f"a forked child answered in {answer.seconds * 1000:.0f} ms"
        if ok
        else f"{answer.status}: {answer.output[-300:]}"
    )
    return Finding("isolation", ok, True, seen, fix)


def _recorder() -> Finding:
    entries = [
        entry.value for entry in importlib.metadata.entry_points(group="torch.backends") if entry.name == "graphdbg"
    ]
    fix = "install graphdbg into the environment that runs torch: pip install graphdbg"
    return Finding(
        "recorder plug-in", bool(entries), True, entries[0] if entries else "torch does not know graphdbg", fix
    )


def _hooks() -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding("recorder hooks", False, True, "not asked: torch is missing")
    from .recorder._torch import HOOKS

    lost: list[str] = []
    for hook in HOOKS:
        if not _exists(hook.module, hook.attribute):
            stages = ", ".join(hook.required_for) or "nothing by itself"
            lost.append(f"{hook.module}.{hook.attribute} (records {stages})")
    found = f"all {len(HOOKS)} are there" if not lost else f"missing: {'; '.join(lost)}"
    return Finding(
        "recorder hooks", not lost, len(lost) == len(HOOKS), found, "use a torch that graphdbg was tried with"
    )


def _exists(module: str, attribute: str) -> bool:
    try:
        owner: object = importlib.import_module(module)
    except ImportError:
        return False
    for part in attribute.split("."):
        owner = getattr(owner, part, None)
    return owner is not None


CHECKS: tuple[Callable[[], Finding], ...] = (
    _python, _torch, _compiler, _triton, _cuda, _graphviz, _cache, _fork, _recorder, _hooks,
)  # fmt: skip
"""In order."""
