"""Ahead of time: a graph through AOTAutograd's export, with parameters and buffers as attributes of the graph again.

A library takes the user's inputs alone: what export lifted to inputs is unlifted, and the values that buffers have now are kept
beside it, since a run writes to them. `package.py` is the way in from outside.

>>> compile_ahead(compilers, gm, inputs)
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch

from ...dumps.wording import counted
from . import _torch as t
from .work import Work

if TYPE_CHECKING:
    from .capturing import Compilers

_MADE = ("_tensor_constant", "_torchbind_obj")
"""How tracing names constants that it finds; a model may have attributes of these names."""


def compile_ahead(compilers: Compilers, gm: Any, inputs: Sequence[Any]) -> Any:
    """Captures an inference graph, unlifts its parameters and buffers, and compiles it to a library, with autocast off."""
    t.ahead().utils.is_valid_aoti_model_name()

    def export(work: Work) -> None:
        with t.functorch_config.patch(unlift_effect_tokens=True, selective_decompose=t.config.selective_decompose):
            traced, signature = t.aot_export_module(
                gm, inputs, trace_joint=False, decompositions=compilers.decompositions
            )
        work.fake_mode = t.ahead().fake_mode_of(traced)
        _give_constants_values(traced, work.fake_mode)
        work.gm = unlifted(gm, traced, signature)
        work.notes.append(
            f"{counted(len(signature.parameters), 'parameter')} and {counted(len(signature.buffers), 'buffer')} "
            "are constants of the library"
        )

    work = Work("dynamo", gm, inputs, export=export)
    compilers.pipeline.run("capture", work)
    for name in ("dynamo_flat_name_to_original_fqn", "dynamo_compile_id"):
        if name in gm.meta:
            work.gm.meta[name] = gm.meta[name]
    # Patterns that are traced now would hold autocast's casts, and match what they must not.
    with t.V.set_fake_mode(work.fake_mode), t.compiled_autograd._disable(), t.autocast_off():
        return compilers.for_inference()(work.gm, inputs)


def unlifted(model: Any, traced: Any, signature: Any) -> Any:
    """`traced`, changed in place: inputs that were parameters or buffers of `model` are its attributes, written to by copies.

    `signature` is export's. A clone of each buffer is kept in the graph's metadata: the library starts from that value.
    """
    private = t.ahead()
    _rename_constants(model, traced)
    state: dict[str, torch.Tensor] = {}
    kinds = private.kinds
    for kind, named in ((kinds.PARAMETER, model.named_parameters), (kinds.BUFFER, model.named_buffers)):
        for name, value in named(remove_duplicate=False):
            state[name] = value
            private.assign(value, traced, name, attr_kind=kind)
    sources: list[str | None] = []
    for node in traced.graph.find_nodes(op="placeholder"):
        buffer = signature.inputs_to_buffers.get(node.name)
        if buffer is not None:
            kept_as = private.utils.get_cloned_parameter_buffer_name(buffer)
            traced.meta[kept_as] = private.utils.clone_preserve_strides(state[buffer])
        sources.append(buffer or signature.inputs_to_parameters.get(node.name))
    written = signature.buffers_to_mutate
    outputs = traced.graph.output_node().args[0]
    first = len(written) + len(signature.user_inputs_to_mutate) + len(signature.output_tokens)
    targets = [
        written.get(made.name) or signature.user_inputs_to_mutate.get(made.name) if index < first else None
        for index, made in enumerate(outputs)
    ]
    graph = private.unlift(traced, sources, targets, t.pytree.treespec_leaf(), None)
    graph.meta["mutated_named_buffers"] = t.OrderedSet(written.values())
    return graph


def _rename_constants(model: Any, traced: Any) -> None:
    """Gives constants that tracing found another name where the model has something else by theirs."""
    taken = {
        name for named in (model.named_parameters, model.named_buffers) for name, _ in named(remove_duplicate=False)
    }
    for node in traced.graph.find_nodes(op="get_attr"):
        prefix = next((one for one in _MADE if node.target.startswith(one)), None)
        if prefix is None or not hasattr(model, node.target):
            continue
        value = attrgetter(node.target)(traced)
        if _same(value, attrgetter(node.target)(model)):
            continue
        used = {*taken, *(str(one.target) for one in traced.graph.find_nodes(op="get_attr"))}
        numbers = [
            int(name[len(prefix) :]) for name in used if name.startswith(prefix) and name[len(prefix) :].isdigit()
        ]
        node.target = f"{prefix}{max(numbers, default=0) + 1}"
        setattr(traced, node.target, value)
        taken.add(node.target)


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor):
        alike = value.device == other.device and value.dtype == other.dtype and value.shape == other.shape
        return alike and torch.equal(value, other)
    if value is other:
        return True
    real = getattr(value, "real_obj", None)
    return real is not None and real is getattr(other, "real_obj", None)


def _give_constants_values(gm: Any, fake_mode: Any) -> None:
    """Constants that export kept as attributes have no fake value yet."""
    private = t.ahead()
    for node in gm.graph.nodes:
        if node.op != "get_attr" or "val" in node.meta:
            continue
        target = attrgetter(node.target)(gm)
        if isinstance(target, torch.Tensor):
            node.meta["val"] = fake_mode.from_tensor(target, static_shapes=True)
        elif isinstance(target, torch.ScriptObject) or private.is_opaque_type(type(target)):
            node.meta["val"] = private.fake_classes.maybe_to_fake_obj(fake_mode, target)
        elif isinstance(target, private.fake_classes.FakeScriptObject):
            node.meta["val"] = target
