"""How a replay enters the compiler: stage, the inner compiler's arguments, ambient state (which the recorder's
`ambient` reads), settings; contexts that apply these; and what the user registered with torch in this process.

The spec is a record that crosses processes, and importing this imports no torch. Encoded arguments (see dumps.schema)
come as Python values.

>>> ReplaySpec("forward", {"is_inference": False}).stage
'forward'
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ...dumps import inert, permitted, trust
from ...dumps.journal import DECOMPOSITION, LOWERING
from ...dumps.schema import Ambient, Arg, GraphRecord
from ...dumps.walk import plain
from .. import torch_private as t
from ..torch_private.names import CONFIGS
from . import torch_state

NOT_THE_USERS = ("torch", "graphdbg", "builtins")
_EMPTY = types.CellType()
FULL_STAGES = frozenset({"dynamo", "pre_grad", "compiled_autograd"})
"""Stages that go through AOTAutograd. Outputs of the first two may require grad, so a replay runs the backward too."""


class ReplaySpec(msgspec.Struct, omit_defaults=True):
    """How to enter the stack.

    `stage` is one of dumps.schema.STAGES. `compile_kwargs` are those that the stage's own compiler was called with,
    `output_meta` the output node's metadata that Inductor reads, both as plain JSON values. `config` is {"inductor":
    {...}, "dynamo": {...}, "functorch": {...}}. `dynamic`: keep recorded symbols instead of making every size a number.
    `device`: move everything there first.
    """

    stage: str = "inference"
    compile_kwargs: dict[str, Any] = {}
    ambient: Ambient = msgspec.field(default_factory=Ambient)
    config: dict[str, dict[str, Any]] = {}
    dynamic: bool = False
    device: str | None = None

    @classmethod
    def of(cls, record: GraphRecord, *, device: str | None = None) -> ReplaySpec:
        """The spec that a saved graph was compiled with."""

        def read(values: Mapping[str, Arg]) -> dict[str, Any]:
            return {name: inert.value(plain(value)) for name, value in values.items()}

        kwargs, config = read(record.compile_kwargs), {room: read(values) for room, values in record.config.items()}
        return cls(record.stage, kwargs, record.ambient, config, bool(record.symbols), device)

    @property
    def training_joint(self) -> bool:
        """Whether a joint graph has a backward in it (an inference graph after the joint passes has not)."""
        return self.stage in ("joint", "joint_passed") and "num_fwd_outputs" in self.compile_kwargs

    @property
    def forward_only(self) -> ReplaySpec:
        """The spec without gradients: of a full-stage graph only the values are then of interest; gradients have graphs
        of their own."""
        if self.stage not in FULL_STAGES:
            return self
        return msgspec.structs.replace(self, ambient=msgspec.structs.replace(self.ambient, grad=False))


def is_opaque(value: Any) -> bool:
    """Whether a plain value still stands for something that could not be saved."""
    if isinstance(value, dict):
        return "opaque" in value or any(is_opaque(item) for item in value.values())
    return isinstance(value, list) and any(is_opaque(item) for item in value)


@contextlib.contextmanager
def no_caches() -> Iterator[None]:
    """Switches off the caches of whole graphs (not of kernels), which would hide the passes from a replay.

    `torch.compiler.config.force_disable_caches` is public but throws the kernels' binaries away too.
    """
    off = {"fx_graph_cache": False, "fx_graph_remote_cache": False}
    with t.inductor_config.patch(off), t.functorch_config.patch(enable_autograd_cache=False):
        yield


@contextlib.contextmanager
def settings(config: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    """Applies recorded settings of Inductor, Dynamo and functorch for the block; yields a sentence for each that could
    not be applied, and one for all those that a dump may not set."""
    from ...dumps.torchside import definitions as recorded

    lost: list[str] = []
    refused: dict[str, tuple[Any, str]] = {}
    with contextlib.ExitStack() as stack:
        for room, values in config.items():
            module = t.look_up(f"{room}_config") if room in CONFIGS else None
            for name, value in values.items():
                if permitted.of_the_process(name):
                    continue
                if module is not None and _is_set_here(getattr(module, name, None), value):
                    continue
                own = module is not None and is_opaque(value)
                if own:
                    known, live = recorded.setting(f"{room}.{name}")
                    value = live if known else value
                if module is None or is_opaque(value):
                    lost.append(f"setting {room}.{name} is not applied: its value could not be saved")
                    continue
                has, now = setting(room, name)
                why = "" if own or trust.trusted() else permitted.refusal(room, name, value)
                if has and why and not _same(value, default_of(room, name)[1]):
                    if not _same(value, now):
                        refused[f"{room}.{name}"] = (value, why)
                    continue
                try:
                    stack.enter_context(module.patch({name: value}) if has else contextlib.nullcontext())
                except (AttributeError, KeyError, TypeError, ValueError):
                    has = False
                if not has:
                    lost.append(f"setting {room}.{name} is not applied: this torch does not have it")
        yield [*lost, *([permitted.without(refused)] if refused else [])]


def default_of(room: str, name: str) -> tuple[bool, Any]:
    """(whether this torch has the setting, torch's default for it)."""
    entries = getattr(t.look_up(f"{room}_config"), "_config", {}) if room in CONFIGS else {}
    return name in entries, getattr(entries.get(name), "default", None)


def _same(value: Any, other: Any) -> bool:
    return type(value) is type(other) and bool(value == other)


def _is_set_here(value: Any, saved: Any) -> bool:
    """Whether a setting that could not be saved has its recorded kind of value here, because an `--import` module set
    it."""
    named = saved.get("opaque") if isinstance(saved, Mapping) else None
    if value is None or not named:
        return False
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if kind != named[0]:
        return False
    return not inspect.isfunction(value) or str(named[1]).startswith(f"<function {value.__qualname__} at ")


def setting(room: str, name: str) -> tuple[bool, Any]:
    """(whether this torch has the setting, its present value)."""
    holder: Any = t.look_up(f"{room}_config")
    for part in name.split("."):
        if not hasattr(holder, part):
            return False, None
        holder = getattr(holder, part)
    return True, holder


@contextlib.contextmanager
def in_force(spec: ReplaySpec) -> Iterator[None]:
    """Applies, for the block, the state in which a graph of this spec was compiled and run.

    Grad mode and autocast concern only graphs that AOTAutograd has not seen yet: it bakes both into the later stages,
    which run without grad.
    """
    import torch

    ambient = spec.ambient
    full = spec.stage in FULL_STAGES
    inference = torch.inference_mode() if full and ambient.inference_mode else contextlib.nullcontext()
    with torch_state.settings_put(ambient), modes(ambient) if full else torch.no_grad(), inference:
        yield


@contextlib.contextmanager
def modes(ambient: Ambient) -> Iterator[None]:
    """Applies the recorded grad mode and autocast."""
    import torch

    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.set_grad_enabled(ambient.grad))
        for device, dtype in ambient.autocast.items():
            stack.enter_context(torch.autocast(device, getattr(torch, dtype), cache_enabled=ambient.autocast_cache))
        yield


def rewritten(spec: ReplaySpec) -> bool:
    """Whether passes that replace nodes have run over a recorded graph: over all that Inductor compiles, and Dynamo's
    own graphs."""
    return (
        bool(spec.compile_kwargs) or spec.stage in FULL_STAGES or spec.stage.startswith(("joint_passed", "post_grad"))
    )


def registered_here() -> Iterator[tuple[str, Any]]:
    """The user's decompositions and lowerings of torch's own operators in this process, as (name in a note,
    function)."""
    for kind, table in ((DECOMPOSITION, "decompositions"), (LOWERING, "lowerings")):
        for operator, function in list(t.loaded(table, {}).items()):
            if str(operator).startswith(("aten.", "prims.")) and (own := _own(function)) is not None:
                yield f"{kind}{operator}", own


def _own(function: Any, depth: int = 3) -> Any:
    """The user's function: `function` itself, or one that torch's wrapper holds in a cell (`make_pointwise(mine)`);
    None where neither is the user's."""
    home = home_of(function)
    if str(getattr(home, "__module__", None) or "torch").partition(".")[0] not in NOT_THE_USERS:
        return function
    cells = (getattr(home, "__closure__", None) or ()) if depth else ()
    inside = [cell.cell_contents for cell in cells if cell != _EMPTY]
    plain = [value for value in inside if isinstance(value, (types.FunctionType, functools.partial))]
    return next((own for value in plain if (own := _own(value, depth - 1)) is not None), None)


def home_of(value: Any) -> Any:
    """The function or class behind partials and bound methods."""
    while isinstance(value, functools.partial):
        value = value.func
    value = getattr(value, "__func__", value)  # a bound method
    return value if hasattr(value, "__qualname__") else type(value)
