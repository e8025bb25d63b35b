"""Defects that a compile can import (`planted_raise`, ...): in the lowering of tanh, in its code, among the joint
patterns."""

# pyright: basic
from __future__ import annotations

import os
import time

import torch
from torch._inductor import lowering


def plant(how: str) -> None:
    """Changes torch's tables in this process."""
    {"code": _code, "joint_pattern": _pattern}.get(how, lambda: _lowering(how))()


def _lowering(how: str) -> None:
    def tanh(x):
        if how == "segfault":
            os.kill(os.getpid(), 11)
        if how == "hang":
            time.sleep(600)
        raise RuntimeError("planted in the lowering")

    lowering.lowerings[torch.ops.aten.tanh.default] = tanh


def _code() -> None:
    from torch._inductor.codegen import cpp

    for overrides in (cpp.CppOverrides, cpp.CppVecOverrides):
        overrides.tanh = staticmethod(lambda x: f"{x}.no_such_function()")


def _pattern() -> None:
    from torch._inductor.fx_passes import joint_graph
    from torch._inductor.pattern_matcher import Arg, CallFunction, register_graph_pattern

    def planted(match, x):
        (result,) = match.nodes
        with match.graph.inserting_before(result):
            outcome = match.graph.call_function(torch.ops.aten.sin.default, (x,))
        outcome.meta.update(result.meta)
        result.replace_all_uses_with(outcome)
        match.erase_nodes()

    register_graph_pattern(CallFunction(torch.ops.aten.tanh.default, Arg()), pass_dict=joint_graph.pass_patterns[0])(
        planted
    )
