"""An error that eager raises and compiled code does not: what is known of it, and when nothing is meant by it.

Only says what eager's error would be if it were missing; whether a rung raises is seen by running it (`judge`). Must not
compile or run anything.

>>> missing(GraphRunError("conv2d", NotImplementedError("... not implemented for 'Bool'")), gm, ReplaySpec("dynamo")).text()
"missing error: NotImplementedError (torch.conv2d): eager raises at node conv2d: ... not implemented for 'Bool'"
"""

from __future__ import annotations

from torch import fx

from ..dumps.torchside.targets import name_of
from . import normalise
from .eager import GraphRunError
from .isolation.child import is_memory_error
from .signature import Signature, from_exception
from .spec import ReplaySpec

_COMPILERS_OWN = ("prims.inductor", "inductor.", "inductor_prims.", "mkldnn.", "mkl.", "onednn.", "triton")
"""Operators that a compiler put there: that eager cannot run one of them says nothing about the program."""


def is_same(wanted: Signature, error: BaseException) -> bool:
    """Whether a rung's exception is eager's."""
    seen = from_exception(error.__cause__ if isinstance(error, GraphRunError) and error.__cause__ else error, "run")
    return seen.error == wanted.error and (seen.message == wanted.message or not wanted.message)


def missing(error: BaseException, gm: fx.GraphModule, spec: ReplaySpec) -> Signature | None:
    """What a rung that does not raise would have failed at; None where eager's error is no promise to raise one: it ran out of
    memory, it is at an operator of the compiler's, or the graph is what Inductor's own passes left.
    """
    cause = error.__cause__
    if not isinstance(error, GraphRunError) or cause is None or is_memory_error(cause):
        return None
    if spec.stage.startswith("post_grad"):
        return None
    node = next((node for node in gm.graph.nodes if node.name == error.node), None)
    if node is None or node.op not in ("call_function", "call_method"):
        return None
    target = node.target if isinstance(node.target, str) else name_of(node.target)
    if target.startswith(_COMPILERS_OWN) or "triton_kernel_wrapper" in target:
        return None
    name = f"{type(cause).__module__}.{type(cause).__qualname__}".removeprefix("builtins.")
    text = " ".join(str(cause).split())
    return Signature(
        "missing_error", "compare", name, normalise.message(str(cause)), detail=target,
        raw=f"eager raises at node {error.node}: {text}"[:1000],
    )  # fmt: skip
