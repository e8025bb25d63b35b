"""`graphdbg.observe`: a graph of the program's own pipeline, which no hook sees, becomes a graph of the run.

Graphs of one model stand under one compile name: that of the compile in progress, else one of the model's own. The
module and its arguments stay as they are; outside of a recording it does nothing.

For example: `gm = graphdbg.observe(gm, stage="after_my_pass", inputs=args, model="gpt")`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .session import Session

T = TypeVar("T")
_KNOWN = ("val", "example_value", "tensor_meta")


def observe(gm: T, *, stage: str, inputs: Sequence[Any] | None = None, model: str = "", **compile_kwargs: Any) -> T:
    """Records a GraphModule, or an exported program, where this process is recorded; returns it as it came.

    `stage`: one of torch's (dynamo, pre_grad, joint, joint_passed, forward, backward, inference, post_grad_...), as
    which it is replayed; or a word of your own, which `ls --stages` shows: then it is replayed as `inference` where it
    holds registered operators alone, else as `dynamo`. `inputs`: its arguments, in the order of its placeholders; of
    real ones as much is kept as `--inputs` says, of fake ones the layout. `model`: what its pieces are shown under
    (default: the function that calls this). `compile_kwargs`: the arguments of that stage's compiler, such as
    num_fwd_outputs of a joint graph.

    Never raises for what cannot be recorded: the run says so.

    >>> observe(gm, stage="after_my_pass", inputs=inputs) is gm
    True
    """
    recording = sys.modules.get(f"{__package__}.session")
    session: Session | None = recording.active() if recording is not None else None
    if session is None:
        return gm
    caller = sys._getframe(1)
    code = caller.f_code
    model = model or getattr(code, "co_qualname", code.co_name)
    with session.guarded(f"observe {model}, {stage}"):
        _record(session, gm, stage, inputs, model, compile_kwargs, (code.co_filename, caller.f_lineno))
    return gm


def _record(
    session: Session,
    gm: Any,
    word: str,
    inputs: Sequence[Any] | None,
    model: str,
    kwargs: dict[str, Any],
    place: tuple[str, int],
) -> None:
    from ...dumps.ids import compile_name
    from ...dumps.schema import STAGES
    from ...dumps.torchside import case
    from ..live import roles, torch_state
    from ..live.spec import FULL_STAGES
    from . import why_hooks
    from .flight import Flight
    from .observe import keep_inputs

    described = None
    values = list(inputs) if inputs is not None else None
    if hasattr(gm, "graph_signature"):
        gm, values, described = case.parts(gm, inputs)
    stage = word if word in STAGES else case.guess_stage(gm)
    if described is None and stage in FULL_STAGES:
        described = roles.of_dynamo(gm)
    takes = len(gm.graph.find_nodes(op="placeholder"))
    if values is not None and len(values) != takes:
        session.note(
            f"inputs of {model}, {word} are not kept: the graph takes {takes} and {len(values)} came", error=True
        )
        values = None
    compiling = torch_state.compile_id()
    name = compile_name(compiling) if compiling else session.models.get(model)
    if name is None:
        name = session.writer().fresh_compile()
        why_hooks.journal(session, "frame", compile=name, function=model, file=place[0], line=place[1], observed=True)
    session.models[model] = name
    with _laid_out(gm, values):
        graph = Flight(session, name, compiling).capture(gm, stage, kwargs, roles=described, settle=False)
    if graph is None:
        return
    session.event("captured", graph.id, word=word)
    if values is not None and graph.record is not None and not any(map(torch_state.is_fake, values)):
        policy = "first" if session.options.inputs == "last" else session.options.inputs
        if policy != "none":
            keep_inputs(session, 1, graph.id, graph.record, values, policy)


@contextmanager
def _laid_out(gm: Any, values: Sequence[Any] | None) -> Iterator[None]:
    """Gives placeholders without metadata the layout of their inputs while the graph is saved."""
    pairs: Mapping[Any, Any] = dict(zip(gm.graph.find_nodes(op="placeholder"), values or (), strict=False))
    added = [node for node in pairs if not any(key in node.meta for key in _KNOWN)]
    try:
        for node in added:
            node.meta["val"] = pairs[node]
        yield
    finally:
        for node in added:
            node.meta.pop("val", None)
