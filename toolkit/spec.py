"""Where a replay enters the compiler and with what: stage, the inner compiler's arguments, ambient state, settings.

A record that crosses processes; imports no torch. Encoded arguments (see dumps.schema) come as Python values.

>>> ReplaySpec("forward", {"is_inference": False}).stage
'forward'
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..dumps.schema import Ambient, GraphRecord
from ..dumps.walk import plain

FULL_STAGES = frozenset({"dynamo", "pre_grad", "compiled_autograd"})
"""Stages that go through AOTAutograd. Outputs of the first two may require grad, so a replay runs the backward too."""


class ReplaySpec(msgspec.Struct, omit_defaults=True):
    """How to enter the stack.

    `stage` is one of dumps.schema.STAGES. `compile_kwargs` are those that the stage's own compiler was called with,
    `output_meta` the output node's metadata that Inductor reads, both as plain JSON values. `config` is {"inductor": {...},
    "dynamo": {...}, "functorch": {...}}. `dynamic`: keep recorded symbols instead of making every size a number. `device`:
    move everything there first.
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
        kwargs = {name: plain(value) for name, value in record.compile_kwargs.items()}
        config = {
            room: {name: plain(value) for name, value in values.items()} for room, values in record.config.items()
        }
        return cls(record.stage, kwargs, record.ambient, config, bool(record.symbols), device)

    @property
    def training_joint(self) -> bool:
        """Whether a joint graph has a backward in it (an inference graph after the joint passes has not)."""
        return self.stage in ("joint", "joint_passed") and "num_fwd_outputs" in self.compile_kwargs


def is_opaque(value: Any) -> bool:
    """Whether a plain value still stands for something that could not be saved."""
    if isinstance(value, dict):
        return "opaque" in value or any(is_opaque(item) for item in value.values())
    return isinstance(value, list) and any(is_opaque(item) for item in value)


def of_the_process(name: str) -> bool:
    """Whether a setting says how a process works or what it writes, not what a graph becomes: a replay leaves it alone."""
    return name.startswith(_OF_THE_PROCESS)


_OF_THE_PROCESS = (
    "compile_threads", "worker_", "trace.", "fx_graph_cache", "fx_graph_remote_cache", "enable_autograd_cache",
    "enable_remote_autograd_cache", "force_disable_caches", "bundled_autograd_cache", "caching_precompile", "repro_",
    "debug_dir_root", "verbose", "suppress_errors", "fresh_cache",
)  # fmt: skip
