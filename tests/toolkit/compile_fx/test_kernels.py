"""The table of kernels: what each is made of, moves and computes, by hand where possible; and the code stays the
same."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from graphdbg.toolkit.compile_fx.pipeline import Observer, Pipeline
from graphdbg.toolkit.compile_fx.showing.child import KernelWatch
from graphdbg.toolkit.compile_fx.showing.tables import DEAD, SIZE, VIEW, kernel_table, summary
from graphdbg.toolkit.kernels.heard import both_ways, intensity, numbered
from graphdbg.toolkit.kernels.records import KernelRow, PartRow


class Code(Observer):
    """Keeps the generated code and the names of the nodes that it was made of."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.names: set[str] = set()

    def after(self, stage: Any, work: Any, report: Any) -> None:
        if stage.name == "codegen":
            self.texts.append(re.sub(r"graph_\d+|/\S+|AOT ID.*", "", work.coded.wrapper.value))
            self.names = {node.name for node in work.gm.graph.nodes if node.op == "call_function"}


def watched(
    function: Callable[..., Any], *inputs: torch.Tensor, dynamic: bool = False, watch: bool = True
) -> tuple[KernelWatch, Code]:
    """Generates code for a function, as torch.compile would have it generated; nothing is built and nothing run."""
    from graphdbg.toolkit.compile_fx import compile_fx

    result, code = KernelWatch(), Code()
    pipeline = Pipeline([result, code] if watch else [code], until="codegen")

    def backend(gm: Any, given: Any) -> Any:
        compile_fx(gm, given, pipeline=pipeline)
        return gm.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function, backend=backend, dynamic=dynamic)(*inputs)
    return result, code


def rows(kernel_watch: KernelWatch) -> dict[str, KernelRow]:
    return {row.label: row for row in kernel_watch.rows["inference"]}


def test_a_product_and_a_fused_loop_are_counted_by_hand() -> None:
    result, _ = watched(lambda x, w: torch.relu(x @ w).sum(-1), torch.randn(5, 7), torch.randn(7, 9))
    product, loop = result.rows["inference"]
    assert (product.name, product.kind, product.nodes) == ("extern_kernels.mm", "extern", ["mm"])
    assert (product.bytes_read, product.bytes_written) == (4 * (5 * 7 + 7 * 9), 4 * 5 * 9)
    assert product.flops == 2 * 5 * 7 * 9 and product.intensity == pytest.approx(630 / 572)
    assert loop.kind == "C++" and loop.nodes == ["relu", "sum_1"]
    assert (loop.bytes_read, loop.bytes_written, loop.flops) == (4 * 45, 4 * 5, 45 + 45)  # maximum, then the sum
    assert not product.estimated and not loop.estimated
    assert loop.lines and loop.lines[0].startswith("test_kernels.py:")


def test_what_only_the_kernel_uses_is_not_moved_and_an_input_read_twice_counts_once() -> None:
    result, _ = watched(lambda x: (x - x.mean(-1, keepdim=True)) * x, torch.randn(32, 64))
    (row,) = result.rows["inference"]
    assert (row.bytes_read, row.bytes_written) == (4 * 32 * 64, 4 * 32 * 64)


def test_a_copy_computes_nothing_and_that_is_no_unknown() -> None:
    result, _ = watched(lambda x: x.t().contiguous(), torch.randn(8, 4))
    (row,) = result.rows["inference"]
    assert row.flops == 0 and row.intensity == 0
    assert " - " in kernel_table(PartRow("inference", kernels=[row]))


def test_a_library_call_that_nobody_can_count_is_unknown() -> None:
    result, _ = watched(lambda x: torch.sort(x, stable=True).values, torch.randn(8, 4000))
    row = next(row for row in result.rows["inference"] if row.kind == "extern")
    assert row.flops is None and row.intensity is None
    assert "?" in kernel_table(PartRow("inference", kernels=[row]))


def test_symbols_count_with_their_hints_and_say_so() -> None:
    result, _ = watched(lambda x, w: torch.relu(x @ w), torch.randn(5, 7), torch.randn(7, 9), dynamic=True)
    assert [row.estimated for row in result.rows["inference"]] == [True, True]
    assert result.rows["inference"][0].flops == 630
    assert "~630" in kernel_table(PartRow("inference", kernels=result.rows["inference"]))


def test_a_size_that_only_a_run_tells_is_unknown() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        result, _ = watched(lambda x: torch.nonzero(x).float() * 2, torch.randn(5, 7))
    loop = next(row for row in result.rows["inference"] if row.kind == "C++")
    assert (loop.bytes_read, loop.bytes_written, loop.flops) == (None, None, None)


def test_a_kernel_that_is_called_twice_has_a_row_for_each_call() -> None:
    result, _ = watched(lambda x, w: torch.tanh(torch.tanh(x @ w) @ w), torch.randn(8, 8), torch.randn(8, 8))
    names = [row.label for row in result.rows["inference"]]
    assert names == ["extern_kernels.mm", "cpp_fused_tanh_0", "extern_kernels.mm#2", "cpp_fused_tanh_0#2"]
    assert result.maps["inference"]["tanh_1"] == ["cpp_fused_tanh_0#2"]


def test_every_node_is_in_a_kernel_or_has_a_reason() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        first, second = (x @ w.t()).view(2, 4, 6).transpose(0, 1).split(3, dim=-1)
        return torch.softmax(first * second + x.shape[0], -1)

    result, code = watched(function, torch.randn(8, 5), torch.randn(6, 5))
    known, without = result.maps["inference"], result.without["inference"]
    assert code.names <= set(known) | set(without)
    assert not set(known) & set(without)
    assert VIEW in without.values() and any(why.startswith("a result of split") for why in without.values())


@pytest.mark.long
@pytest.mark.parametrize("dynamic", [False, True])
def test_watching_leaves_the_code_as_it_is(dynamic: bool) -> None:
    def function(x: torch.Tensor, w: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.layer_norm(x @ w, (9,))
        return torch.softmax(y, -1) + torch.nn.functional.embedding(torch.arange(5), table)

    given = (torch.randn(5, 7), torch.randn(7, 9), torch.randn(20, 9))
    _, plain = watched(function, *given, dynamic=dynamic, watch=False)
    result, seen = watched(function, *given, dynamic=dynamic)
    assert result.rows["inference"] and plain.texts == seen.texts


def test_the_listening_ends_with_the_stage() -> None:
    from graphdbg.toolkit import torch_private as t

    names = ("cpp_tells_kernel", "triton_tells_kernel", "debug_tells_kernel")
    before = [t.look_up(name) for name in names]
    watched(lambda x: x + 1, torch.randn(3))
    assert [t.look_up(name) for name in names] == before


def test_a_training_graph_counts_both_halves() -> None:
    from graphdbg.toolkit.compile_fx import compile_fx

    watch = KernelWatch()
    pipeline = Pipeline([watch], until="codegen")

    def backend(gm: Any, given: Any) -> Any:
        with torch._functorch.config.patch(force_non_lazy_backward_lowering=True):
            compile_fx(gm, given, pipeline=pipeline)
        return gm.forward

    torch._dynamo.reset()
    torch.compile(lambda x, w: torch.tanh(x @ w), backend=backend)(
        torch.randn(5, 7, requires_grad=True), torch.randn(7, 9, requires_grad=True)
    )
    products = {
        part: [row.flops for row in watch.rows[part] if row.kind == "extern"] for part in ("forward", "backward")
    }
    assert products == {"forward": [630], "backward": [630, 630]}


def test_the_map_in_words() -> None:
    result = numbered([KernelRow("k", "C++", ["a", "b"]), KernelRow("k", "C++", ["b"])])
    assert both_ways(result) == {"a": ["k"], "b": ["k", "k#2"]}
    assert summary(both_ways(result), {"c": VIEW, "d": VIEW, "e": DEAD, "f": SIZE}) == (
        "2 nodes in 2 kernels, 4 in none (2 views, 1 unused, 1 size)"
    )


def test_intensity_of_what_is_not_known_is_not_known() -> None:
    assert intensity(None, 4, 4) is None and intensity(8, None, 4) is None and intensity(8, 0, 0) is None
    assert intensity(16, 4, 4) == 2.0


TRITON = """
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

class Driver:  # answers what code generation asks of a GPU's
    def get_current_target(self): return GPUTarget("cuda", 90, 32)
    def get_current_device(self): return 0
    def get_device_interface(self): return torch.cpu
    def get_active_torch_device(self): return torch.device("cpu")

driver.set_active(Driver())
from graphdbg.toolkit.compile_fx import compile_fx
from graphdbg.toolkit.compile_fx.showing.child import KernelWatch
from graphdbg.toolkit.kernels.heard import both_ways, intensity, numbered
from graphdbg.toolkit.compile_fx.pipeline import Pipeline

watch = KernelWatch()
def backend(gm, inputs):
    compile_fx(gm, inputs, pipeline=Pipeline([watch], until="codegen"))
    return gm.forward

with torch._inductor.config.patch(cpu_backend="triton"), torch.no_grad():
    torch.compile(lambda x, y: torch.softmax(x * y, -1), backend=backend)(torch.randn(32, 64), torch.randn(32, 64))
for row in watch.rows["inference"]:
    print(row.kind, ",".join(row.nodes), row.bytes_read, row.bytes_written, row.flops)
"""


@pytest.mark.slow
def test_triton_kernels_are_counted_alike(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "script.py").write_text(TRITON)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    kind, nodes, read, written, flops = done.stdout.split()
    assert kind == "Triton" and nodes.split(",")[:2] == ["mul", "amax"], done.stderr
    # a product and a maximum, the product again, a difference, an exponential, a sum, a quotient of each element
    assert (int(read), int(written), int(flops)) == (2 * 4 * 32 * 64, 4 * 32 * 64, 7 * 32 * 64)


def test_bodies_of_cond_have_their_own_nodes_lines_and_kernels() -> None:
    def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        outer = torch.relu(x @ w)
        large = outer.sum() > 3
        inner: torch.Tensor = torch.cond(
            large, lambda a: torch.relu(a @ w - 1) * 3, lambda a: torch.relu(a + 2).exp(), (outer,)
        )
        return outer * inner

    result, _ = watched(model, torch.randn(8, 8), torch.randn(8, 8))
    kernels = result.rows["inference"]
    assert {node for row in kernels for node in row.nodes if "." not in node} == {"mm", "relu", "sum_1", "gt", "mul"}
    bodies = {
        name: {node for row in kernels for node in row.nodes if node.startswith(name)} for name in ("true", "false")
    }
    assert {item.partition(".")[2] for item in bodies["true"]} == {"mm", "sub", "relu", "mul"}
    assert {item.partition(".")[2] for item in bodies["false"]} == {"add", "relu", "exp"}
    outer, inner = (next(row for row in kernels if name in row.nodes) for name in ("relu", "true_graph_0.relu"))
    assert outer is not inner and set(outer.lines).isdisjoint(inner.lines)
    assert all(len(set(row.nodes)) == len(row.nodes) for row in kernels)
    assert len(result.maps["inference"]["relu"]) == 1


def test_an_input_is_no_node_of_a_kernel() -> None:
    result, _ = watched(lambda x, w: torch.nn.functional.conv2d(x, w), torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3))
    assert [row.nodes for row in result.rows["inference"] if row.kind == "extern"] == [["convolution"]]
    assert not any("arg" in name for row in result.rows["inference"] for name in row.nodes)
