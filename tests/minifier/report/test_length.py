"""A repro of up to five computing nodes has at most 60 lines, whatever its kind, and is clean for linters."""

from __future__ import annotations

import ast
import io
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphdbg.dumps.program.case import ReproFacts
from graphdbg.dumps.program.repro import Script
from graphdbg.dumps.schema import Ambient, GraphBody, GraphRecord, InputRecord, NodeRecord, SymbolRecord, TensorValue
from graphdbg.minifier.report.trying import candidates, fixed, marked
from graphdbg.toolkit.verdicts.signature import Signature

from ...dumps.graphs import MemoryTensors
from .cases import ACCURACY, CRASH, call, case_of, node, record_of, stored, tensor

LINES, NODES, WIDTH = 60, 5, 130

SMALL_ERROR = Signature(
    "accuracy", "compare", size=1e-5, raw="output 0: relative error 1e-05, 3 of 64 elements far off"
)
FAILURES = {
    "crash": CRASH,
    "accuracy": ACCURACY,
    "small error": SMALL_ERROR,
    "integers": Signature("accuracy", "compare", detail="integers", size=0.5),
    "nan": Signature("nan", "compare", detail="nan"),
    "missing": Signature("nan", "compare", detail="no nan"),
    "zero": Signature("accuracy", "compare", detail="signed zero"),
    "rounding": Signature("accuracy", "compare", detail="rounding", size=1e-4),
    "stride": Signature("metadata", "compare", detail="stride"),
    "dtype": Signature("metadata", "compare", detail="dtype"),
    "mutation": Signature("metadata", "compare", detail="mutation"),
    "alias": Signature("metadata", "compare", detail="no alias"),
    "missing error": Signature("missing_error", "run", "IndexError", "index out of range", raw="index out of range"),
    "signal": Signature("signal", "run", detail="SIGSEGV"),
    "hang": Signature("hang", "compile", size=30.0),
    "slow": Signature("slow", "compile", message="20"),
    "peak": Signature("memory", "run", detail="peak", message="500000000"),
    "out of memory": Signature("memory", "run", "RuntimeError", "cannot allocate", detail="SIGKILL"),
}


def test_a_share_of_whole_numbers_is_said_as_one() -> None:
    assert case_of(chain(3, ints=True), FAILURES["integers"]).failure_text == "0.5 of the elements differ"


def chain(
    nodes: int,
    dtype: str = "float32",
    *,
    grad: bool = False,
    cast: bool = False,
    ints: bool = False,
    stage: str = "forward",
    device: str = "cpu",
    **more: Any,
) -> GraphRecord:
    """x, w -> nodes, the last of them a cast to `dtype` on demand; outputs: the last one, an integer one beside it on
    demand."""
    value = tensor(4, 8, dtype=dtype, requires_grad=grad, device=device)
    calls = [call("y1", "aten.mul.Tensor", node("x"), node("w"), value=value)]
    for at in range(2, nodes + 1):
        target, args, own, named = "aten.relu.default", [], value, {}
        if cast and at == nodes:
            target, args = "prims.convert_element_type.default", [{"dtype": "bfloat16"}]
            if grad:
                target, args, named = "aten._to_copy.default", [], {"dtype": {"dtype": "bfloat16"}}
            own = tensor(4, 8, dtype="bfloat16", requires_grad=grad)
        elif ints and at == 2:
            target, args, own = "aten.argmax.default", [1], tensor(4, dtype="int64")
        before = node("y1") if ints and at == 3 else node(f"y{at - 1}")
        calls.append(call(f"y{at}", target, before, *args, value=own, **named))
    outputs = [f"y{nodes}", *(["y2"] if ints and nodes > 2 else [])]
    config = {"inductor": {"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}}
    settings = {"config": config, "ambient": Ambient(grad=grad), "versions": {"torch": "2.13.0+cpu"}}
    return record_of({"x": value, "w": value}, calls, outputs, stage=stage, **settings | more)


def dynamic(nodes: int, dtype: str = "float32", **more: Any) -> GraphRecord:
    """The chain with two symbols."""
    record = chain(nodes, dtype, symbols=[SymbolRecord("s0", hint=4), SymbolRecord("s1", hint=8)], **more)
    for item in record.graph.nodes:
        if isinstance(item.value, TensorValue) and len(item.value.shape) == 2:
            item.value.shape[:], item.value.stride[:] = ["s0", "s1"], ["s1", 1]
    return record


def branches(nodes: int) -> GraphRecord:
    """A cond, whose two bodies have the other nodes."""
    inner = record_of(
        {"a": tensor(4, 8)}, [call("sin", "aten.sin.default", node("a"), value=tensor(4, 8))], ["sin"]
    ).graph
    bodies = [NodeRecord(name=f"{item}_graph_0", op="get_attr", target=f"{item}_graph_0") for item in ("true", "false")]
    args = [node("p"), node("true_graph_0"), node("false_graph_0"), {"tuple": [node("x")]}]
    item = call("y0", "operator.getitem", node("cond"), 0, value=tensor(4, 8))
    calls = [*bodies, call("cond", "higher_order.cond", *args), item]
    calls += [call(f"y{at}", "aten.relu.default", node(f"y{at - 1}"), value=tensor(4, 8)) for at in range(1, nodes - 3)]
    last = f"y{max(0, nodes - 4)}"
    record = record_of({"p": tensor(dtype="bool"), "x": tensor(4, 8)}, calls, [last])
    record.graph = GraphBody(record.graph.nodes, subgraphs={"true_graph_0": inner, "false_graph_0": inner})
    return record


RECORDS: dict[str, Callable[[int], GraphRecord]] = {
    "plain": chain,
    "cast": lambda nodes: chain(nodes, cast=True),
    "integers beside": lambda nodes: chain(nodes, ints=True),
    "gradient": lambda nodes: chain(nodes, grad=True, stage="dynamo"),
    "all of it": lambda nodes: chain(nodes, "bfloat16", grad=True, cast=True, ints=True, stage="dynamo"),
    "dynamic": dynamic,
    "dynamic gradient": lambda nodes: dynamic(nodes, "bfloat16", grad=True, cast=True, stage="dynamo"),
    "cond": branches,
    "on a device": lambda nodes: chain(nodes, device="cuda:0"),
    "autocast": lambda nodes: chain(nodes, grad=True, stage="dynamo", ambient=Ambient(autocast={"cpu": "bfloat16"})),
}


def with_values(case: ReproFacts) -> ReproFacts:
    """The case with recorded inputs: one small enough to be written out, one for the file beside the program."""
    store = MemoryTensors()
    names = [
        item for item in case.record.graph.nodes if isinstance(item.value, TensorValue) and item.name in ("x", "w")
    ]
    inputs: dict[str, InputRecord] = {}
    for at, item in enumerate(names[:2]):
        value = tensor(16, 1) if at else tensor(16, 8)
        inputs[item.name] = InputRecord(
            name=item.name, value=value, stored=stored(store, bytes(64 if at else 512), value)
        )
    return case_of(case.record, case.failure, inputs, store)  # type: ignore[arg-type]


def scripts(case: ReproFacts) -> list[Script]:
    """All programs that may be tried for a case."""
    items = list(candidates(case))
    narrow = fixed(items[0])
    items += [*([narrow] if narrow else []), *marked(items[0], needed=True)]
    if case.record.symbols == []:
        items += list(candidates(with_values(case)))
    if case.failure.kind == "crash" and not case.facts.grad:
        items += list(candidates(replace(case, only_compiled=True)))
    return items


SEVERAL = ("all of it", "dynamic gradient", "cond", "autocast")
"""Shapes that hold what the others have one by one."""


@pytest.mark.long
@pytest.mark.parametrize(
    "shape", [shape if shape in SEVERAL else pytest.param(shape, marks=pytest.mark.slow) for shape in RECORDS]
)
def test_at_most_sixty_lines(shape: str, tmp_path: Path) -> None:
    long: list[str] = []
    texts: set[str] = set()
    for nodes in range(1, NODES + 1):
        for kind, failure in FAILURES.items():
            for script in scripts(case_of(RECORDS[shape](nodes), failure)):
                ast.parse(script.text)
                lines = script.text.splitlines()
                if len(lines) > LINES or max(map(len, lines)) > WIDTH - 10:
                    long.append(f"{kind}, {nodes} nodes, {script.entry}, {script.way}: {len(lines)}")
                if nodes == NODES:
                    texts.add(script.text)
                    tokens = tokenize.generate_tokens(io.StringIO(script.text).readline)
                    assert not any(token.string == ";" for token in tokens)
    assert not long, "\n".join(long)
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        pytest.skip("ruff is not installed")
    for number, text in enumerate(texts):
        (tmp_path / f"repro{number}.py").write_text(text)
    for rules in (["--select", "E,F,W,I,B,UP", "--line-length", str(WIDTH)], []):  # and what it checks by itself
        command = [
            ruff,
            "check",
            "--isolated",
            "--no-cache",
            "--quiet",
            "--output-format",
            "concise",
            *rules,
            str(tmp_path),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[:4000]
