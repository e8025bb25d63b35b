"""Compilers as backends of torch.compile: training and inference, static and dynamic sizes, lazy graph modules,
autocast, tied weights, buffers that change, checkpointing."""

from __future__ import annotations

import copy
import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest
import torch

from graphdbg.toolkit.backends import BACKENDS, Backend
from graphdbg.toolkit.compilers.boxed import boxed_call

from .models import BUILD, built, step

FAST = [
    ("graphdbg_ts", "transformer", True, True),
    ("graphdbg_ts", "checkpointed", False, True),
]  # backend, model, dynamic, lazy

ALL = [
    (backend, name, dynamic, lazy)
    for backend in ("graphdbg_nop", "graphdbg_ts")
    for name in BUILD
    for dynamic in (False, True)
    for lazy in (False, True)
]


def check(backend: str, name: str, dynamic: bool, lazy: bool, *, all_ways: bool) -> None:
    """Two training steps of two sizes against the model itself; `all_ways` adds inference and a step under autocast."""
    model, inputs = built(name)
    twin = copy.deepcopy(model)
    other = inputs if name == "bags" else built(name, rows=7)[1]
    torch._dynamo.reset()
    with torch._dynamo.config.patch(use_lazy_graph_module=lazy):
        compiled = torch.compile(model, backend=backend, dynamic=dynamic)
        wanted = (
            twin if name != "checkpointed" else torch.compile(twin, backend="aot_eager")
        )  # another dropout than eager's
        for values in (inputs, other):
            for _ in range(2):
                torch.testing.assert_close(step(model, compiled, values), step(twin, wanted, values))
        if not all_ways:
            return
        model.eval(), twin.eval()
        with torch.no_grad():
            torch.testing.assert_close(compiled(*inputs), twin(*inputs))
        model.train(), twin.train()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(step(model, compiled, inputs), step(twin, wanted, inputs), rtol=2e-2, atol=2e-2)


@pytest.mark.long
@pytest.mark.parametrize(("backend", "name", "dynamic", "lazy"), FAST)
def test_a_model_trains(backend: str, name: str, dynamic: bool, lazy: bool) -> None:
    check(backend, name, dynamic, lazy, all_ways=False)


def test_training_inference_and_autocast() -> None:
    check("graphdbg_ts", "routing", dynamic=False, lazy=True, all_ways=True)


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "name", "dynamic", "lazy"), ALL)
def test_every_model_trains_and_infers(backend: str, name: str, dynamic: bool, lazy: bool) -> None:
    check(backend, name, dynamic, lazy, all_ways=True)


@pytest.mark.parametrize("backend", ["graphdbg_nop", "graphdbg_ts"])
def test_a_size_marked_dynamic_compiles_once(backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: (x.view(-1, 2).sum(0), x.shape[0] * 2), backend=backend)
    torch._dynamo.utils.counters.clear()
    for rows in (4, 6, 10):
        x = torch.arange(float(rows))
        torch._dynamo.mark_dynamic(x, 0)
        total, twice = compiled(x)
        assert twice == 2 * rows
        assert torch.equal(total, x.view(-1, 2).sum(0))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_every_backend_is_an_entry_point() -> None:
    names = {name for name in torch._dynamo.list_backends() if name.startswith("graphdbg_")}
    assert names == {*BACKENDS, "graphdbg_triton"}  # a function of its own: it has all of Inductor's options


def fails(**kwargs: Any) -> str:
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        torch.compile(torch.sin, backend="graphdbg_nop", **kwargs)(torch.ones(2))
    return str(caught.value.inner_exception)


def test_options_and_modes_that_a_backend_does_not_have_are_told() -> None:
    assert fails(options={"depth": 3}) == "the backend graphdbg_nop has no option 'depth': it has none"
    assert fails(mode="max-autotune").startswith("the backend graphdbg_nop has no modes: mode='max-autotune' was given")
    with pytest.raises(Exception, match="has no option 'path': it has file, graph_id, coloured"):
        Backend("graphdbg_print").arguments({"path": "x"})


def test_names_need_no_torch_until_they_are_used() -> None:
    body = "import sys, graphdbg.toolkit.compilers as c, graphdbg.toolkit.backends\nassert 'torch' not in sys.modules\n"
    subprocess.run([sys.executable, "-c", body], check=True, timeout=120)


def test_a_name_is_the_compiler_and_not_its_module() -> None:
    from graphdbg.toolkit import compilers

    for name in ("debug_nop", "ts_compile", "get_inputs"):
        module = import_module(f"graphdbg.toolkit.compilers.{name}")
        assert getattr(compilers, name) is getattr(module, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    from graphdbg.toolkit import compilers

    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = compilers.nope
    assert set(compilers.__all__) <= set(dir(compilers))


@pytest.mark.parametrize("name", ["nop", "simple_ts_compile", "ts_compile"])
def test_compilers_work_in_aot_function_and_aot_module(name: str) -> None:
    from functorch.compile import aot_function, aot_module

    from graphdbg.toolkit import compilers

    compiler = getattr(compilers, name)
    model, inputs = built("bags")
    torch.testing.assert_close(step(model, aot_module(model, compiler), inputs), step(model, model, inputs))
    x, y = (torch.linspace(0, 1, 8).requires_grad_() for _ in range(2))
    aot_function(lambda x: (x * x.shape[0]).sin().sum(), fw_compiler=compiler, dynamic=True)(x).backward()
    (y * 8).sin().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_the_convention_is_boxed() -> None:
    call = boxed_call(lambda x, y: (x + y,))
    args = [1, 2]
    assert call(args) == (3,)
    assert args == [1, 2]
    assert call._boxed_call  # type: ignore[attr-defined]
    assert call(1, 2) == (3,)


@pytest.mark.parametrize("name", ["nop", "ts_compile"])
def test_a_compiler_is_a_backend_of_dynamo_too(name: str) -> None:
    from graphdbg.toolkit import compilers

    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x.sin() * x.shape[0], backend=getattr(compilers, name), dynamic=True)
    for rows in (3, 5):
        x = torch.linspace(0, 1, rows)
        torch.testing.assert_close(compiled(x), x.sin() * rows)


def test_leaf_modules_and_their_state_are_left_as_they_are() -> None:
    from graphdbg.toolkit.compilers import ts_compile

    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.9)).train()
    gm = torch.fx.symbolic_trace(model)
    x = torch.ones(2, 3)
    torch.testing.assert_close(
        ts_compile(gm, [x])([x]), model[0](x)
    )  # frozen, hence without dropout, as functorch does
    assert gm.training
    assert model[1].training
