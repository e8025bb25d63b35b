# pyright: basic
"""The user's own Triton kernels: saved as programs that stand alone, shown, refused without trust, and real kernels
with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

import msgspec
import torch
import triton
import triton.language as tl
from torch.fx import Graph, GraphModule

from graphdbg.dumps import live, trust, user_kernels
from graphdbg.dumps.errors import RefusedError, UnreadableError
from graphdbg.dumps.schema import GraphRecord
from graphdbg.dumps.torchside.triton_kernels import KernelProgram
from graphdbg.toolkit.triton.user_kernels import interpreting, without_gpu

from . import triton_models as models


def captured(model: torch.nn.Module, *inputs: torch.Tensor) -> GraphModule:
    results: list[GraphModule] = []

    def backend(gm: GraphModule, _: Any) -> Any:
        results.append(gm)
        return gm.forward

    torch._dynamo.reset()
    with without_gpu(), torch.no_grad():
        result = torch.compile(model, backend=backend, fullgraph=True)(*inputs)
        torch.testing.assert_close(result, model.expected(*inputs))  # type: ignore[operator]
    return results[0]


@pytest.fixture(scope="module")
def record() -> GraphRecord:
    return live.encode(captured(models.Tuned(), torch.randn(5, 9)), id="0_0/dynamo", stage="dynamo")


def test_the_program_stands_alone(record: GraphRecord) -> None:
    tuned, add = record.kernels
    assert (tuned.name, add.name) == ("tuned", "add")
    assert not tuned.missing
    for part in (
        "SCALE = tl.constexpr(3)",
        "LIMIT = tl.constexpr(1e+30)",
        "def relu(x)",
        "def scaled(x)",
        "def shifted(x)",
        "AMOUNT = tl.constexpr(0.5)",
        "@triton.constexpr_function\ndef half_of",
        "triton.Config({'BLOCK': 32}, num_stages=2)",
        "restore_value=['out']",
        "key=['n']",
        "num_warps=2",
    ):
        assert part in tuned.program
    assert "scaled" not in add.program
    assert tuned.file.split("/")[-1].startswith("triton_models.py:")
    assert tuned.decorators.startswith("@triton.autotune(")


def test_it_is_refused_without_trust_and_says_where_to_read_it(record: GraphRecord) -> None:
    for load in (live.module, live.fake_module):
        with pytest.raises(RefusedError, match=r"[Rr]ead it: graphdbg show run/case --kernel tuned; then add --trust"):
            load(record, None, where="run/case/graph.json")


def test_with_trust_it_runs_and_is_saved_again_as_it_was(record: GraphRecord) -> None:
    fresh = msgspec.json.decode(msgspec.json.encode(record), type=GraphRecord)
    x = torch.randn(5, 9)
    with trust.granted(), interpreting():
        gm = live.module(fresh, None)
        (result,) = gm(*[x for node in gm.graph.nodes if node.op == "placeholder"])
        again = live.encode(gm, id=record.id, stage=record.stage)
    torch.testing.assert_close(result, models.Tuned.expected(x))
    assert again.kernels == record.kernels
    assert [node.kwargs for node in again.graph.nodes] == [node.kwargs for node in record.graph.nodes]
    assert [node.meta.get("triton_constants") for node in again.graph.nodes] == [
        node.meta.get("triton_constants") for node in record.graph.nodes
    ]
    with pytest.raises(RefusedError):
        live.module(fresh, None)


def test_what_is_shown(record: GraphRecord) -> None:
    tuned, add = user_kernels.of_record(record)
    text = tuned.read_text()
    assert "DTYPE=tl.float32" in text
    assert "grid (3, 1, 1) or (2, 1, 1)" in text
    assert "def tuned(" in text
    assert add.line() == "add.py  (the program's own, 1 call)"


def test_what_an_older_graphdbg_recorded_is_shown_and_cannot_be_run(record: GraphRecord) -> None:
    old = msgspec.json.decode(msgspec.json.encode(record), type=GraphRecord)
    old.kernels = []
    old.strings.append("def tuned(x): ...")
    for node in old.graph.nodes:
        if "triton_kernel_wrapper" in node.target:
            node.meta = {"triton_source": {"string": len(old.strings) - 1}}
    (shown,) = user_kernels.of_record(old)
    assert shown.stem == "tuned"
    assert len(shown.calls) == 2
    words = r"this run has no kernel source \(recorded by an older graphdbg\)\. Record the run again"
    with trust.granted(), pytest.raises(RefusedError, match=words):
        live.module(old, None)


def test_a_constant_that_is_no_expression_is_told(record: GraphRecord) -> None:
    odd = msgspec.json.decode(msgspec.json.encode(record), type=GraphRecord)
    for node in odd.graph.nodes:
        if "triton_constants" in node.meta:
            node.meta["triton_constants"] = {"dict": [["BLOCK", "nothing_of_that_name"]]}
    with trust.granted(), pytest.raises(UnreadableError, match="nothing_of_that_name"):
        live.module(odd, None)


def closing_over(amount: int, other: Any) -> Any:
    @triton.jit
    def closed(x, n: tl.constexpr = amount):
        tl.store(x, other + amount + n)

    return closed


def test_names_from_closures_are_names_of_the_program() -> None:
    program = KernelProgram()
    program.kernel(closing_over(3, 5))
    assert "amount = 3\n" in program.text()
    assert "other = 5\n" in program.text()
    assert not program.missing


def test_infinities_and_renamed_dtypes_have_a_form() -> None:
    program = KernelProgram()
    program.kernel(models.aliased)
    assert "f32 = tl.float32" in program.text()
    assert 'triton_parts = ModuleType("triton_parts")' in program.text().replace("tests.dumps.", "")
    assert "triton_parts.shifted = shifted" in program.text()
    assert 'INFINITY = tl.constexpr(float("-inf"))' in program.text()


def test_what_has_no_saved_form_is_named_and_the_load_says_so() -> None:
    def plain() -> None: ...

    program = KernelProgram()
    configs = [triton.Config({}, pre_hook=lambda given: None)]
    tuner = triton.autotune(configs, key=[], prune_configs_by={"early_config_prune": plain})
    program.kernel(tuner(closing_over(3, plain)))
    assert [item for item in program.missing if item.startswith("other, a function of")]
    assert len(program.dropped) == 2
    graph = Graph()
    x = graph.placeholder("x")
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table, triton_kernel_wrapper_mutation

    unsaved = closing_over(3, 5)
    index = kernel_side_table.add_kernel(unsaved)
    unsaved.fn.__closure__[1].cell_contents = plain  # Triton refuses it by itself
    constants = kernel_side_table.add_constant_args({"n": object()})
    kwargs = {
        "kernel_idx": index,
        "constant_args_idx": constants,
        "grid": [(1, 1, 1)],
        "tma_descriptor_metadata": {},
        "kwargs": {"x": x},
    }
    graph.call_function(triton_kernel_wrapper_mutation, (), kwargs)
    graph.output((x,))
    record = live.encode(GraphModule({}, graph), id="0_0/dynamo", stage="dynamo")
    assert len(record.kernels[0].missing) == 2
    with trust.granted(), pytest.raises(RefusedError, match="could not be saved completely; missing: other"):
        live.module(record, None)


def test_a_pack_without_sources_has_none_of_them(record: GraphRecord, tmp_path: Path) -> None:
    from graphdbg.dumps.pack import records

    from .test_pack import TEXTS

    (packed, _) = records.graph(record, TEXTS, keep=lambda name: False).kernels
    assert (packed.program, packed.decorators) == ("", "")
    assert packed.file.startswith(".../triton_models.py:")
