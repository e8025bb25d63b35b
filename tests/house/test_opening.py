"""Files of what was recorded are opened by one function: whoever opens others is named here, with what they are."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from .source_tree import ROOMS, Module, modules

HOME = "dumps.opening"

_CODE = "files of generated code, which open themselves"

OTHERS: dict[str, str] = {
    "dumps.browse.kernels": _CODE,
    "minifier.commands.show": _CODE,
    "minifier.in_pytest.failing": "what the commands that it runs say",
    "dumps.commands.display": "the look of the package itself",
    "dumps.pack.making": _CODE,
    "toolkit.compile_fx.showing.asking": _CODE,
    "toolkit.compile_fx.showing.child": _CODE,
    "toolkit.compile_fx.showing.showing": "what the child wrote into a temporary folder",
    "toolkit.replaying.fidelity": _CODE,
    "toolkit.triage.symptoms": _CODE,
    "dumps.atomic": "writes, and syncs what it wrote",
    "dumps.browse.about": "a file of the user's on this machine, after a look at what it is",
    "dumps.trust": "short files, of a kind and an owner that are looked at",
    "dumps.held": "writes what a process holds",
    "dumps.written": "the cache folder; the cache folder, and programs, which are only hashed",
    "dumps.lines": "writes lines",
    "dumps.output": "the null device",
    "dumps.archive": "writes an archive, from a folder that it made",
    "dumps.wording": "what this process wrote beside what it unpacked",
    "dumps.pack.page": "generated code; the style and script of the package",
    "dumps.process": "/proc",
    "dumps.writer": "what this process writes",
    "dumps.store": "a text that `kernels.split` cut out",
    "dumps.temporary": "the locks of its own folders",
    "minifier.executors.elsewhere": "files that this process made, and those that it was sent",
    "minifier.program.cutting": "the program that it is cutting, which was just written",
    "minifier.log": "the lock of a folder",
    "minifier.report.bundle": "writes an archive; what it has just written",
    "minifier.report.environment": "torch's files, /proc",
    "minifier.report.verify": "what a program of ours wrote into a temporary folder",
    "toolkit.blame.node_tasks": "code that Inductor wrote in this process",
    "toolkit.capture.import_child": "the file to import, which is trusted",
    "toolkit.capture.edited": "the file to import, which is trusted",
    "toolkit.capture.importing": "the file to import; what the child wrote into a temporary folder",
    "toolkit.rungs.cpp_library": "what a compiler wrote just now",
    "toolkit.compile_fx.errors.compilers": "code that Inductor wrote in this process",
    "toolkit.compile_fx.showing.tables": "what the child wrote into a temporary folder",
    "toolkit.compilers.lazy": "writes",
    "toolkit.compilers.showing": "writes",
    "toolkit.drawing.picture": "what Graphviz wrote just now",
    "toolkit.isolation.imports": "a module of the user's, which is imported next",
    "toolkit.isolation.cache": "the cache folder, /proc",
    "toolkit.isolation.child": "the streams and files of a child's own folder; "
    "a terminal that its parent has just made",
    "toolkit.isolation.cleaning": "the cache folder",
    "toolkit.isolation.client": "the folder of its server",
    "toolkit.isolation.fresh": "what a program of ours printed, in a temporary folder",
    "toolkit.isolation.processes": "/proc",
    "toolkit.isolation.wall": "/proc, and folders and devices by path alone",
    "toolkit.isolation.warming": "the cache folder",
    "toolkit.program.aside": "the trace that it is writing",
    "toolkit.program.judging": "the modules of the user's program, that were loaded in it",
    "toolkit.program.concluding": "the program that this command's own program wrote",
    "toolkit.program.source": "the user's own sources, of a program that runs",
    "toolkit.program.records": "what the program's process wrote into the folder that was made for it",
    "toolkit.cutting.parts": "what this child's own kind wrote into a temporary folder",
    "toolkit.recorder.armed.rings": "the ring that it is writing",
    "toolkit.recorder.budget": "the run that it is writing",
    "toolkit.isolation.launch": "the program to record",
    "toolkit.recorder.summary": "what the recorded processes wrote into a temporary folder",
    "toolkit.recorder.watching": "/proc",
    "toolkit.cutting.spill": "what this child's own kind wrote into a temporary folder",
    "toolkit.live.values": "what this child's own kind wrote into a temporary folder",
    "tui.outside": "writes",
    "tui.job_files": "the folders of jobs, below the user's state folder",
    "tui.jobs": "the folders of jobs, below the user's state folder",
    "tui.screens.graph.beside": "a file of the user's on this machine, after a look at what it is",
    "tui.screens.tour": "the recorded tour of the package",
    "tui.settings": "the user's settings",
}
"""Module -> which other files it opens."""

_READS = frozenset({"read_bytes", "read_text"})
_OF_MODULES = frozenset({("os", "open"), ("zipfile", "ZipFile"), ("gzip", "open"), ("io", "open")})
_OPENED = frozenset({"file", "packed"})
"""What archives are read from that were opened already."""


def opening(module: Module) -> Iterator[int]:
    """Lines where a module opens a file itself: `x.open("rb")`, `x.read_bytes()`, `open`, `os.open`,
    `ZipFile(path)`, or has `text_if_there` open one that is no dump's."""
    for node in module.nodes:
        if not isinstance(node, ast.Call):
            continue
        called, first = node.func, node.args[0] if node.args else None
        if isinstance(called, ast.Name) and called.id in ("open", "text_if_there"):
            yield node.lineno
        if not isinstance(called, ast.Attribute):
            continue
        owner = called.value.id if isinstance(called.value, ast.Name) else ""
        of_module = (owner, called.attr) in _OF_MODULES and not (isinstance(first, ast.Name) and first.id in _OPENED)
        reads = called.attr in _READS and owner != "opening" and first is None
        with_mode = called.attr == "open" and isinstance(first, ast.Constant) and not str(first.value).strip("rwxab+t")
        if of_module or reads or with_mode:
            yield node.lineno


@pytest.mark.parametrize("room", ROOMS)
def test_nobody_else_opens_files_of_a_run(room: str) -> None:
    unknown = {module.name: [*opening(module)] for module in modules(room) if module.name not in {HOME, *OTHERS}}
    assert {name: lines for name, lines in unknown.items() if lines} == {}, (
        "use dumps.opening, or say in OTHERS what is opened"
    )


def test_the_list_names_nobody_who_opens_nothing() -> None:
    names = {module.name for room in ROOMS for module in modules(room) if any(opening(module))}
    assert sorted(OTHERS.keys() - names) == []
