"""The private names of torch that the debug compilers need, each with the public alternative that is missing.

Read on torch 2.13.0, run on 2.11.0 to 2.15.0. Importing this module imports torch, not Inductor.

>>> fake_mode_of(fx_g).shape_env
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch._higher_order_ops.auto_functionalize  # registers what stands for operators that change arguments (2.13.0)
import torch._prims.rng_prims  # registers the operators of random state; no public module does (2.13.0)
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # no public fake tensors (2.13.0)
from torch.utils._python_dispatch import (
    TorchDispatchMode,  # documented, but in no public module (2.13.0)
    _disable_current_modes,  # TorchScript folds constants outside of modes (2.13.0)
)

from ...dumps.errors import EnvironmentLackError


def aot_backend(arguments: Mapping[str, Any], gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compiles a Dynamo graph through AOTAutograd. `torch._dynamo.backends.common.aot_autograd` is what the documentation of
    custom backends names; `functorch.compile.aot_module_simplified` does not keep Dynamo from tracing the result. (2.13.0)"""
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(**arguments)(gm, list(example_inputs))


def is_fake(value: object) -> bool:
    """Whether a value is a fake tensor."""
    return isinstance(value, FakeTensor)


def fake_mode_of(fx_g: fx.GraphModule, inps: Sequence[Any] = ()) -> FakeTensorMode | None:
    """The mode of the fake values that a graph was traced with; None when it has none.

    A graph from AOTAutograd has no `shape_env` of its own: it is that of the values of its placeholders. Nothing public tells it
    (2.13.0).
    """
    values = [node.meta.get("val", node.meta.get("example_value")) for node in fx_g.graph.nodes if node.op == "placeholder"]
    for value in (*values, *inps):
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return None


def shape_env_of(fx_g: fx.GraphModule, inps: Sequence[Any] = ()) -> Any:
    """The ShapeEnv of a graph's symbols; None for a graph without any. A graph may have symbols and no tensor inputs (2.13.0)."""
    mode = fake_mode_of(fx_g, inps)
    if mode is not None and mode.shape_env is not None:
        return mode.shape_env
    for node in fx_g.graph.nodes:
        value = node.meta.get("val", node.meta.get("example_value"))
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return value.node.shape_env
    return getattr(fx_g, "shape_env", None)


def compile_id() -> str | None:
    """torch's id of the compile in progress on this thread, with its attempt ("0/0_1"); None outside one. Not public (2.13.0)."""
    from torch._guards import CompileContext

    found = CompileContext.current_trace_id()
    return None if found is None else str(found)


def aot_graph_name() -> tuple[int, str] | None:
    """(number, "forward" | "backward" | "inference" | "joint") of the graph that AOTAutograd compiles now; None outside of it.

    `functorch.compile.get_aot_graph_name` is public and gives the same as one text ("model__0_forward_3").
    """
    from functorch.compile import get_aot_graph_name  # pyright: ignore[reportPrivateImportUsage]

    parts = get_aot_graph_name().rsplit("__", 1)[-1].split("_")
    if len(parts) == 3 and parts[0].isdigit():
        return int(parts[0]), parts[1]
    return None


def aot_function(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """`functorch.compile.aot_function`, which is public but typed as re-exported from a private module (2.13.0)."""
    from torch._functorch.aot_autograd import aot_function as original

    return original(function, *args, **kwargs)


def get_decompositions(operators: Sequence[Any]) -> dict[Any, Callable[..., Any]]:
    """Torch's decompositions of some operators; `torch.export.default_decompositions` is public but a fixed table (2.13.0)."""
    from torch._decomp import get_decompositions as original

    return dict(original(list(operators)))


def default_partition(joint: fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """`functorch.compile.default_partition`, which is public but typed as re-exported from a private module (2.13.0)."""
    from torch._functorch.partitioners import default_partition as original

    return original(joint, joint_inputs, **kwargs)


def min_cut_partition(joint: fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """`functorch.compile.min_cut_rematerialization_partition`, the same (2.13.0)."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition as original

    return original(joint, joint_inputs, **kwargs)


def storage_size(value: torch.Tensor) -> tuple[int, int]:
    """(identity, bytes) of a tensor's storage; a fake tensor has no data_ptr (2.13.0).

    A symbolic number counts as what it was when it was traced, one that only the data will tell as 0.
    """
    storage = value.untyped_storage()
    size: Any = storage.nbytes()
    if isinstance(size, torch.SymInt):
        size = size.node.hint if size.node.has_hint() else 0
    return storage._cdata, int(size)


OpOverload = torch._ops.OpOverload  # the type of torch.ops.aten.sin.default; torch.ops gives instances only (2.13.0)


def op_name(node: fx.Node) -> str:
    """An operator as its namespace writes it (aten.sin.default); of anything else the qualified name (2.13.0)."""
    if node.op != "call_function":
        return str(node.target)
    if isinstance(node.target, (OpOverload, torch._ops.OpOverloadPacket)):
        return str(node.target)
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return f"higher_order.{node.target.name()}"
    return f"{getattr(node.target, '__module__', '')}.{getattr(node.target, '__qualname__', node.target)}".lstrip("._")


def is_higher_order(target: object) -> bool:
    """Whether a target is a higher-order operator; their type is not public (2.13.0)."""
    return isinstance(target, torch._ops.HigherOrderOperator)


run_and_save_rng_state, run_with_rng_state = (
    getattr(torch._prims.rng_prims, name, None) for name in ("run_and_save_rng_state", "run_with_rng_state")
)
"""What checkpointing leaves of `preserve_rng_state`; private operators (2.13.0)."""


auto_functionalized = getattr(torch._higher_order_ops.auto_functionalize, "auto_functionalized_v2", None)
"""What AOTAutograd makes of operators that change their arguments; a private operator (2.13.0)."""


def arguments_of(op: Any) -> list[tuple[str, bool]]:
    """(name, whether it is written to) of each argument of an operator; schemas are not public (2.13.0)."""
    return [(one.name, one.alias_info is not None and one.alias_info.is_write) for one in op._schema.arguments]


def number_of_returns(op: Any) -> int:
    """How many values an operator returns (2.13.0)."""
    return len(op._schema.returns)


def is_rng_wrapper(target: object) -> bool:
    """Whether a target is one of those two."""
    return target is not None and target in (run_and_save_rng_state, run_with_rng_state)


@contextlib.contextmanager
def torchscript_alone() -> Iterator[None]:
    """TorchScript's own autocast off, and as it was afterwards; no modes, or the constants that it folds would be fake tensors;
    no warnings that it is deprecated, since it is used on purpose. None of the switches is public (2.13.0)."""
    before = torch._C._jit_set_autocast_mode(False)
    try:
        with warnings.catch_warnings(), _disable_current_modes():
            for kind in (DeprecationWarning, FutureWarning):
                warnings.filterwarnings("ignore", message=".*torch.jit.*", category=kind)
            yield
    finally:
        torch._C._jit_set_autocast_mode(before)


def remove_mutation(scripted: torch.jit.ScriptModule) -> None:
    """TorchScript's pass that turns in-place operators on its own values into functional ones. Not public (2.13.0)."""
    torch._C._jit_pass_remove_mutation(scripted.graph)


outside_modes = _disable_current_modes
"""Real tensors in the midst of a compile, whose fake mode would swallow them. Not public (2.13.0)."""


DispatchMode = TorchDispatchMode
"""The base of modes that see each operator; its documentation is public, its module is not (2.13.0)."""

_c: Any = torch._C
_functional: Any = torch


def start_lazy() -> torch.device:
    """The lazy TorchScript backend, begun once in a process, and its device. No public name begins it (2.13.0).

    torch writes one warning to stderr meanwhile. Where the program has begun it already, a second start fails, and that is told
    by the text of the error alone. Raises EnvironmentLackError for a torch that was built without it.
    """
    if not hasattr(_c, "_lazy_ts_backend"):
        raise EnvironmentLackError("this torch has no lazy tensors", "it was built without the lazy TorchScript backend")
    if not _lazy_started:
        try:
            _c._lazy_ts_backend._init()
        except RuntimeError as error:
            if "multiple backend fallbacks" not in str(error):
                raise
        _lazy_started.append(True)
    return torch.device("lazy", 0)


_lazy_started: list[bool] = []


def lazy_fallbacks() -> dict[str, int]:
    """Operator -> how often it had no lazy kernel, in this process; counters named aten::... are those (2.13.0)."""
    lazy = _c._lazy
    return {name: lazy._counter_value(name) for name in lazy._counter_names() if name.startswith("aten::")}


def lazy_id(tensor: torch.Tensor) -> int:
    """The number that the lazy backend gives a tensor; the device data of a graph has those of its tensors (2.13.0)."""
    return _c._lazy._get_tensor_id(tensor)


def wrapped_lazy(tensor: torch.Tensor) -> torch.Tensor:
    """A lazy tensor that views can be taken of: a wrapper makes those functional, and what factories give under a mode has none.
    Nothing public wraps one (2.13.0)."""
    return tensor if _functional._is_functional_tensor(tensor) else _functional._to_functional_tensor(tensor)


def extract_lazy(tensors: Sequence[torch.Tensor]) -> tuple[bytes, str, list[int], list[Any]]:
    """Compiles what lazy tensors stand for: (hash, IR text, tensor ids of the device data, their values). (2.13.0)

    What was written through views is applied first: the functions of torch look at the tensors as they are.
    """
    given = list(tensors)
    for tensor in given:
        if _functional._is_functional_tensor(tensor):
            _functional._sync(tensor)
    ids, values = _c._lazy_ts_backend._get_tensors_ts_device_data_node(given)
    found = _c._lazy._get_graph_hash(given), _c._lazy._get_tensors_text(given)
    _c._lazy._sync_multi(given, [])
    return *found, list(ids), list(values)


def run_lazy(graph_hash: bytes, values: Sequence[Any]) -> list[torch.Tensor] | None:
    """Runs a compiled graph; None when torch has it no longer (it keeps a number of them). Nothing public runs one (2.13.0)."""
    try:
        return _c._lazy_ts_backend._run_cached_graph(graph_hash, list(values))
    except RuntimeError as error:
        if "computation by hash" not in str(error):
            raise
        return None


def fakes(values: Sequence[Any]) -> tuple[Any, list[Any]]:
    """A fake mode and a fake tensor for each tensor, sharing a storage where they do. No public fake tensors (2.13.0).

    Those of inference mode, which count no writes, and those of another fake mode get fresh ones.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    storages: dict[int, torch.Tensor] = {}

    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if not value.is_inference() and not is_fake(value):
            return mode.from_tensor(value)
        storage, size_bytes = storage_size(value)
        with mode:
            if storage not in storages:
                storages[storage] = torch.empty(size_bytes, dtype=torch.uint8)
            whole = storages[storage][: size_bytes - size_bytes % value.element_size()].view(value.dtype)
            return whole.as_strided(value.shape, value.stride(), value.storage_offset())

    return mode, [fake(value) for value in values]
