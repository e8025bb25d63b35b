"""What the tests of text in code have a forked child do: make a graph with every kind of text, mark it, compile it, run
it.

A child, since what is compiled is hostile, and torch caches answers about the pretended GPU. Imported there by name.

>>> ask("tests.hostile.hostile_children:marked", {"case": "case", "backend": "cpp"}, server=server)
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps import inert, live
from graphdbg.dumps.errors import GraphdbgError, UnreadableError
from graphdbg.dumps.schema import GraphRecord
from graphdbg.dumps.store import load_graph
from graphdbg.dumps.torchside import encode
from graphdbg.dumps.validate import check_graph
from graphdbg.toolkit import torch_private as t
from graphdbg.toolkit.compile_fx.entering import compile_ahead_of_time, enter
from graphdbg.toolkit.compile_fx.pipeline import Observer, Pipeline
from graphdbg.toolkit.compile_fx.stage import Stage, Work
from graphdbg.toolkit.live.entries import mode_of
from graphdbg.toolkit.live.spec import ReplaySpec, in_force, settings
from graphdbg.toolkit.triton.pretended import pretending
from graphdbg.toolkit.triton.retarget import retargeted
from graphdbg.toolkit.triton.targets import target_of
from tests.hostile.marked import LEFT, Place, full, mark, nested, places, put

Payload = dict[str, Any]
LOUD = {
    "cpp.descriptive_names": "torch",
    "triton.descriptive_names": "torch",
    "cpp.enable_kernel_profile": True,
    "profiler_mark_wrapper_call": True,
    "trace.provenance_tracking_level": 1,
    "debug_index_asserts": True,
}
"""Settings with which Inductor writes more text."""
NOT_MARKED = {
    "rounding_mode",
    "static_input_idxs",
    "inductor_realize_to_strides",
    "recompute",
    "cudagraph_annotation",
    "is_wrapped",
}
"""What torch compares with words of its own or with numbers, so that nothing compiles with a mark there; and what has
it wrap an operator for good."""
STACK = '  File "model.py", line 1, in forward\n    x = self.fc(x)\n'
META = {
    "source_fn_stack": [["sin", "torch.sin"]],
    "custom": {"dict": [["k", {"string": 2}]]},
    "torch_fn": {"tuple": ["sin_1", "sin"]},
    "desc": "PlainAOTOutput(idx=0)",
    "partition_names": ["p"],
}


@torch.library.custom_op("hostile::tell", mutates_args=())
def tell(x: torch.Tensor, words: str) -> torch.Tensor:
    """An operator of a library, with a text."""
    return x + len(words) % 1


@tell.register_fake
def _(x: torch.Tensor, words: str) -> torch.Tensor:
    return torch.empty_like(x)


def talk(x: torch.Tensor, y: torch.Tensor, k: torch.Tensor) -> tuple[Any, ...]:
    """Every kind of operator that has a text: asserts, an operator of a library, a collective, a mode."""
    aten = torch.ops.aten
    number = aten._local_scalar_dense.default(k)
    aten._assert_scalar(number >= 2, "a number")
    sine = aten.sin.default(x)
    aten._assert_async.msg(aten.all.default(aten.gt.Scalar(sine, -5.0)), "a message")
    said = torch.ops.hostile.tell(sine, "words")
    reduced = torch.ops._c10d_functional.all_reduce(said, "sum", "0")
    waited = torch.ops._c10d_functional.wait_tensor(reduced)
    return (aten.div.Tensor_mode(waited, y, rounding_mode="floor"), aten.cos.default(sine), number)


def call(payload: Payload) -> Payload:
    """Another of these: a payload that names no case of its own goes behind no wall."""
    return globals()[payload["function"]](payload["given"])


torch.library.define("hostile::more", "(Tensor x, str first, *, str last) -> Tensor")
torch.library.impl("hostile::more", "CompositeExplicitAutograd", lambda x, first, *, last: x + 1)
torch.library.register_fake("hostile::more", lambda x, first, *, last: torch.empty_like(x))


def talk_more(x: torch.Tensor, y: torch.Tensor, k: torch.Tensor) -> tuple[Any, ...]:
    """Further operators that have a text: collectives, reductions by name, a text by its place and one by its
    keyword."""
    collective = torch.ops._c10d_functional
    wait = collective.wait_tensor
    more = torch.ops.hostile.more(x.sin(), "first", last="last")
    gathered = wait(collective.all_gather_into_tensor(more, 1, "0"))
    scattered = wait(collective.reduce_scatter_tensor(gathered, "sum", 1, "0"))
    sent = wait(collective.broadcast(scattered, 0, "0"))
    several = [wait(item) for item in collective.all_reduce_coalesced([sent, y], "sum", "0")]
    return (several[0].cos(), several[1] * k)


class Held(torch.nn.Module):
    """A parameter, whose name torch keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor, y: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor]:
        """Three inputs like the others."""
        return ((x * self.weight + y) * k,)


def make(payload: Payload) -> Payload:
    """Saves a graph as a case folder, with text wherever a record of it can have some."""
    inputs = [torch.randn(8, 16), torch.ones(8, 16), torch.tensor(3)]
    if payload.get("of") == "held":
        gm = torch.fx.symbolic_trace(Held().requires_grad_(False))
    elif payload.get("of") == "more":
        gm = make_fx(talk_more, tracing_mode="fake")(*inputs)
    else:
        gm = make_fx(talk, t.select_decomp_table(), tracing_mode="symbolic")(*inputs)
    live.save_graph(gm, inputs, payload["case"], stage="inference", compile_kwargs={"static_input_idxs": []})
    file = Path(payload["case"]) / "graph.json"
    graph = json.loads(file.read_bytes())
    graph["strings"] = [STACK, "L['self'].fc: torch.nn.Linear", "a long text"]
    for node in graph["graph"]["nodes"]:
        node |= {"stack": 0, "module": 1, "from_node": ["one", "two"], "original_aten": "aten.sin.default"}
        node["meta"] = META if node["name"] == "sin" else {}
    held = [node["name"] for node in graph["graph"]["nodes"] if node["op"] == "get_attr"]
    fqns = {"dict": [[item, "fc.weight"] for item in held or ["x_1"]]}
    graph["graph"].setdefault("meta", {})["dynamo_flat_name_to_original_fqn"] = fqns
    file.write_text(json.dumps(graph))
    return {}


class _Code(Observer):
    """Keeps what is written."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def after(self, stage: Stage, work: Work, report: Any) -> None:
        if stage.name == "codegen":
            self.texts += [code.value for code in (work.coded.wrapper, work.coded.kernels) if code]


def source(record: GraphRecord, backend: str) -> str:
    """All that Inductor writes for a graph whose tensors are not stored, with settings that have it write more."""
    code = _Code()
    known = {name: value for name, value in LOUD.items() if name in t.inductor_config.get_config_copy()}
    with t.inductor_config.patch(known):
        _compiled(record, None, backend, Pipeline([code], until="codegen"))
    return "\n".join(code.texts)


def _compiled(record: GraphRecord, tensors: Any, backend: str, pipeline: Pipeline, package: str = "unused.pt2") -> Any:
    gm, fakes, _ = live.fake_module(record, tensors)
    spec = ReplaySpec.of(record)
    _world(gm)
    with contextlib.ExitStack() as stack:
        stack.enter_context(settings(spec.config))
        stack.enter_context(in_force(spec))
        own = spec.config.get("inductor", {})  # whatever a dump may set
        stack.enter_context(t.inductor_config.patch(own | {"cpp_wrapper": backend == "cpp_wrapper"}))
        if backend == "triton":
            fakes = retargeted(gm, list(fakes), mode_of(gm, list(fakes))).fakes
            stack.enter_context(pretending(target_of("cuda:90")))
        if backend == "aoti":
            mode_of(gm, fakes).allow_non_fake_inputs = True  # as the rung does: constants are written into the library
            return compile_ahead_of_time(gm, fakes, path=package, pipeline=pipeline)
        spec.compile_kwargs |= {"cpp_wrapper": True} if backend == "cpp_wrapper" else {}
        return enter(gm, fakes, spec, pipeline)


def run(payload: Payload) -> Payload:
    """Compiles a case to the end and calls what comes of it; says what was raised."""
    switched_off(payload)
    saved = load_graph(payload["case"])
    try:
        compiled = _compiled(
            saved.record, saved.tensors, payload["backend"], Pipeline(), f"{payload['folder']}/made.pt2"
        )
        inputs = live.inputs(saved.record, saved.inputs_record, saved.tensors)
        if payload["backend"] == "aoti":
            torch._inductor.aoti_load_package(str(compiled))(*inputs)
        elif payload["backend"] != "triton":
            compiled(inputs)
    except Exception as error:  # noqa: BLE001 (broken code fails, before or after it ran)
        return {"raised": f"{type(error).__name__}: {str(error)[-1500:]}"}
    return {"raised": ""}


def _world(gm: torch.fx.GraphModule) -> None:
    """A world of one whose group has every name that the graph calls a group by."""
    import torch.distributed

    dist: Any = torch.distributed
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    for node in gm.graph.nodes:
        if "_c10d_functional" in str(node.target):
            for name in {argument for argument in node.args if isinstance(argument, str)} - {"0", "sum"}:
                dist.distributed_c10d._register_process_group(name, dist.group.WORLD)


def switched_off(payload: Payload) -> None:
    """With `off`, text is what it was: what is held back comes through."""
    if payload.get("off"):
        inert.text = lambda words: words
        inert.name = lambda words: words
        inert.lines = lambda words: words


def marked(payload: Payload) -> Payload:
    """Marks every text of the case that a record can have there, and says which marks stand where in what comes of it:
    in the source of a `backend`, without one in the live graph."""
    switched_off(payload)
    form = full(load_graph(payload["case"]).record)
    keys = encode.KEPT - NOT_MARKED
    result = places(form) + nested(("graph", "nodes", -2, "meta"), keys) + nested(("graph", "meta"), keys)
    result = [item for item in result if not NOT_MARKED & set(map(str, item.path)) and "args(output)" not in item.kind]
    result = [
        item for item in result if item.what != "append" or ".args(" not in item.kind
    ]  # lists of numbers or of nodes
    kinds = {number: place.kind for number, place in enumerate(result)}
    marks = {place: mark(number) for number, place in enumerate(result)}
    taken = {place: text for place, text in marks.items() if _loads(form, {place: text})}
    if payload.get("backend"):
        text, error = apart(lambda: source(read(put(form, taken)), payload["backend"]))
    else:
        text, error = "|".join(live_texts(read(put(form, taken)))), ""
    of_stacks = {f"zq{number}\n" for number, kind in kinds.items() if kind == "strings.*"}  # their lines stay lines
    left = [item for item in LEFT.finditer(text) if item[0] not in of_stacks]
    return {
        "left": sorted(
            {f"{kinds[int(item[1])]}: {text[max(0, item.start() - 80) : item.end() + 80]}" for item in left}
        ),
        "seen": sorted({kinds[int(item)] for item in re.findall(r"zq(\d+)", text)}),
        "taken": sorted({place.kind for place in taken}),
        "error": error,
    }


def _loads(form: Any, marks: dict[Place, str]) -> bool:
    try:
        live.fake_module(read(put(form, marks)), None)
    except GraphdbgError:
        return False
    return True


def live_texts(record: GraphRecord) -> list[str]:
    """Every text that torch can reach from a live graph: names, arguments and metadata, the facts on symbols, its
    code."""
    gm, fakes, mode = live.fake_module(record, None)
    texts: list[str] = [gm.code]
    seen: set[int] = set()

    def walk(held: Any) -> None:
        if isinstance(held, str):
            texts.append(str(held))
        elif isinstance(held, dict):
            for key, value in held.items():
                walk(key)
                if not str(key).startswith(inert_to_torch):
                    walk(value)
        elif isinstance(held, (list, tuple, set, frozenset)):
            for item in held:
                walk(item)
        elif hasattr(held, "__dict__") and type(held).__module__.startswith("torch") and id(held) not in seen:
            seen.add(id(held))
            walk({key: value for key, value in vars(held).items() if key not in ("fake_mode", "owning_module")})

    inert_to_torch = "graphdbg"  # what we carry for ourselves, under keys of our own
    for node in gm.graph.nodes:
        walk([node.name, str(node.target), node.args, node.kwargs, node.meta])
    env = mode.shape_env
    walk([gm.meta, fakes, env.var_to_sources, env.deferred_runtime_asserts, env.guards])
    walk(ReplaySpec.of(record).compile_kwargs | ReplaySpec.of(record).config)
    return texts


def read(form: Any) -> GraphRecord:
    """The record of a JSON form, checked as a file is."""
    try:
        record = msgspec.convert(form, GraphRecord)
    except msgspec.ValidationError as error:
        raise UnreadableError("the graph", str(error)) from error
    check_graph(record, "the graph")
    return record


def apart(make: Callable[[], str]) -> tuple[str, str]:
    """What a function returns and what it raises, in a process of its own: a failed compile leaves torch in no good
    state."""
    with tempfile.TemporaryFile() as file:
        pid = os.fork()
        if not pid:
            try:
                answer = [make(), ""]
            except BaseException as error:  # noqa: BLE001 (whatever torch raises of a mark)
                answer = ["", f"{type(error).__name__}: {str(error)[:200]}"]
            file.write(json.dumps(answer).encode())
            file.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        file.seek(0)
        text, error = json.loads(file.read())
        return text, error
