# pyright: basic
"""The user's own Triton kernels in programs: definitions once, calls as a person writes them, runnable with and without
a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from graphdbg.dumps.errors import RefusedError
from graphdbg.dumps.program.kernels import FUNCTIONAL, MUTATION, call, definitions
from graphdbg.dumps.program.module import program
from graphdbg.dumps.program.text import Writer
from graphdbg.dumps.schema import NodeRecord, TritonKernel

HELPER = "@triton.jit\ndef square(x):\n    return x * x\n"
HEAD = "import triton\nimport triton.language as tl\n\nN = tl.constexpr(2)\n\n\n"
ONE = TritonKernel("one", f"{HEAD}{HELPER}\n\n@triton.jit\ndef one(x): ...\n")
TUNED = TritonKernel(
    "tuned",
    "import triton\n\n\n" + HELPER + "\n\n@triton.autotune(\n    configs=[\n        triton.Config({'B': 16}),\n"
    "        triton.Config({'B': 32}, num_warps=2),\n    ],\n    key=[],\n)\n@triton.jit\ndef tuned(x, B): ...\n",
)
WRITER = Writer({"y": "y"}, "node k")


def node(target: str, place: int, *grids: int, **more: object) -> NodeRecord:
    kwargs = {
        "kernel_idx": place,
        "constant_args_idx": 0,
        "grid": [{"tuple": [grid, 1, 1]} for grid in grids],
        "tma_descriptor_metadata": {"dict": []},
        "kwargs": {"dict": [["x", {"node": "y"}]]},
        **more,
    }
    return NodeRecord(
        "k", "call_function", target, kwargs=kwargs, meta={"triton_constants": {"dict": [["D", "tl.float32"]]}}
    )


def test_what_two_kernels_share_stands_once() -> None:
    result = definitions([ONE, TUNED], functional=False)
    assert result.imports == ["import triton", "import triton.language as tl"]
    assert result.source.count("def square") == 1
    assert result.names == {"N", "square", "one", "tuned"}
    assert "tuned.configs = tuned.configs[:1]" in result.source
    compile(result.source, "kernels.py", "exec")


def test_calls_are_plain() -> None:
    assert call(node(MUTATION, 0, 3), [ONE], WRITER) == "one[(3, 1, 1)](x=y, D=tl.float32)"
    functional = node(FUNCTIONAL, 0, 3, tensors_to_clone=["x"])
    assert call(functional, [ONE], WRITER) == "launched(one, (3, 1, 1), ['x'], x=y, D=tl.float32)"


def test_grids_of_several_configurations_are_a_function_of_it() -> None:
    text = call(node(MUTATION, 1, 4, 2), [ONE, TUNED], WRITER)
    assert text == 'tuned[lambda meta: (4, 1, 1) if meta["B"] == 16 else (2, 1, 1)](x=y, D=tl.float32)'
    assert "(4, 1, 1)](" in call(node(MUTATION, 1, 4, 4), [ONE, TUNED], WRITER)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (TritonKernel("one", "", missing=["f, a function"]), "f, a function"),
        (TritonKernel("one", "import triton\n\n\n@triton.jit\ndef square(x):\n    return x\n"), "another definition"),
        (TritonKernel("one", "def one("), "not Python"),
    ],
)
def test_what_cannot_stand_in_a_program_is_refused(kernel: TritonKernel, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        definitions([TUNED, kernel])


def test_a_constant_that_is_no_expression_is_refused() -> None:
    odd = node(MUTATION, 0, 1)
    odd.meta["triton_constants"] = {"dict": [["D", "1)\nimport os"]]}
    with pytest.raises(RefusedError, match="not a Python expression"):
        call(odd, [ONE], WRITER)


@pytest.mark.slow
def test_graph_py_runs_by_itself(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    import torch

    from graphdbg.dumps import live

    from . import triton_models as models
    from .test_triton_kernels import captured

    x = torch.arange(45.0).reshape(5, 9) - 20
    text = program(live.encode(captured(models.Tuned(), x), id="0_0/dynamo", stage="dynamo"))
    (tmp_path / "graph.py").write_text(text + "\n")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    check = (
        "import runpy, torch; made = runpy.run_path('graph.py', run_name='graph'); "
        f"x = torch.arange(45.0, device='{device}').reshape(5, 9) - 20;"
        "(y,) = made['Graph']()(x); torch.save(y.cpu(), 'y.pt')"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", check], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(torch.load(tmp_path / "y.pt"), models.Tuned.expected(x))
