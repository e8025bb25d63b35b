"""Packages ahead of time: built by our stages alone, loaded in a fresh process that has torch and nothing else, equal
results."""

from __future__ import annotations

import copy
import difflib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from torch._inductor import compile_fx as stock

from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit import torch_private as t
from graphdbg.toolkit.compile_fx import Observer, Pipeline
from graphdbg.toolkit.compile_fx.entering import compile_ahead_of_time
from graphdbg.toolkit.compile_fx.pipeline import Unfinished

QUICK = {"aot_inductor.compile_wrapper_opt_level": "O0"}
X = torch.linspace(-1, 1, 32).reshape(4, 8)
RELU = fx.symbolic_trace(lambda x: x.relu())

FRESH = """
import sys, torch
package, values = sys.argv[1:]
args, kwargs, wanted = torch.load(values)
run = torch._inductor.aoti_load_package(package)
assert not any(name.startswith("graphdbg") for name in sys.modules)
for index, one in enumerate(wanted):
    got = run(*args, **kwargs)
    assert type(got) is type(one), (type(got), type(one))
    values = got.values() if isinstance(got, dict) else got
    for mine, eager in zip(values, one.values() if isinstance(one, dict) else one, strict=True):
        torch.testing.assert_close(mine, eager)
print("equal")
"""


class Net(torch.nn.Module):
    """Parameters, a product of them alone, a buffer that is written to, a constant of the class."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.left = torch.nn.Parameter(torch.randn(8, 8))
        self.right = torch.nn.Parameter(torch.randn(8, 8))
        self.register_buffer("calls", torch.zeros(16))  # torch inlines smaller ones, and loses what is written to them
        self.constant = torch.arange(8.0)

    def forward(self, x: torch.Tensor, *, bias: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        self.calls.add_(1)
        y = self.linear(x).relu() @ (self.left @ self.right) + bias[0]
        return {"y": y + self.constant, "calls": self.calls + bias[1]}


def made(device: str = "cpu") -> tuple[Net, torch.Tensor, list[torch.Tensor]]:
    torch.manual_seed(0)
    model = Net().eval().to(device)
    model.constant = model.constant.to(device)
    return model, X.to(device), [torch.ones(8, device=device), torch.tensor(0.5, device=device)]


@pytest.fixture
def torch_raises(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torch's own orchestration raises, whoever holds it."""

    def raising(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("torch's own orchestration was called")

    names = (
        "compile_fx",
        "compile_fx_inner",
        "fx_codegen_and_compile",
        "compile_fx_aot",
        "fw_compiler_freezing",
        "_compile_fx_main",
        "_compile_fx_inner",
    )
    for name in names:
        function = getattr(stock, name)
        inner = getattr(function, "__wrapped__", function)
        for item in {function, inner}:
            if not item.__code__.co_freevars:
                monkeypatch.setattr(item, "__code__", (lambda *args, **kwargs: _raise()).__code__)  # noqa: F821  set below
        monkeypatch.setattr(stock, name, raising)
    monkeypatch.setattr(stock, "_raise", raising, raising=False)
    return


def run_fresh(package: Path, args: Any, kwargs: Any, wanted: Any, folder: Path) -> None:
    values = folder / "values.pt"
    torch.save((args, kwargs, wanted), values)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    done = subprocess.run(
        [sys.executable, "-c", FRESH, str(package), str(values)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout.splitlines()[-1:] == ["equal"], done.stderr


def build_and_run(device: str, patches: dict[str, Any], folder: Path) -> Pipeline:
    """Two calls of a package, in a fresh process, against eager."""
    model, x, bias = made(device)
    program = torch.export.export(copy.deepcopy(model), (x,), {"bias": bias})
    pipeline = Pipeline()
    package = compile_ahead_of_time(
        program, path=folder / "net.pt2", pipeline=pipeline, config_patches={**QUICK, **patches}
    )
    assert isinstance(package, Path)
    with torch.no_grad():
        wanted = [{name: value.clone() for name, value in model(x, bias=bias).items()} for _ in range(2)]
    assert [float(item["calls"][0]) for item in wanted] == [1.5, 2.5]
    if any("writes to it: what depends on calls alone" in note for report in pipeline.reports for note in report.notes):
        wanted.pop()  # torch's folding at run time computes the write once, as its own packages do
    run_fresh(package, (x,), {"bias": bias}, wanted, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["net.pt2", "values.pt"]
    return pipeline


@pytest.mark.slow
@pytest.mark.parametrize("folding", [False, True])
def test_a_package_runs_in_a_fresh_process(folding: bool, torch_raises: None, tmp_path: Path) -> None:
    pipeline = build_and_run("cpu", {"aot_inductor.use_runtime_constant_folding": folding}, tmp_path)
    stages = [report.stage for report in pipeline.reports]
    assert stages == [
        "pre_grad",
        "capture",
        "joint",
        "post_grad",
        "lower",
        "schedule",
        "codegen",
        "load",
        "align",
        "cudagraphs",
    ]
    reports = {report.stage: report for report in pipeline.reports}
    assert "4 parameters and 1 buffer are constants of the library" in reports["capture"].notes
    assert bool(reports["lower"].notes) is folding
    assert (reports["lower"].nodes_after < reports["post_grad"].nodes_after) is folding


@pytest.mark.gpu
@pytest.mark.parametrize("folding", [False, True])
def test_a_package_of_a_gpu_runs_in_a_fresh_process(folding: bool, torch_raises: None, tmp_path: Path) -> None:
    pipeline = build_and_run("cuda", {"aot_inductor.use_runtime_constant_folding": folding}, tmp_path)
    assert "load" in [report.stage for report in pipeline.reports]


@pytest.mark.slow
def test_a_plain_graph_and_loading_here(torch_raises: None, tmp_path: Path) -> None:
    gm = fx.symbolic_trace(lambda x, y: {"product": x @ y, "parts": [x + 1, (y.relu(),)]})
    before = str(gm.graph)
    path = compile_ahead_of_time(gm, (X, X.t()), path=tmp_path / "plain.pt2", config_patches=QUICK)
    assert isinstance(path, Path)
    got, wanted = torch._inductor.aoti_load_package(str(path))(X, X.t()), gm(X, X.t())
    assert type(got["parts"]) is list
    torch.testing.assert_close(got, wanted)
    assert str(gm.graph) == before


@pytest.mark.slow
def test_frozen_ahead_of_time(torch_raises: None, tmp_path: Path) -> None:
    model, x, bias = made()
    program = torch.export.export(copy.deepcopy(model), (x,), {"bias": bias})
    pipeline = Pipeline()
    with torch.no_grad():
        path = compile_ahead_of_time(
            program, path=tmp_path / "frozen.pt2", pipeline=pipeline, config_patches={**QUICK, "freezing": True}
        )
        wanted = model(x, bias=bias)
    assert isinstance(path, Path)
    torch.testing.assert_close(torch._inductor.aoti_load_package(str(path))(x, bias=bias), wanted)
    joint = next(report for report in pipeline.reports if report.stage == "joint")
    assert "froze the constants of the graph; no parameter is an input" in joint.notes
    assert joint.removed["aten.mm.default"] >= 1


class Code(Observer):
    """Keeps the code that was written, and whether autocast was on meanwhile."""

    def __init__(self) -> None:
        self.code: list[str] = []
        self.autocast: dict[str, bool] = {}

    def after(self, stage: Any, work: Any, report: Any) -> None:
        self.autocast[stage.name] = torch.is_autocast_enabled("cpu")
        if stage.name == "codegen":
            self.code.append(work.coded.wrapper.value + work.coded.kernels.value)


def our_code(patches: dict[str, Any]) -> list[str]:
    model, x, bias = made()
    observer = Code()
    pipeline = Pipeline([observer], until="codegen")
    stopped = compile_ahead_of_time(
        torch.export.export(model, (x,), {"bias": bias}), pipeline=pipeline, config_patches=patches
    )
    assert isinstance(stopped, Unfinished)
    return observer.code


class CodeWritten(Exception):
    """Stops torch before its C++ build."""


def torchs_code(patches: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    from torch._inductor.codecache import AotCodeCompiler

    model, x, bias = made()
    code: list[str] = []

    def stop(cls: Any, graph: Any, wrapper: str, kernels: str, *args: Any, **kwargs: Any) -> Any:
        code.append(wrapper + kernels)
        raise CodeWritten

    with monkeypatch.context() as patch, pytest.raises(Exception, match="CodeWritten"):
        patch.setattr(AotCodeCompiler, "compile", classmethod(stop))
        torch._inductor.aoti_compile_and_package(
            torch.export.export(model, (x,), {"bias": bias}), inductor_configs=dict(patches)
        )
    return code


@pytest.mark.parametrize(
    "patches",
    [pytest.param({}, marks=pytest.mark.slow), {"aot_inductor.use_runtime_constant_folding": True}, {"freezing": True}],
    ids=["plain", "folding", "freezing"],
)
def test_the_code_is_torchs(patches: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        theirs = torchs_code(patches, monkeypatch)
        ours = our_code(patches)
    (item,), (other,) = theirs, ours
    assert not list(difflib.unified_diff(normal(item), normal(other), lineterm="", n=0))


def normal(code: str) -> list[str]:
    """Without the number of the graph in this process, which is in the names of C++ kernels."""
    import re

    return re.sub(r"graph_\d+_|'/tmp/\S+|\b[0-9a-f]{12}\b", "", code).splitlines()


def test_autocast_is_off_while_a_library_is_compiled() -> None:
    observer = Code()
    gm = fx.symbolic_trace(lambda x: (x @ x.t(),))
    with torch.autocast("cpu", torch.bfloat16):
        compile_ahead_of_time(gm, (X,), pipeline=Pipeline([observer], until="codegen"))
        assert torch.is_autocast_enabled("cpu")
    assert observer.autocast["joint"] is False
    assert observer.autocast["codegen"] is False


class SubclassKept(Observer):
    def after(self, stage: Any, work: Any, report: Any) -> None:
        if stage.name == "capture":
            self.parameters = dict(work.gm.named_parameters())


def test_a_parameter_that_is_a_subclass_becomes_plain_ones_and_the_module_stays() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    model = torch.nn.Module()
    model.two = torch.nn.Parameter(TwoTensor(torch.ones(8, 8), torch.ones(8, 8)))
    graph = fx.Graph()
    x, two = graph.placeholder("x"), graph.get_attr("two")
    product = graph.call_function(torch.ops.aten.mm.default, (x, two))
    graph.output((graph.call_function(getattr, (product, "a")),))
    gm = fx.GraphModule(model, graph)
    seen = SubclassKept()
    compile_ahead_of_time(gm, (X,), pipeline=Pipeline([seen], until="codegen"))
    assert [name for name in seen.parameters if "two" in name] == [
        f"parametrizations.two.original{i}" for i in range(2)
    ]
    assert isinstance(gm.two, TwoTensor)


def test_unlifting_clones_buffers_and_writes_to_attributes() -> None:
    from torch._functorch.aot_autograd import aot_export_module

    model, x, bias = made()
    gm = torch.export.export(model, (x,), {"bias": bias}).module(check_guards=False)
    gm.graph._codegen = fx.graph.CodeGen()
    gm.recompile()
    with torch.no_grad():
        traced, signature = aot_export_module(gm, [x, *bias], trace_joint=False)
    graph = t.unlift_graph(gm, traced, signature)
    assert graph.calls is gm.calls
    clone = graph.meta["calls__original__"]
    assert clone is not gm.calls
    assert torch.equal(clone, gm.calls)
    assert list(graph.meta["mutated_named_buffers"]) == ["calls"]
    assert len(graph.graph.find_nodes(op="placeholder")) == 3
    assert graph.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)


@pytest.mark.parametrize(
    ("program", "args", "options", "says"),
    [
        (torch.nn.ReLU(), (X,), {}, "a ReLU cannot be compiled ahead of time"),
        (RELU, None, {}, "has no example inputs"),
        (RELU, (X,), {"path": "model.so"}, "ends in .pt2"),
        (RELU, (X, X), {}, "takes 1 input and is given 2"),
        (fx.symbolic_trace(lambda x, n: x + n), (X, 2), {}, "n is given a int"),
        (RELU, (X,), {"config_patches": {"fx_wrapper": True}}, "fx_wrapper"),
    ],
)
def test_what_no_package_can_be_made_of(program: Any, args: Any, options: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        compile_ahead_of_time(program, args, **options)
