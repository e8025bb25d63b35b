# pyright: basic
"""The child process that opens a file whose code may run: python -m ...import_child FILE CASE TOLD LIKE MODULE...

The modules are imported first, for the operators that they register. LIKE: the folder of the graph that FILE is an
edited graph.py of (see `edited`); empty for another tool's file.

A script runs as `__main__` up to the call of torch's `run_repro`. Our function in its place receives the module, the
inputs' reader and the settings; nothing is compiled. The graph keeps the nodes as they are written (symbolic trace);
sizes that were symbols are traced again with symbols. Writes one JSON object to TOLD, or `{"why": ...}` and exits with
2.
"""

from __future__ import annotations

import json
import re
import runpy
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from ...dumps.errors import UsageError
from ...dumps.live import save_graph
from ...dumps.store import resolve_graph
from ...dumps.torchside.case import parts
from ...dumps.torchside.encode import CARRY
from ...dumps.wording import raised_line
from .. import torch_private as t
from ..isolation.imports import import_modules
from ..live.torch_state import ambient, encoded_settings
from .traces.run import stage_of
from .traces.text import OF_REPROS


class NothingToImportError(Exception):
    """The file holds no graph that can be taken; the text is for the user."""


class ScriptStopped(BaseException):
    """Raised in a script to stop it once its program is known. Not an Exception: scripts catch those."""

    def __init__(
        self, kind: str, module: Any, inputs: list[Any], stage: str, notes: list[str], roles: Sequence[Any] = ()
    ) -> None:
        super().__init__(kind)
        self.kind, self.module, self.inputs, self.stage, self.notes = kind, module, inputs, stage, notes
        self.roles = roles


def main(source: Path, out: Path, answer: Path, like: str, modules: Sequence[str] = ()) -> int:
    """Opens the file and writes the case."""
    try:
        import_modules(modules)
        if like:
            _edited(source, out, answer, like)
            return 0
        program = of_script(source) if source.suffix == ".py" else of_package(source)
    except (NothingToImportError, UsageError) as error:
        why = f"{error.what}: {error.why}" if isinstance(error, UsageError) else str(error)
        answer.write_text(json.dumps({"why": why}))
        return 2
    config = {
        room: {name: value for name, value in values.items() if name not in OF_REPROS.get(room, ())}
        for room, values in encoded_settings().items()
    }
    program.module.meta[CARRY] = {"config": config, "inputs": program.roles}
    save_graph(program.module, program.inputs, out, stage=program.stage, ambient=ambient())
    _tell(answer, program.kind, program.stage, program.module, len(program.inputs), program.notes)
    return 0


def _edited(source: Path, out: Path, answer: Path, like: str) -> None:
    from .edited import edited, save_edited

    saved = resolve_graph(like)
    module = edited(source, saved)
    _tell(answer, "edited graph", saved.stage, module, save_edited(module, saved, out), [])


def _tell(answer: Path, kind: str, stage: str, module: fx.GraphModule, inputs: int, notes: list[str]) -> None:
    nodes = len(module.graph.nodes)
    answer.write_text(json.dumps({"kind": kind, "stage": stage, "nodes": nodes, "inputs": inputs, "notes": notes}))


def of_script(source: Path) -> ScriptStopped:
    """The program that a repro script would run."""
    try:
        compile(source.read_bytes(), str(source), "exec")
    except (SyntaxError, ValueError) as error:
        raise NothingToImportError(_no_python(source, error)) from error
    after_aot, after_dynamo, ahead = t.repro_after_aot, t.repro_after_dynamo, t.repro_aoti
    after_aot.run_repro = _taking("fx_graph_runnable", _of_aot)
    after_dynamo.run_repro = _taking("repro after Dynamo", lambda mod, inputs, said: (fx.symbolic_trace(mod), "dynamo"))
    ahead.run_repro = _of_ahead
    sys.argv = [str(source)]
    sys.path.insert(0, str(source.parent))
    try:
        runpy.run_path(str(source), run_name="__main__")
    except ScriptStopped as stopped:
        return stopped
    except AttributeError as error:
        if (namespace := re.search(r"'_OpNamespace' '(\w+)' object has no attribute '(\w+)'", str(error))) is None:
            raise
        raise NothingToImportError(
            f"the operator {namespace[1]}::{namespace[2]} is registered by no module that the script imports; "
            "name the module that does with --import MODULE"
        ) from error
    raise NothingToImportError(
        "it ran to its end and never called torch's run_repro, so torch's tools did not write it; "
        f"record what it compiles instead: graphdbg dump {source.name}"
    )


def _taking(kind: str, make: Callable[..., tuple[Any, str]]) -> Callable[..., None]:
    def run_repro(mod: Any, load_args: Any, **said: Any) -> None:
        inputs, notes = _inputs(load_args, said.get("save_dir"))
        module, stage = make(mod, inputs, said)
        if any(isinstance(value, int) for value in inputs) or said.get("tracing_mode") == "symbolic":
            notes.append("the script does not say which dimensions were symbols: all are that can be")
        raise ScriptStopped(kind, module, inputs, stage, notes)

    return run_repro


def _inputs(load_args: Any, save_dir: str | None) -> tuple[list[Any], list[str]]:
    """Returns (inputs, notes): the script's own values where they lie beside it, else the random numbers of its
    reader."""
    torch.manual_seed(0)
    reader = t.InputReader(save_dir=save_dir)
    load_args(reader)
    kept = save_dir is not None and Path(save_dir).is_dir()
    return list(reader.args), [] if kept else ["the script keeps no values: its inputs are random numbers"]


def _of_aot(mod: Any, inputs: list[Any], said: dict[str, Any]) -> tuple[fx.GraphModule, str]:
    code = type(mod).forward.__code__
    names = code.co_varnames[1 : code.co_argcount]
    symbolic = said.get("tracing_mode") == "symbolic" or any(isinstance(value, int) for value in inputs)
    module = t.make_fx(mod, tracing_mode="symbolic")(*inputs) if symbolic else _traced(mod, inputs)
    return module, stage_of(names)


def _of_ahead(exported_program: Any, **said: Any) -> None:
    stopped = of_program(exported_program)
    stopped.kind = "repro of AOTInductor"
    for name, value in (said.get("config_patches") or {}).items():
        if not _set_inductor(name, value):
            stopped.notes.append(f"this torch has no setting inductor.{name}")
    raise stopped


def of_program(program: Any) -> ScriptStopped:
    """An exported program: its parameters, buffers and constants are the first inputs, as its signature says."""
    module, values, roles = parts(program)
    return ScriptStopped("exported program", module, values, "inference", [], roles)


def of_package(source: Path) -> ScriptStopped:
    """A .pt2: an exported program, or a package of AOTInductor that may hold one beside its compiled code."""
    try:
        names = zipfile.ZipFile(source).namelist()
    except (zipfile.BadZipFile, OSError) as error:
        raise NothingToImportError(f"it is not a .pt2 file, or is cut off ({error})") from error
    compiled = any("/aotinductor/" in name for name in names)
    if compiled and not any(re.search(r"/models/[^/]+\.json$", name) for name in names):
        raise NothingToImportError(
            "it is a package of AOTInductor, which holds compiled code and weights but no graph; "
            "import the .pt2 that torch.export.save wrote for it"
        )
    try:
        return of_program(torch.export.load(source))
    except UsageError:
        raise
    except Exception as error:
        raise NothingToImportError(f"torch.export.load cannot read it: {raised_line(error, 1000)}") from error


def _no_python(source: Path, error: Exception) -> str:
    text = source.read_bytes()
    why = f"line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else str(error)
    if b"run_repro" in text and b"<lambda>" in text:
        return (
            f"{why} is not Python: torch's tools cannot write a graph that holds other graphs (cond, "
            "while_loop, scan) and leave "
            "'<lambda>()' in their place; record the program itself instead: graphdbg dump SCRIPT"
        )
    return f"it is not Python ({why})"


def _traced(mod: Any, inputs: list[Any]) -> fx.GraphModule:
    """The symbolic trace of the module: the nodes as they are written, each with a fake value."""
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    module = fx.symbolic_trace(mod)
    mode = t.FakeTensorMode(allow_non_fake_inputs=True)
    with torch.no_grad():
        FakeTensorProp(module, mode).propagate(*inputs)
    return module


def _set_inductor(name: str, value: Any) -> bool:
    """Changes a setting of Inductor for good; False where this torch has none of that name."""
    try:
        t.inductor_config.patch({name: value}).__enter__()
    except (KeyError, AttributeError):
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:4]), like=sys.argv[4], modules=sys.argv[5:]))
