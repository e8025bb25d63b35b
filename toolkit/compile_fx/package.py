"""Ahead of time to a `.pt2` package, which another process loads and runs with torch alone.

What `torch._inductor.aoti_compile_and_package` does, through this path's stages; it takes plain graphs, too. The
package appears whole or not at all, and nothing else is left behind. The caller's graph and module stay unchanged.

For example:

    path = compile_ahead_of_time(torch.export.export(model, (x,)), path="model.pt2")
    load_package(path)(x)
"""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from ...dumps.errors import BadValueError, CannotCompileError, NoSuchRunError
from ...dumps.wording import counted
from .. import torch_private as t
from ..live.eager import copy_graph
from ..rungs.cpp_library import refuse_its_own
from .entering import compile_fx
from .inner import compile_inner
from .pipeline import Pipeline, Unfinished


def compile_ahead_of_time(
    program: Any,
    args: Sequence[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    *,
    path: str | Path | None = None,
    config_patches: dict[str, Any] | None = None,
    pipeline: Pipeline | None = None,
) -> Path | Unfinished:
    """Compiles an ExportedProgram, or a GraphModule for tensors like `args`, and returns the package's path.

    An ExportedProgram has example inputs of its own, so `args` may be left out. A GraphModule's sizes become numbers
    unless its placeholders hold symbols. `path` ends in .pt2 (default: in Inductor's cache folder, named after the
    graph's code). Returns an Unfinished where the pipeline stops. Raises UsageError for what no library can take, and
    what the stages raise.
    """
    gm, args, kwargs = _graph_of(program, args, kwargs)
    target = _target(path, gm)
    inputs, specs = _flattened(gm, args, kwargs)
    pipeline = pipeline or Pipeline()
    t.unwrap_tensor_subclass_parameters(gm)
    with tempfile.TemporaryDirectory(prefix="graphdbg-aot-") as folder:
        asked = copy.copy(config_patches or {})
        serializer = asked.pop("extern_node_serializer", None)
        inner = functools.partial(compile_inner, pipeline=pipeline, extern_node_serializer=serializer)
        compiled = _library(gm, inputs, inner, pipeline, _settings(asked, specs, folder))
        if isinstance(compiled, Unfinished):
            return compiled
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.stem}-", dir=target.parent) as beside:
            part = Path(beside) / target.name  # torch names folders in the package after it
            t.package_aoti(str(part), compiled.filename)
            part.replace(target)
    return target


def load_package(path: str | Path, *, device_index: int = -1) -> Callable[..., Any]:
    """The callable of a package, which takes and returns what the program did; `device_index` is that of its GPU.

    Raises UsageError for a package that is not there, or that would crash while it is loaded (see cpp_library).
    """
    if not Path(path).is_file():
        raise NoSuchRunError(f"cannot load {path}", "there is no such file", "compile_ahead_of_time makes one")
    refuse_its_own(path)
    return t.load_package(str(path), device_index=device_index)


def _graph_of(
    program: Any, args: Sequence[Any] | None, kwargs: dict[str, Any] | None
) -> tuple[Any, Sequence[Any], dict[str, Any]]:
    """A graph that may be changed, and the example inputs."""
    if isinstance(program, torch.export.ExportedProgram):
        gm = program.module(check_guards=False)
        if args is None:
            if program.example_inputs is None:
                raise CannotCompileError(
                    "the program cannot be compiled", "it has no example inputs", "give them as args"
                )
            args, kwargs = program.example_inputs
        return gm, args, kwargs or {}
    if not isinstance(program, torch.fx.GraphModule):
        raise CannotCompileError(
            f"a {type(program).__name__} cannot be compiled ahead of time",
            "only an ExportedProgram or a GraphModule can",
            "torch.export.export(model, args) makes one",
        )
    if args is None:
        raise CannotCompileError(
            "the graph cannot be compiled ahead of time", "it has no example inputs", "give them as args"
        )
    values = (*program.parameters(), *program.buffers())
    if any(t.is_traceable_wrapper_subclass(value) for value in values):
        return copy.deepcopy(program), args, kwargs or {}  # its submodules will be changed
    return copy_graph(program), args, kwargs or {}


def _target(path: str | Path | None, gm: Any) -> Path:
    if path is None:
        return Path(t.cache_dir()) / "graphdbg-packages" / f"{t.code_hash(gm.code)}.pt2"
    if Path(path).suffix != ".pt2":
        raise BadValueError(
            f"cannot write a package to {path}", "torch loads only files whose name ends in .pt2", "add it"
        )
    return Path(path).absolute()


def _flattened(gm: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, str]]:
    """The graph without pytrees, its flat inputs, and how calls of the package nest them: settings for Inductor."""
    _drop_guards(gm)
    leaves, given = t.pytree.tree_flatten((tuple(args), kwargs))
    if isinstance(gm.graph._codegen, t.PyTreeCodeGen):
        nesting = gm.graph._codegen.pytree_info
        gm.graph._codegen = t.CodeGen()
        gm.recompile()
        wanted, out_spec = nesting.in_spec, nesting.out_spec
        if wanted is not None and wanted != given:
            raise CannotCompileError(
                "the program cannot be compiled", f"it was exported with {wanted}, and is given {given}"
            )
        inputs = [
            leaf if isinstance(leaf, torch.Tensor) else None for leaf in leaves
        ]  # export made constants of others
    else:
        _refuse_others(gm, (*args, *kwargs.values()))
        inputs, out_spec = leaves, _returning_flat(gm)
    return inputs, {
        "aot_inductor.serialized_in_spec": t.pytree.treespec_dumps(given),
        "aot_inductor.serialized_out_spec": t.pytree.treespec_dumps(out_spec) if out_spec is not None else "",
    }


def _refuse_others(gm: Any, values: Sequence[Any]) -> None:
    nodes = gm.graph.find_nodes(op="placeholder")
    if len(nodes) != len(values):
        raise CannotCompileError(
            "the graph cannot be compiled", f"it takes {counted(len(nodes), 'input')} and is given {len(values)}"
        )
    for node, value in zip(nodes, values, strict=True):
        if not isinstance(value, torch.Tensor):
            raise CannotCompileError(
                "the graph cannot be compiled ahead of time",
                f"a library takes tensors alone, and {node.name} is given a {type(value).__name__}",
                "make a program of the model with torch.export.export(model, args), which takes nested "
                "inputs and numbers",
            )


def _returning_flat(gm: Any) -> Any:
    """Makes a graph return a tuple of values, and returns how they were nested."""
    output = gm.graph.output_node()
    leaves, spec = t.pytree.tree_flatten(_plain(output.args[0]))
    output.args = (tuple(leaves),)
    gm.recompile()
    return spec


def _plain(value: Any) -> Any:
    """fx keeps lists and dictionaries of its own in a node's arguments; a package returns Python's."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return tuple(map(_plain, value)) if type(value) is tuple else value


def _drop_guards(gm: Any) -> None:
    """Export may put its checks of the inputs into the graph; they look at inputs that a library is not given."""
    if hasattr(gm, "_guards_fn"):
        for node in gm.graph.find_nodes(op="call_module", target="_guards_fn"):
            gm.graph.erase_node(node)
        del gm._guards_fn
        gm.recompile()


def _settings(asked: dict[str, Any], specs: dict[str, str], folder: str) -> dict[str, Any]:
    if asked.get("fx_wrapper", t.inductor_config.fx_wrapper):
        raise CannotCompileError("no package can be made", "fx_wrapper writes a graph and no library", "turn it off")
    if asked.get("aot_inductor.output_path", t.inductor_config.aot_inductor.output_path):
        raise CannotCompileError(
            "no package can be made", "aot_inductor.output_path asks for a library", "give path instead"
        )
    return t.maybe_aoti_standalone_config(
        {
            **asked,
            **specs,
            "cpp_wrapper": True,
            "enable_autograd_for_aot": False,
            "aot_inductor.package": True,
            "aot_inductor.output_path": str(Path(folder) / "model"),
        }
    )


def _library(gm: Any, inputs: list[Any], inner: Any, pipeline: Pipeline, settings: dict[str, Any]) -> Any:
    """Compiles in the context in which torch compiles ahead of time."""
    compile_id = t.CompileContext(gm.meta.get("dynamo_compile_id"))
    with (
        t.compiling_state_context(),
        t.V.set_aot_compilation(True),
        t.compile_context(compile_id),
        t.chromium_event_timed("compile_fx_aot", log_pt2_compile_event=True, reset_event_log_on_exit=True),
        t.get_metrics_context(),
    ):
        return compile_fx(gm, inputs, inner_compile=inner, config_patches=settings, pipeline=pipeline)
