"""The examples of all product modules run and print what they say.

An example sees the names of its module and, for those that it uses and its module lacks, the names of `Shared`: a small
recorded run (`myrun` in the current folder), what is read from it, and torch. What cannot run in a test (a GPU, a
server, minutes) is no `>>>` but an indented text.

The values are those of the pinned torch, so other versions skip the examples.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.metadata
import io
import itertools
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from .source_tree import ROOMS, ROOT, Module, front, modules

SCRIPT = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(8, 16)
        self.down = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.down(torch.nn.functional.gelu(self.up(x)))

torch.manual_seed(0)
compiled = torch.compile(Model())
for rows in (2, 3):
    compiled(torch.randn(rows, 8)).sum().backward()
"""
HOMES = {
    "Case": "toolkit.live.case",
    "ForkServer": "toolkit.isolation",
    "GraphView": "dumps.browse.table",
    "Here": "tui.here",
    "How": "toolkit.replaying.replay",
    "Live": "toolkit.live.case",
    "Pipeline": "toolkit.compile_fx.pipeline",
    "Signature": "toolkit.verdicts.signature",
    "ask": "toolkit.isolation",
    "compile_fx": "toolkit.compile_fx.entering",
    "finish": "dumps.browse.table",
    "load_graph": "dumps.store",
    "open_run": "dumps.store",
    "diff": "dumps.diff.pair",
    "judge": "toolkit.judging.judge",
    "processes": "dumps.index",
    "text": "dumps.browse.sheet",
}
"""What examples of several modules use, by its module."""
NEEDS = {"toolkit.triton": "triton", "tui": "textual"}
"""The packages that the modules of a room import at their top; where one is not installed, its examples are skipped."""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
PINNED = re.search(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)

pytestmark = pytest.mark.skipif(
    PINNED is None or importlib.metadata.version("torch").partition("+")[0] != PINNED[1],
    reason="the examples show values of the torch of constraints.txt",
)


class Shared:
    """What examples may use without an import; each is prepared when an example first names it."""

    Path, partial, json, os, sys, time, itertools = Path, partial, json, os, sys, time, itertools

    @cached_property
    def graphdbg(self) -> Any:
        return importlib.import_module("graphdbg")

    @cached_property
    def torch(self) -> Any:
        return importlib.import_module("torch")

    @cached_property
    def aot_function(self) -> Any:
        return importlib.import_module("functorch.compile").aot_function

    @cached_property
    def run(self) -> Any:
        return self.graphdbg.open_run("myrun")

    @cached_property
    def saved(self) -> Any:
        """The first forward graph: addmm, gelu, addmm."""
        return self.run.graph("0_0/forward")

    @cached_property
    def record(self) -> Any:
        return self.saved.record

    @cached_property
    def gm(self) -> Any:
        return self.saved.module()

    @cached_property
    def inputs(self) -> Any:
        return self.saved.inputs()

    @cached_property
    def case(self) -> Any:
        """The live face of `saved`."""
        return self.Case(self.saved).live()

    @cached_property
    def view(self) -> Any:
        return self.GraphView(self.saved.table)

    @cached_property
    def model(self) -> Any:
        self.torch.manual_seed(0)
        return self.torch.nn.Linear(4, 2)

    @cached_property
    def x(self) -> Any:
        self.torch.manual_seed(0)
        return self.torch.randn(3, 4)

    @cached_property
    def server(self) -> Any:
        return self.ForkServer()

    def __getattr__(self, name: str) -> Any:
        """What `HOMES` names."""
        if name not in HOMES:
            raise AttributeError(name)
        return getattr(importlib.import_module(f"graphdbg.{HOMES[name]}"), name)


SHARED = {name for name in vars(Shared) if not name.startswith("__")} | {*HOMES}


def room_of(module: Module) -> str:
    """`dumps`, `dumps.browse`, ...: at most two parts of a module's name."""
    parts = module.package[:2]
    return ".".join(parts) or "."


GROUPS = sorted({room_of(module) for module in [*front(), *modules(*ROOMS)]})


@pytest.fixture(scope="module")
def recorded(recorded_script: Callable[..., Path]) -> Path:
    return recorded_script(SCRIPT, inputs="first")


@pytest.fixture
def shared(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shared]:
    """In a folder of its own, with a copy of the run."""
    shutil.copytree(recorded, tmp_path / "myrun")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # what children of the shared server may write is here
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    shared = Shared()
    with patch.dict(os.environ):
        yield shared
    if "server" in vars(shared):
        shared.server.close()


@cache
def finder() -> doctest.DocTestFinder:
    return doctest.DocTestFinder()


def examples(module: Any, shared: Shared) -> Iterator[doctest.DocTest]:
    """The doctests of a module, each with the names that it uses."""
    for test in finder().find(module, module.__name__):
        words = set(re.findall(r"\w+", " ".join(example.source for example in test.examples)))
        test.globs = {name: getattr(shared, name) for name in words & SHARED} | test.globs
        if test.examples:
            yield test


@pytest.mark.parametrize("group", GROUPS)
def test_examples(group: str, shared: Shared) -> None:
    for room, package in NEEDS.items():
        if group == room or group.startswith(f"{room}."):
            pytest.importorskip(package)
    failed = io.StringIO()
    for member in [module for module in [*front(), *modules(*ROOMS)] if room_of(module) == group]:
        if member.name in ("__main__", "toolkit.triton.trusted"):  # importing the one runs it, the other is --trust
            continue
        module = importlib.import_module(f"graphdbg.{member.name}".rstrip("."))
        for test in examples(module, shared):
            with contextlib.redirect_stderr(io.StringIO()):
                doctest.DocTestRunner(verbose=False, optionflags=FLAGS).run(test, out=failed.write)
    assert not failed.getvalue(), failed.getvalue()


def test_no_example_is_skipped() -> None:
    skipped = [module.name for module in [*front(), *modules(*ROOMS)] if "doctest: +SKIP" in module.path.read_text()]
    assert skipped == []
