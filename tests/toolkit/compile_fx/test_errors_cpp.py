"""C++ that does not compile, and a compiler that is not there: told with kernel, nodes, user lines and source."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from torch._inductor.exc import CppCompileError, InductorError
from torch._inductor.lowering import lowerings, make_pointwise, register_lowering
from torch._inductor.virtualized import ops
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps.live import save_graph
from graphdbg.dumps.store import load_graph
from graphdbg.toolkit.compile_fx import Pipeline, compile_fx
from graphdbg.toolkit.compile_fx.errors import Explained, explain
from graphdbg.toolkit.compile_fx.errors.compilers import enclosing_function, excerpt, first_error, kernel_of, kernels
from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Case

HERE = Path(__file__).name


def failing(function: Any, inputs: list[Any], **options: Any) -> tuple[BaseException, Pipeline]:
    """The exception of a compile through Dynamo, and its pipeline."""
    pipeline = Pipeline()
    settings = {"fx_graph_cache": False, **options}

    def backend(gm: Any, given: Any) -> Any:
        return compile_fx(gm, given, config_patches=settings, pipeline=pipeline)

    torch._dynamo.reset()
    with pytest.raises(BaseException) as caught:
        torch.compile(function, backend=backend)(*inputs)
    return caught.value, pipeline


def account(pipeline: Pipeline, stage: str) -> Explained:
    """The account in the report of a stage."""
    results = [report.explained for report in pipeline.reports if report.stage == stage]
    assert results, f"{stage} did not run"
    assert results[-1] is not None, f"{stage} did not fail"
    return results[-1]


def attention(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    seen = torch.relu(x @ w)
    return seen.softmax(-1) @ w


@pytest.fixture(scope="module")
def injected() -> tuple[Any, Pipeline]:
    """A compile with the relu bug that Inductor plants for tests."""
    x = torch.randn(24, 24)
    return failing(attention, [x, x], **{"cpp.inject_relu_bug_TESTING_ONLY": "compile_error"})


def test_a_compile_error_names_kernel_nodes_lines_and_source(injected: tuple[Any, Pipeline]) -> None:
    error, pipeline = injected
    reported = account(pipeline, "load")
    assert type(error) is InductorError and type(error.inner_exception).__name__ == "CppCompileError"
    assert reported.kind == "C++ compile error" and reported.error_type == "CppCompileError"
    assert reported.kernel.startswith("cpp_fused_") and "relu" in reported.kernel
    by_name = {node.node: node for node in reported.nodes}
    assert by_name["relu"].op == "aten.relu.default"
    assert by_name["relu"].line.startswith(HERE) and by_name["relu"].code == "seen = torch.relu(x @ w)"
    assert not [node for node in reported.nodes if node.op == "aten.mm.default"]  # of another kernel
    marked = [line for line in reported.excerpt.splitlines() if line.startswith(">")]
    assert len(marked) == 1 and "compile error!" in marked[0] and f" {reported.line} |" in marked[0]
    assert reported.line is not None and Path(reported.file).read_text().splitlines()[reported.line - 1] in marked[0]
    assert "error:" in reported.compiler_line and reported.compiler_line in str(error)
    assert reported.message and reported.message in str(error)  # never less than what torch said


def test_the_account_is_a_note_once_and_an_attribute(injected: tuple[Any, Pipeline]) -> None:
    error, pipeline = injected
    text = account(pipeline, "load").text()
    assert getattr(error, "graphdbg_explained", None) == text
    assert account(pipeline, "capture").text() == text  # what passes through an outer stage is told once
    if hasattr(error, "add_note"):
        assert error.__notes__ == [f"graphdbg: {text}"]
        assert not getattr(error.inner_exception, "__notes__", [])
    assert text not in str(error)  # the exception itself says what torch says


@pytest.mark.long
def test_only_the_nodes_of_the_failing_kernel() -> None:
    def two(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        fine = x.sin() + 1
        return torch.relu(fine @ w).cos() @ w

    x = torch.randn(24, 24)
    _, pipeline = failing(two, [x, x], **{"cpp.inject_relu_bug_TESTING_ONLY": "compile_error"})
    assert {node.node for node in account(pipeline, "load").nodes} == {"relu", "cos"}


@pytest.fixture
def wrongly_lowered() -> Iterator[Any]:
    """An operator whose lowering shifts floats, which C++ refuses."""
    library = torch.library.Library("errors_cpp", "FRAGMENT")
    library.define("shifted(Tensor x) -> Tensor")
    library.impl("shifted", lambda x: x * 2, "CPU")
    library.impl("shifted", torch.empty_like, "Meta")
    op = torch.ops.errors_cpp.shifted
    register_lowering(op.default)(make_pointwise(lambda x: ops.bitwise_xor(x, ops.bitwise_not(x))))
    yield op
    lowerings.pop(op.default, None)
    library._destroy()


@pytest.mark.slow
def test_a_lowering_that_writes_wrong_code(wrongly_lowered: Any) -> None:
    error, pipeline = failing(lambda x: wrongly_lowered(x.cos()), [torch.randn(7)], **{"cpp.simdlen": 0})
    reported = account(pipeline, "load")
    assert reported.kind == "C++ compile error", error
    assert ("shifted", "errors_cpp.shifted.default") in {(node.node, node.op) for node in reported.nodes}
    assert ">" in reported.excerpt and "tmp" in reported.excerpt


def test_the_first_error_of_gcc_and_clang() -> None:
    output = (
        "k.cpp: In function f:\nk.cpp:3:9: warning: unused\nk.cpp:37:41: error: no such thing\n  37 | x\n"
        "k.cpp:38: error: a"
    )
    result = first_error(output)
    assert result is not None
    assert (result.file, result.line, result.column, result.said) == ("k.cpp", 37, 41, "no such thing")
    assert first_error("/usr/bin/ld: cannot find -lgomp\ncollect2: error: ld returned 1 exit status") is None
    clang = first_error("k.cpp:12:3: fatal error: 'omp.h' file not found")
    assert clang is not None and clang.line == 12


def test_an_error_inside_a_header_shows_the_line_that_needed_it(tmp_path: Path) -> None:
    (tmp_path / "h.h").write_text("template <class T> void f(T x) { x.no_such(); }\n")
    source = tmp_path / "k.cpp"
    source.write_text('#include "h.h"\nextern "C" void cpp_fused_z_0(int* y)\n{\n    f(y[0]);\n}\n')
    command = ["g++", "-fsyntax-only", str(source)]
    output = subprocess.run(
        command, capture_output=True, text=True, env={"LC_ALL": "C", "PATH": os.environ["PATH"]}
    ).stderr
    reported = explain(CppCompileError(command, output), None, "load")
    assert reported.kernel == "cpp_fused_z_0" and reported.line == 4 and "f(y[0]);" in reported.excerpt
    assert "h.h:1:" in reported.compiler_line and "no_such" in reported.why


def test_a_compiler_that_runs_out_of_memory(tmp_path: Path) -> None:
    source = tmp_path / "k.cpp"
    source.write_text("#include <regex>\nint main() { return 0; }\n")
    command = ["sh", "-c", f"ulimit -v 90000; LC_ALL=C g++ -fsyntax-only {source}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode, "90 MB were enough"
    reported = explain(CppCompileError(command, done.stderr), None, "load")
    assert (
        reported.kind == "out of memory"
        and "TORCHINDUCTOR_COMPILE_THREADS=1" in reported.fix
        and reported.why in done.stderr
    )


def test_a_defect_of_an_account_does_not_hide_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(case: object, error: object) -> None:
        raise KeyError("line")

    monkeypatch.setattr(importlib.import_module("graphdbg.toolkit.compile_fx.errors"), "FAMILIES", (((), broken),))
    reported = explain(ValueError("the real one"), None, "lower")
    assert (
        reported.message == "the real one"
        and "ValueError: the real one" in reported.text()
        and "KeyError" in reported.notes[0]
    )


def test_excerpts_and_kernels_of_generated_text() -> None:
    assert excerpt("a\nb\nc", 2, 1, around=1).splitlines() == ["    1 | a", ">   2 | b", "      | ^", "    3 | c"]
    assert excerpt("a", 5) == ""
    source = "#include <x>\nvoid kernel(float* y)\n{\n    y[0] = 1;\n}\n"
    wrapper = f"cpp_fused_a_0 = async_compile.cpp_pybinding(['float*'], r'''\n{source}''')\n"
    assert list(kernels(wrapper)) == ["cpp_fused_a_0"]
    assert kernel_of(wrapper, "#include <x>\n\nvoid kernel(float* y)\n{\n    y[0] = 1;\n}\n// more") == "cpp_fused_a_0"
    assert kernel_of(wrapper, "void kernel(float* z)\n{}") == ""
    both = 'void first(int a)\n{\n}\nextern "C" void second(int b)\n{\n x;\n}\n'
    assert (enclosing_function(both, 2), enclosing_function(both, 6)) == ("first", "second")


CHILD = """
import sys, torch
from graphdbg.toolkit.compile_fx import Pipeline, compile_fx
pipeline = Pipeline(until=sys.argv[1] if sys.argv[1:] else None)
graph = torch.fx.symbolic_trace(lambda x: (torch.relu(x) * 2.125,))
try:
    compile_fx(graph, [torch.randn(8)], pipeline=pipeline, config_patches={"fx_graph_cache": False})
finally:
    last = next(report for report in pipeline.reports[::-1])
    print(last.stage, last.produced, last.explained and last.explained.summary())
"""


def without_a_compiler(tmp_path: Path, *arguments: str) -> str:
    """What a fresh process with empty caches prints, on a machine that has no compiler."""
    env = {**os.environ, "CXX": "/no/such/g++", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    return subprocess.run([sys.executable, "-c", CHILD, *arguments], capture_output=True, text=True, env=env).stdout


@pytest.mark.slow
def test_without_a_compiler_the_error_says_what_to_install(tmp_path: Path) -> None:
    said = without_a_compiler(tmp_path)
    assert (
        said.startswith("codegen ") and "no C++ compiler" in said
    )  # Inductor asks for vector instructions before it writes
    assert "/no/such/g++" in said and "apt-get install g++" in said and "--until codegen" in said


@pytest.mark.slow
def test_without_a_compiler_code_is_written_all_the_same(tmp_path: Path) -> None:
    stage, lines, *_ = without_a_compiler(tmp_path, "codegen").split(" ")
    assert stage == "codegen" and int(lines.strip("(,")) > 10


def test_a_compiler_that_is_gone_at_load_is_named() -> None:
    pipeline = Pipeline()
    graph = torch.fx.symbolic_trace(lambda x: (torch.relu(x) * 2.375,))
    compile_fx(
        graph, [torch.randn(8)], pipeline=Pipeline(until="codegen")
    )  # this process knows its vector instructions
    settings = {"cpp.cxx": ("/no/such/g++",), "fx_graph_cache": False}
    with pytest.raises(InductorError):
        compile_fx(graph, [torch.randn(8)], pipeline=pipeline, config_patches=settings)
    reported = account(pipeline, "load")
    assert reported.kind == "missing compiler" and reported.error_type == "InvalidCxxCompiler"
    assert "/no/such/g++" in reported.why and "apt-get install g++" in reported.fix


def test_a_replay_names_the_kernel_and_its_nodes(tmp_path: Path) -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w).cos()

    graph = make_fx(run)(torch.randn(24, 24), torch.randn(24, 24))
    saved = load_graph(
        save_graph(graph, [torch.randn(24, 24), torch.randn(24, 24)], tmp_path / "case", stage="inference")
    )
    with inductor_config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "compile_error"}):
        live = Case(saved).live(seed=0)
        outcome = judge(live, "inductor", "auto", seed=0)
    assert not outcome.ok and outcome.signature is not None and outcome.signature.error.endswith("CppCompileError")
    note = next(note for note in outcome.notes if "kernel" in note)
    assert note.startswith("in the kernel cpp_fused_") and ", made of relu" in note and "cos" in note
