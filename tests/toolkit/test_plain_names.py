"""Aten calls as functions of torch: the forms as data, and each of them traced with values."""

from __future__ import annotations

import subprocess
import sys
from functools import reduce
from typing import Any

import pytest
import torch
from torch import fx

from graphdbg.dumps.program.torch_names import PlainCall, Slice, names, operators, plain_call
from graphdbg.toolkit.live.plain_calls import is_same, plain_of, rewrite

aten = torch.ops.aten
X, Y = torch.randn(3, 4), torch.rand(3, 4)
IMAGE, INDEX = torch.randn(1, 2, 5, 5), torch.tensor([[0, 1, 2, 0]])


def operator_of(name: str) -> Any:
    return reduce(getattr, name.split("."), torch.ops)


def test_every_name_is_an_operator_and_a_function_or_a_method() -> None:
    assert len(operators()) > 250
    for name in operators():
        assert operator_of(name)._schema.name.replace("::", ".") == name.rpartition(".")[0]
    for call in names().values():
        home = torch.Tensor if call.startswith(".") else torch
        assert callable(reduce(getattr, call.split(".")[1:], home)), call


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "wanted"),
    [
        ("aten.relu.default", ["x"], {}, PlainCall("torch.relu", ["x"], {})),
        ("aten._softmax.default", ["x", -1, False], {}, PlainCall("torch.softmax", ["x", -1], {})),
        ("aten._softmax.default", ["x", -1, True], {}, None),
        (
            "aten.full.default",
            [[2], 1.0],
            {"layout": {"layout": "strided"}, "pin_memory": False, "dtype": {"dtype": "int64"}},
            PlainCall("torch.full", [[2], 1.0], {"dtype": {"dtype": "int64"}}),
        ),
        ("aten.slice.Tensor", ["x", 1, 1, 9223372036854775807], {}, PlainCall("[]", ["x", Slice(), Slice(1)], {})),
        ("aten.slice.Tensor", ["x", -1, 1, 2], {}, None),
        ("aten.index.Tensor", ["x", [None, "i"]], {}, PlainCall("[]", ["x", Slice(), "i"], {})),
        (
            "aten.convolution.default",
            ["x", "w", None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1],
            {},
            PlainCall("torch.conv2d", ["x", "w"], {}),
        ),
        (
            "aten.convolution.default",
            ["x", "w", None, [2], [0], [1], True, [0], 1],
            {},
            PlainCall("torch.convolution", ["x", "w", None, [2], [0], [1], True, [0], 1], {}),
        ),
        (
            "aten.max_pool2d_with_indices.default",
            ["x", [2, 2]],
            {},
            PlainCall("torch.nn.functional.max_pool2d", ["x", [2, 2]], {"return_indices": True}),
        ),
        ("aten.gelu_backward.default", ["g", "x"], {}, None),
        ("mylib.relu.default", ["x"], {}, None),
    ],
)
def test_arguments_are_left_out_or_reordered_and_nothing_else(target: str, args: Any, kwargs: Any, wanted: Any) -> None:
    assert plain_call(target, args, kwargs) == wanted


CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (aten.relu.default, (X,), {}),
    (aten.add.Tensor, (X, Y), {"alpha": 2}),
    (aten.mul.Tensor, (X, 2.0), {}),
    (aten._softmax.default, (X, 1, False), {}),
    (aten._log_softmax.default, (X, 1, False), {}),
    (aten.sum.dim_IntList, (X, [1], True), {}),
    (aten.var.correction, (X, [1]), {"correction": 0}),
    (aten.max.dim, (X, 1), {}),
    (aten._to_copy.default, (X,), {"dtype": torch.float16}),
    (aten.view.default, (X, [4, 3]), {}),
    (aten.t.default, (X,), {}),
    (aten.permute.default, (X, [1, 0]), {}),
    (aten.expand.default, (X[:1], [3, 4]), {}),
    (aten.unsqueeze.default, (X, 0), {}),
    (aten.slice.Tensor, (X, 1, 1, 3), {}),
    (aten.slice.Tensor, (X, 0, 0, 3, 2), {}),
    (aten.select.int, (X, 0, 1), {}),
    (aten.index.Tensor, (X, [None, INDEX[0]]), {}),
    (aten.cat.default, ([X, Y], 1), {}),
    (aten.split.Tensor, (X, 2, 1), {}),
    (aten.where.self, (X > 0, X, Y), {}),
    (aten.gather.default, (X, 0, INDEX), {}),
    (aten.embedding.default, (X, INDEX), {}),
    (aten.mm.default, (X, Y.t()), {}),
    (aten.addmm.default, (Y[:, :3], X, Y.t()), {}),
    (aten.full.default, ([2, 3], 1.5), {}),
    (aten.convolution.default, (IMAGE, torch.randn(3, 2, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1), {}),
    (aten.max_pool2d_with_indices.default, (IMAGE, [2, 2]), {}),
    (aten.gelu.default, (X,), {"approximate": "tanh"}),
    (aten.native_layer_norm.default, (X, [4], Y[0], None, 1e-5), {}),
    (aten.elu.default, (X, 0.5), {}),
    (aten.native_dropout.default, (X, 0.5, True), {}),
    (aten.empty_like.default, (X,), {}),
    (aten.rand.default, ([2, 3],), {"device": torch.device("cpu"), "pin_memory": False}),
    (aten.copy_.default, (X, Y), {}),
    (aten.index_put_.default, (X, [INDEX[0][:2]], Y[:2]), {}),
    (torch.ops.prims.convert_element_type.default, (X, torch.float64), {}),
]


@pytest.mark.parametrize(("target", "args", "kwargs"), CALLS, ids=[str(target) for target, _, _ in CALLS])
def test_the_plain_form_is_the_same_call(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    before = X.clone()
    assert is_same(target, args, kwargs)
    assert torch.equal(X, before), "values stay as they are"
    graph = fx.Graph()
    places = [graph.placeholder(f"x{at}") if isinstance(item, torch.Tensor) else item for at, item in enumerate(args)]
    if not any(isinstance(item, torch.Tensor) for group in args if isinstance(group, list) for item in group):
        node = graph.call_function(target, tuple(places), kwargs)
        plain = plain_of(node)
        assert plain is not None
        rewrite(node, plain)
        graph.lint()
        assert plain_of(node) is None


@pytest.mark.parametrize(
    ("target", "args", "kwargs"),
    [
        (aten._to_copy.default, (X,), {"dtype": torch.float32}),  # x.to(its own dtype) does nothing
        (aten.slice.Tensor, (X, 1, 0, 4), {}),  # x[:, :4] of 4 columns does nothing
        (aten.mul.Scalar, (X, 2), {}),
        (aten.gelu_backward.default, (X, Y), {}),
    ],
)
def test_a_call_that_would_become_another_one_is_refused(target: Any, args: Any, kwargs: Any) -> None:
    assert not is_same(target, args, kwargs)


def test_the_names_are_there_without_torch() -> None:
    code = "import sys; from graphdbg.dumps.program.torch_names import names; names(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
