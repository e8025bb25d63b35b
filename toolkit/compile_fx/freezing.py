"""Freezing: parameters of an inference graph become constants, which are folded, laid out anew, and no longer held as
inputs.

The passes are torch's, of `_inductor/freezing.py`; their order, what is kept, what is freed, and the call that leaves
out what became a constant are here. It happens at the end of the joint stage, whose report tells it. Must not run with
grad on.

For example: `compiled = compile_frozen(compilers, gm, inputs)`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch import fx

from ...dumps.wording import counted
from .. import torch_private as t
from .work import Work

if TYPE_CHECKING:
    from .capturing import Compilers


def compile_frozen(compilers: Compilers, gm: Any, inputs: Sequence[Any]) -> Any:
    """The inference compiler under `config.freezing`."""
    frozen = Frozen(compilers.model)
    work = Work("inference", gm, inputs, at_end=frozen.freeze)
    compilers.pipeline.run("joint", work)
    if not frozen.done:  # the stage was skipped or replaced; the configuration asks for frozen parameters all the same
        frozen.freeze(work)
        compilers.pipeline.reports[-1].notes.extend(work.notes)
    extra, kept = compilers.extra, frozen.kept
    fakes = [inputs[index] for index in kept]
    output = t.output_node(work.gm)
    output.meta["user_visible_output_idxs"] = [
        index for index, made in enumerate(output.args[0]) if isinstance(made, fx.Node)
    ]
    fake_mode = t.detect_fake_mode(fakes)
    real_constants = (
        mock.patch.object(fake_mode, "allow_non_fake_inputs", True) if fake_mode else contextlib.nullcontext()
    )
    with real_constants:
        compiled = compilers.inner(
            work.gm,
            fakes,
            static_input_idxs=frozen.static,
            cudagraphs=extra.cudagraphs,
            graph_id=extra.graph_id,
            is_inference=True,
            boxed_forward_device_index=extra.forward_device,
            layout_opt=frozen.channels_last,
        )
    if t.V.aot_compilation:
        return compiled  # a library takes the remaining inputs alone
    return _dropping(compiled, frozen.places)


def _dropping(compiled: Any, places: Sequence[int]) -> Any:
    """A boxed call that is given every argument, and hands on those at `places`."""

    def call(args: list[Any]) -> Any:
        needed = [args[place] for place in places]
        args.clear()
        return compiled(needed)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


class Frozen:
    """One graph's freezing.

    `kept`: inputs that stay, by their indices in AOTAutograd's graph; `places`: where a call finds them among its
    arguments; `static`: those of them whose memory stays in place; `channels_last`: whether convolutions were laid out
    anew.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.done = False
        self.kept: list[int] = []
        self.places: list[int] = []
        self.static: Sequence[int] = ()
        self.channels_last = False

    def freeze(self, work: Work) -> None:
        """Freezes `work.gm`, in place, and says in its notes what became of its parameters."""
        gm = work.gm
        self.channels_last = bool(t.GraphLowering.decide_layout_opt(gm, is_inference=True))
        if self.channels_last:
            t.fake_tensor_prop(gm, work.inputs, True)
            before = _clones(gm)
            t.convert_conv_weights_to_channels_last(gm)
            if changed := _clones(gm) - before:
                work.notes.append(f"weights of {counted(changed, 'convolution')} are laid out channels-last")
        context = t.TracingContext.try_get()
        with t.enter_freezing():
            t.view_to_reshape(gm)  # a view of a weight that was laid out anew may not exist
            self.kept = self._without_parameters(gm, context)
            gm.graph = t.fx_graph_cse(gm.graph)
            gm.recompile()
            t.freezing_passes(gm, [work.inputs[index] for index in self.kept])
            t.constant_fold(gm)
            if t.inductor_config.freezing_discard_parameters:
                t.invalidate_eager_modules()
                t.discard_traced_gm_params(self.model)
                work.notes.append("the parameters of the module itself are gone: freezing_discard_parameters")
            t.record_has_frozen_params(gm)
        self.places = list(self.kept)
        if context is not None:
            work.notes.append(self._released(context))
        else:
            work.notes.append("froze the constants of the graph; no parameter is an input")
        self.done = True

    def _without_parameters(self, gm: Any, context: Any) -> list[int]:
        """Makes constants of parameters that are neither written to nor returned, and returns the inputs that are
        left."""
        if context is None:
            return list(range(len(gm.graph.find_nodes(op="placeholder"))))
        flat = context.params_flat_unwrap_subclasses
        assert flat is not None and context.fw_metadata is not None, "freezing comes behind AOTAutograd"
        return list(t.replace_params_with_constants(gm, flat, context.fw_metadata))

    def _released(self, context: Any) -> str:
        """Drops the references to what became a constant, so that its memory can go, and says how much that was."""
        parts, whole = context.params_flat_unwrap_subclasses, context.params_flat
        owners = context.params_unwrapped_to_flat_index
        kept = set(self.kept)
        held = {owners[index] for index in range(len(parts)) if index in kept}
        self.places = places_of(self.kept, owners[: len(parts)], held)
        size = 0
        for index, value in enumerate(parts):
            if index not in kept:
                size += value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0
                parts[index] = None
        for index in range(len(whole)):
            if index not in held:
                whole[index] = None
        if context.fw_metadata:
            self.static = context.fw_metadata.static_input_indices
        text = f"froze {counted(len(whole) - len(held), 'parameter')} ({size:,} bytes)"
        return f"{text}, {len(held)} kept, since they are written to or returned" if held else f"{text}, none kept"


def places_of(kept: Sequence[int], owners: Sequence[int], held: set[int]) -> list[int]:
    """Where a call finds the inputs `kept` (indices in the graph): `owners[i]` is the parameter that input i is a part
    of.

    A parameter that is a tensor subclass is several inputs of the graph. Its parts come one by one if it is `held`; a
    frozen one leaves a single empty argument.

    >>> places_of([2, 3], [0, 0, 1], {1})
    [1, 2]
    """
    places: dict[int, int] = {}
    next_place = 0
    for index, owner in enumerate(owners):
        starts = index == 0 or owners[index - 1] != owner
        if owner in held or starts:
            places[index] = next_place
            next_place += 1
    behind = next_place - len(owners)
    return [places[index] if index < len(owners) else index + behind for index in kept]


def _clones(gm: Any) -> int:
    return len(gm.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default))
