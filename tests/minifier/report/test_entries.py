"""Where a repro enters, where that is neither `torch.compile` nor Inductor's inner compiler: run with torch alone."""

from __future__ import annotations

import operator
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import torch._inductor.decomposition
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps.live import save_graph
from graphdbg.dumps.pack.redact import Redactor
from graphdbg.dumps.program.case import ReproFacts
from graphdbg.dumps.program.entering import entries_of, stands_for
from graphdbg.dumps.program.repro import script_of
from graphdbg.dumps.schema import Ambient, InputRecord
from graphdbg.dumps.store import SavedGraph, load_graph
from graphdbg.minifier.report.trying import WITHOUT, candidates, lay_down
from graphdbg.toolkit.capture import joint_graph
from graphdbg.toolkit.isolation import fresh
from graphdbg.toolkit.verdicts.signature import Signature

from ...dumps.graphs import MemoryTensors
from .cases import ACCURACY, CRASH, call, case_of, node, record_of, stored, tensor

PLANTED = Path(__file__).parents[2] / "planted"


def joint(folder: Path) -> SavedGraph:
    """A joint graph of a layer and tanh."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    table = torch._inductor.decomposition.select_decomp_table()
    captured = joint_graph(net, (torch.randn(3, 4),), decompositions=table)
    inputs = [torch.randn(4, 4), torch.randn(4), torch.randn(3, 4), torch.randn(3, 4)]
    return saved(folder, captured.module, inputs, "joint", compile_kwargs=captured.compile_kwargs)


def branching(folder: Path) -> SavedGraph:
    """An inference graph with two bodies."""

    def run(which: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.cond(which, torch.tanh, torch.cos, (x,)) + 1,)

    inputs = [torch.tensor(True), torch.randn(4)]
    return saved(folder, make_fx(run)(*inputs), inputs, "inference")


def writing(folder: Path) -> SavedGraph:
    """One that writes to what it is given."""

    def run(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
        x.mul_(w)
        return (torch.tanh(x),)

    inputs = [torch.randn(4), torch.randn(4)]
    return saved(folder, make_fx(run)(*inputs), inputs, "inference")


def saved(folder: Path, gm: torch.fx.GraphModule, inputs: list[torch.Tensor], stage: str, **more: object) -> SavedGraph:
    """The graph as it is saved, without autograd."""
    return load_graph(save_graph(gm, inputs, folder, stage=stage, ambient=Ambient(grad=False), **more))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("result", "rung", "fault"),
    [(joint, "inductor", "planted_partition"), (branching, "inductor", "planted_lowering"), (writing, "lazy", "")],
)
def test_it_enters_where_it_was_recorded(
    result: Callable[[Path], SavedGraph], rung: str, fault: str, tmp_path: Path
) -> None:
    graph, stand = result(tmp_path / "case"), stands_for(rung)[-1]
    case = ReproFacts(graph.record, graph.inputs_record, graph.kept, ACCURACY, rung)
    case = replace(case, imports=(fault,), off="left out") if fault else case
    assert entries_of(case, stand)[-1] == "as recorded"
    program = lay_down(script_of(case, "as recorded", "seeded", stand=stand), tmp_path, Redactor())
    own = os.environ | {"PYTHONPATH": str(PLANTED), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    codes = [
        subprocess.run([sys.executable, str(program), *flags], env=own, check=False, capture_output=True).returncode
        for flags in ([], [WITHOUT])
    ]
    assert codes == [fresh.BUG if fault else fresh.GONE, fresh.GONE]


def test_what_is_done_while_it_is_traced_is_entered_through_dynamo_alone() -> None:
    enter = call("enter", "torch.amp.autocast_mode._enter_autocast", "cpu", {"dtype": "bfloat16"}, True, None)
    tanh = call("tanh", "torch.tanh", node("x"), value=tensor(4))
    leave = call("leave", "torch.amp.autocast_mode._exit_autocast", node("enter"))
    stand = stands_for("inductor")[0]
    plain = case_of(record_of({"x": tensor(4)}, [tanh], ["tanh"], stage="dynamo"), CRASH)
    assert entries_of(plain, stand) == ["torch.compile", "as recorded"]
    given = case_of(record_of({"x": tensor(4)}, [enter, tanh, leave], ["tanh"], stage="dynamo"), CRASH)
    assert entries_of(given, stand) == ["torch.compile"]


@pytest.mark.parametrize("grad", [True, False])
def test_gradients_are_computed_where_autograd_is_on(grad: bool) -> None:
    tanh = call("tanh", "torch.tanh", node("x"), value=tensor(4, requires_grad=True))
    write = call("write", "mul_", node("seen"), 0.5, value=tensor(4), op="call_method")
    values = {"x": tensor(4, requires_grad=True), "seen": tensor(4)}
    record = record_of(values, [tanh, write], ["tanh"], stage="dynamo", ambient=Ambient(grad=grad))
    text = script_of(case_of(record, ACCURACY), "torch.compile", "seeded").text
    assert ("torch.autograd.grad(" in text) == grad


def test_gradients_that_arrive_are_the_same_in_every_run_where_the_inputs_are_written_out() -> None:
    value, store = tensor(1, requires_grad=True), MemoryTensors()
    tanh = call("tanh", "torch.tanh", node("x"), value=value)
    ones = {"x": InputRecord(name="x", value=value, stored=stored(store, struct.pack("f", 1.0), value))}
    text = script_of(
        case_of(record_of({"x": value}, [tanh], ["tanh"], stage="dynamo"), ACCURACY, ones, store),
        "torch.compile",
        "literal",
    ).text
    assert "torch.randn(1" not in text and "tangents = [torch.randn" in text and "torch.manual_seed(0)" in text, text


def test_where_nothing_can_be_left_out_it_runs_in_eager_mode_without_the_fault() -> None:
    tanh = call("tanh", "torch.tanh", node("x"), value=tensor(4))
    record = record_of({"x": tensor(4)}, [tanh], ["tanh"], config={"inductor": {"no_such_setting": 1}})
    text = script_of(replace(case_of(record, CRASH), off="left out"), "torch.compile", "seeded").text
    assert "--without-fault: backend eager" in " ".join(text.split())
    assert 'backend="inductor" if FAULT else "eager"' in text


def test_what_a_clock_tells_is_looked_for_with_the_module_first() -> None:
    tanh = call("tanh", "torch.tanh", node("x"), value=tensor(4))
    case = case_of(
        record_of({"x": tensor(4)}, [tanh], ["tanh"], stage="inference"), Signature("hang", "compile", size=30.0)
    )
    first, second, *_ = candidates(replace(case, imports=("planted_hang",), off="left out"))
    assert (first.case.imports, second.case.imports) == (("planted_hang",), ())
    assert "if FAULT:\n        import planted_hang" in first.text
    assert 'backend="inductor" if FAULT else "eager"' in second.text
    own = call("y", "nobodys.op.default", node("x"), value=tensor(4))
    case = replace(case, record=record_of({"x": tensor(4)}, [own], ["y"], stage="inference"), needs_imports=True)
    first, second, *_ = candidates(replace(case, imports=("planted_hang",)))
    assert (first.case.imports, second.case.imports) == (("planted_hang",), ()), "before a stand-in of the operator"


def test_what_python_writes_in_place_is_traced_as_it_is() -> None:
    added = call("s", "_operator.iadd", node("x"), node("w"), value=tensor(4))
    put = call("p", "_operator.setitem", node("w"), 0, 2.0)
    record = record_of({"x": tensor(4), "w": tensor(4)}, [added, put, call("y", "torch.sin", node("x"))], ["y"])
    record = msgspec.structs.replace(record, stage="dynamo")
    script = script_of(case_of(record, ACCURACY), "as recorded", "seeded", stand=stands_for("inductor")[0])
    traced: dict[str, Any] = {"torch": torch, "operator": operator, "Proxy": torch.fx.Proxy}
    with pytest.MonkeyPatch.context() as patch:  # which puts back what the program sets
        for name in ("__iadd__", "__setitem__"):
            patch.setattr(torch.fx.Proxy, name, None, raising=False)
        lines = script.text.splitlines()
        first = lines.index("def graph(x, w):")
        exec("\n".join([*lines[first : lines.index("", first)], *(x for x in lines if x.startswith("Proxy"))]), traced)
        targets = [node.target for node in torch.fx.symbolic_trace(traced["graph"]).graph.nodes if "call" in node.op]
    assert targets == [operator.iadd, operator.setitem, torch.sin], script.text


def test_a_backward_is_outside_of_autocast() -> None:
    x = tensor(4, requires_grad=True)
    record = record_of({"x": x}, [call("y", "torch.sin", node("x"), value=x)], ["y"], stage="dynamo")
    for autocast, off in (({}, ""), ({"cpu": "bfloat16"}, 'with torch.autocast("cpu", enabled=False):')):
        ambient = Ambient(grad=True, autocast=autocast)
        text = script_of(
            case_of(msgspec.structs.replace(record, ambient=ambient), ACCURACY), "torch.compile", "seeded"
        ).text
        assert ("enabled=False" in text, off in text) == (bool(off), True)


def test_a_graph_with_graphs_inside_is_also_compiled_as_it_was_without_fullgraph() -> None:
    tanh = call("tanh", "torch.tanh", node("x"), value=tensor(4))
    record = record_of({"x": tensor(4)}, [tanh], ["tanh"], stage="inference")
    inside = msgspec.structs.replace(record.graph, subgraphs={"body": record.graph})
    for graph, reads, whole in ((record.graph, False, [True]), (inside, True, [True]), (inside, False, [True, False])):
        case = case_of(msgspec.structs.replace(record, graph=graph, shape_env={"allow_scalar_outputs": reads}), CRASH)
        plain = [script for script in candidates(case) if (script.entry, script.way) == ("torch.compile", "seeded")]
        assert [script.case.whole for script in plain] == whole
        assert ["fullgraph=True" in script.text for script in plain] == whole
