"""Graphs that Inductor does not take as they are: no tuple returned, pytrees in the graph's code, nested inputs.

Each is turned into one that it takes, and the callable is wrapped to look like the original.

>>> compiled = returning_tuple(gm, inputs, compile_graph)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from . import _torch as t

CompileGraph = Callable[[Any, Sequence[Any]], Callable[..., Any]]


def wrapped(gm: Any, inputs: Sequence[Any], compile_graph: CompileGraph, compile_main: CompileGraph) -> Any:
    """Compiles with `compile_main`, behind the wrapper that the graph needs; `compile_graph` is this function again."""
    if not returns_tuple(gm):
        return _returning_tuple(gm, inputs, compile_graph)
    if isinstance(gm, t.fx.GraphModule) and isinstance(gm.graph._codegen, t.PyTreeCodeGen):
        return _of_export(gm, inputs, compile_graph)
    if any(isinstance(value, (list, tuple, dict)) for value in inputs):
        return t.flatten_graph_inputs(gm, inputs, compile_graph)
    return compile_main(gm, inputs)


def returns_tuple(gm: Any) -> bool:
    """Whether a graph returns a tuple, or one node that is several tensors. What is no GraphModule is believed to."""
    if not isinstance(gm, t.fx.GraphModule):
        return True
    made = t.output_node(gm).args[0]
    if isinstance(made, (tuple, list)):
        return True
    schema = getattr(getattr(made, "target", None), "_schema", None)
    return schema is not None and len(schema.returns) > 1 and all(str(one.type) == "Tensor" for one in schema.returns)


def _returning_tuple(gm: Any, inputs: Sequence[Any], compile_graph: CompileGraph) -> Callable[..., Any]:
    output = t.output_node(gm)
    leaves, spec = t.pytree.tree_flatten(output.args[0])
    with gm.graph.inserting_before(output):
        gm.graph.output(leaves)
    gm.graph.erase_node(output)
    compiled = compile_graph(gm, inputs)

    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        return t.pytree.tree_unflatten(compiled(*args, **kwargs), spec)

    return call


def _of_export(gm: Any, inputs: Sequence[Any], compile_graph: CompileGraph) -> Callable[..., Any]:
    """`torch._dynamo.export` keeps the nesting of inputs and outputs in the object that writes the graph's code."""
    codegen = gm.graph._codegen
    gm.graph._codegen = t.CodeGen()
    gm.recompile()
    compiled = compile_graph(gm, codegen.process_inputs(*inputs))

    @functools.wraps(compiled)
    def call(*args: Any) -> Any:
        return codegen.process_outputs(compiled(*codegen.process_inputs(*args)))

    return call
