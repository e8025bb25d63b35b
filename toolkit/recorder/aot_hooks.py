"""AOT backends that are not Inductor: their compilers and partitioner are wrapped where AOTAutograd gets them.

Inductor's own calls come by here too and are let pass: inductor_hooks sees all of them.

>>> aot_autograd.aot_module_simplified = aot_module_simplified(aot_autograd.aot_module_simplified)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from . import roles
from .caches import bypassed
from .flight import Flight, flying, here
from .live_torch import aot_compiler_like, is_inductor_partition
from .observe import watch_callable
from .session import Session, active

_JOINT_KWARGS = ("num_fwd_outputs", "static_lifetime_input_indices")


def aot_module_simplified(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps aot_module_simplified(mod, args, fw_compiler, bw_compiler, partition_fn, ..., inference_compiler)."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        session = active()
        if session is None:
            return original(*args, **kwargs)
        with session.guarded("AOT compilers"):
            args, kwargs = _wrapped_arguments(session, signature, args, kwargs)
        return original(*args, **kwargs)

    return wrapper


def _wrapped_arguments(session: Session, signature: inspect.Signature, args: Any, kwargs: Any) -> tuple[Any, Any]:
    bound = signature.bind(*args, **kwargs)
    given = bound.arguments
    partition = given.get("partition_fn") or signature.parameters["partition_fn"].default
    if is_inductor_partition(partition):
        return args, kwargs
    forward = given["fw_compiler"]
    backward, inference = given.get("bw_compiler") or forward, given.get("inference_compiler") or forward
    given["fw_compiler"] = _compiler(session, forward, "forward")
    given["bw_compiler"] = _compiler(session, backward, "backward")
    given["inference_compiler"] = _compiler(session, inference, "inference")
    given["partition_fn"] = _partition(session, partition)
    return bound.args, bound.kwargs


def _compiler(session: Session, compiler: Any, stage: str) -> Any:
    function = getattr(compiler, "compiler_fn", compiler)

    @functools.wraps(function, updated=())
    def wrapper(gm: Any, *args: Any, **kwargs: Any) -> Any:
        if active() is not session:
            return function(gm, *args, **kwargs)
        with flying(session) as flight:
            graph = flight.capture(gm, stage, flight.main, roles=_roles(session, flight, gm, stage))
            here.aot.append(graph)
            try:
                with bypassed(session):
                    compiled = function(gm, *args, **kwargs)
            finally:
                here.aot.pop()
        if graph is None:
            return compiled
        with session.guarded(f"first run of {graph.id}"):
            return watch_callable(session, [graph], compiled)
        return compiled

    for name, value in getattr(function, "__dict__", {}).items():
        if name.startswith("_is_"):
            setattr(wrapper, name, value)
    return aot_compiler_like(compiler, wrapper)


def _partition(session: Session, partition: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(partition, updated=())
    def wrapper(gm: Any, joint_inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if active() is not session or (isinstance(joint_inputs, (list, tuple)) and not joint_inputs):
            return partition(gm, joint_inputs, *args, **kwargs)
        with flying(session) as flight:
            facts = {key: kwargs[key] for key in _JOINT_KWARGS if key in kwargs}
            flight.capture(gm, "joint", facts, roles=_roles(session, flight, gm, "joint"))
            return partition(gm, joint_inputs, *args, **kwargs)

    return wrapper


def _roles(session: Session, flight: Flight, gm: Any, stage: str) -> Any:
    with session.guarded("roles of the inputs"):
        return roles.of_aot(gm, flight.dynamo_roles or session.roles.get(flight.name, []), stage)
    return None
