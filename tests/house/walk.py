"""The walk of one graph through the modules: from the hook to the disk, from there to a verdict, from a failing case to
a repro.

    python -m tests.house.walk                  # this checkout, beside the first figures
    python -m tests.house.walk OLD/graphdbg     # any other
    python -m tests.house.walk --list           # also which modules, in the order of the walk

As a reader would walk: each place of a call from one module of graphdbg into another is followed once, however often it
is called. `entered` counts modules, `returns` the places that call back into a module that had been entered and left
(it is not waiting further up the stack). Everything runs once before it is watched, so that imports are not walked. One
thread, one process; a repro's fresh processes are not looked into.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

FIRST: dict[str, tuple[int, int]] = {
    "from the hook to the disk": (49, 133),
    "(closing the recording)": (18, 17),
    "from the disk to a verdict": (60, 145),
    "from a failing case to a repro": (49, 65),
}
"""Entered and returns of each walk in commit cd7eb9e, where the figures begin."""


class Walk:
    """Watches the calls of this thread while entered."""

    def __init__(self, root: Path) -> None:
        self.root = f"{root}{os.sep}"
        self.order: list[str] = []
        self.returns = 0
        self.steps = 0
        self._entered: set[str] = set()
        self._open: dict[str, int] = {}
        self._stack: list[tuple[FrameType, str, bool]] = []
        self._places: set[tuple[CodeType, int, str]] = set()
        self._names: dict[str, str] = {}

    @contextlib.contextmanager
    def watching(self) -> Iterator[Walk]:
        sys.setprofile(self._event)
        try:
            yield self
        finally:
            sys.setprofile(None)

    def _module(self, code: CodeType) -> str:
        """The module of a code object, empty for code that is not graphdbg's."""
        name = self._names.get(code.co_filename)
        if name is None:
            path = code.co_filename
            apart = (f"{self.root}tests{os.sep}", f"{self.root}.venv{os.sep}")
            ours = path.startswith(self.root) and not path.startswith(apart)
            name = self._names[path] = path[len(self.root) :].removesuffix(".py").replace(os.sep, ".") if ours else ""
        return name

    def _event(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            name = self._module(frame.f_code)
            if name:
                self._call(frame, name)
        elif event == "return" and self._stack and self._stack[-1][0] is frame:
            _, name, _ = self._stack.pop()
            self._open[name] -= 1

    def _call(self, frame: FrameType, name: str) -> None:
        caller = frame.f_back
        while caller is not None and not self._module(caller.f_code):
            caller = caller.f_back
        before = self._module(caller.f_code) if caller is not None else ""
        if before != name:
            place = (caller.f_code if caller else frame.f_code, caller.f_lineno if caller else 0, name)
            if place not in self._places:
                self._places.add(place)
                self._step(name)
        self._open[name] = self._open.get(name, 0) + 1
        self._stack.append((frame, name, True))

    def _step(self, name: str) -> None:
        self.steps += 1
        if name not in self._entered:
            self._entered.add(name)
            self.order.append(name)
        elif not self._open.get(name):
            self.returns += 1


def _function(x: Any, w: Any) -> Any:
    import torch

    return torch.relu(x @ w).sum()


def hook_to_disk(root: Path, work: Path) -> Iterator[tuple[str, Walk]]:
    """One inference graph, compiled with Inductor; the first compile of the session is not watched."""
    import torch

    import graphdbg

    def compile_once() -> None:
        torch.compiler.reset()
        torch.compile(_function)(torch.randn(4, 8), torch.randn(8, 4))

    compiled, closed = Walk(root), Walk(root)
    with contextlib.redirect_stderr(io.StringIO()), graphdbg.record(work / "warm", stages=["inference"]):
        compile_once()
    block = graphdbg.record(work / "run", stages=["inference"])
    with contextlib.redirect_stderr(io.StringIO()):
        block.__enter__()
        compile_once()
        with compiled.watching():
            compile_once()
        with closed.watching():
            block.__exit__(None, None, None)
    yield "from the hook to the disk", compiled
    yield "(closing the recording)", closed


def disk_to_verdict(root: Path, work: Path) -> tuple[Walk, dict[str, Any]]:
    """A replay of the graph under Inductor, as the child does it."""
    from importlib import import_module

    import graphdbg

    graph = graphdbg.open_run(work / "run").graphs()[-1]
    module, _, name = import_module("graphdbg.toolkit.replaying.replay").TASK.partition(":")
    task = getattr(import_module(module), name)

    class Payload(dict[str, Any]):
        def __missing__(self, key: str) -> None:
            return None

    payload = Payload(
        path=str(graph.path.absolute()),
        rung="inductor",
        seed=0,
        device=None,
        check="auto",
        keep=None,
        imports=[],
        shared=None,
        meeting="",
        registered=[],
    )
    task(payload)
    walk = Walk(root)
    with walk.watching():
        answer = task(payload)
    return walk, answer


def case_to_repro(root: Path, work: Path, signature: Any) -> Walk:
    """The report of the graph as it was recorded: a repro chosen, verified, and told as an issue."""
    import graphdbg
    from graphdbg.minifier.report.bundle import emit_report

    walk = Walk(root)
    for name in ("first", "second"):
        saved = graphdbg.open_run(work / "run").graphs()[-1]
        with (
            contextlib.redirect_stderr(io.StringIO()),
            walk.watching() if name == "second" else contextlib.nullcontext(),
        ):
            report = emit_report(
                saved, work / name, signature=signature, rung="inductor", times=1, narrate=lambda _: None
            )
        assert report.repro is not None and report.shown, f"no repro: {report.notes}"
    return walk


def walks(root: Path, work: Path) -> Iterator[tuple[str, Walk]]:
    """All three, on a graph that Inductor computes wrongly."""
    import msgspec
    import torch._inductor.config as inductor

    from graphdbg.toolkit.verdicts.signature import Signature

    inductor.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
    yield from hook_to_disk(root, work)
    walk, answer = disk_to_verdict(root, work)
    yield "from the disk to a verdict", walk
    signature = answer["signature"]
    signature = signature if isinstance(signature, Signature) else msgspec.convert(signature, Signature)
    yield "from a failing case to a repro", case_to_repro(root, work, signature)


def main() -> int:
    """Prints a row for each walk."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--list", action="store_true", dest="listed")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    sys.path[:] = [
        str(root.parent),
        *(path for path in sys.path if Path(path or ".").resolve() != Path(__file__).parent),
    ]
    os.environ["PYTHONPATH"] = str(root.parent)
    with tempfile.TemporaryDirectory(prefix="walk-") as folder:
        print(f"{'':34}{'entered':>9}{'returns':>9}{'places':>8}   of the first figures")
        for name, walk in walks(root, Path(folder)):
            beside = ""
            if name in FIRST:
                entered, returns = FIRST[name]
                beside = (
                    f"   {len(walk.order) / entered:.2f} of {entered}, {walk.returns / max(1, returns):.2f} of "
                    f"{returns}"
                )
            print(f"{name:34}{len(walk.order):9}{walk.returns:9}{walk.steps:8}{beside}", flush=True)
            if arguments.listed:
                print("    " + " ".join(walk.order))
    return 0


if __name__ == "__main__":
    sys.exit(main())
