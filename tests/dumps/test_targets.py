"""Functions <-> names, in both directions."""

from __future__ import annotations

import importlib
import operator
import random

import pytest
import torch

from graphdbg.dumps import allowlist
from graphdbg.dumps.errors import GraphdbgError
from graphdbg.dumps.program import text
from graphdbg.dumps.torchside import targets


def test_every_function_on_the_list_comes_back() -> None:
    for name, function in targets._functions().items():
        assert targets.resolve(name, "") is function
        assert targets.key(targets.resolve(targets.name_of(function), "")) == targets.key(function)


def test_names_that_people_know() -> None:
    known = {
        torch.ops.aten.sin.default: "aten.sin.default",
        torch.ops.aten.add.Tensor: "aten.add.Tensor",
        torch.ops.aten.add: "aten.add",
        operator.getitem: "operator.getitem",
        torch.nn.functional.gelu: "torch.nn.functional.gelu",
        torch.ops.higher_order.cond: "higher_order.cond",
        torch._C._set_grad_enabled: "torch._C._set_grad_enabled",
        torch.nn.functional.linear: "torch.nn.functional.linear",
        torch.sym_max: "torch.sym_max",
        torch.arange: "torch.arange",
        torch.amp.autocast_mode._enter_autocast: "torch.amp.autocast_mode._enter_autocast",
        torch.Tensor.add: "torch.Tensor.add",
        torch.ops.prims.convert_element_type.default: "prims.convert_element_type.default",
        max: "builtins.max",
    }
    assert {function: targets.name_of(function) for function in known} == known


def test_registered_ops_come_back_or_are_denied() -> None:
    schemas = random.Random(0).sample(torch._C._jit_get_all_schemas(), 400)
    denied = 0
    for schema in schemas:
        namespace, _, op = schema.name.partition("::")
        name = f"{namespace}.{op}.{schema.overload_name or 'default'}"
        try:
            result = targets.resolve(name, "")
        except GraphdbgError:
            denied += 1
            assert namespace in allowlist.DENIED_NAMESPACES or targets.denial(schema.name, schema) or "." in op
        else:
            assert targets.name_of(result) == name
    assert denied < 60


def test_ops_whose_arguments_name_files_are_denied_whatever_library_they_are_of() -> None:
    with torch.library._scoped_library("graphdbg_files", "DEF") as library:
        library.define("read(str file_name) -> Tensor")
        library.define("mean(Tensor x, str reduce) -> Tensor")
        with pytest.raises(GraphdbgError, match="names a file"):
            targets.resolve("graphdbg_files.read.default", "")
        assert targets.resolve("graphdbg_files.mean.default", "")


def test_unknown_functions_get_a_name_and_are_refused() -> None:
    def mine(x: object) -> object:
        return x

    name = targets.name_of(mine)
    assert name.startswith("opaque:")
    assert name.endswith("mine")
    with pytest.raises(GraphdbgError, match="custom op"):
        targets.resolve(name, "")


@pytest.mark.skipif(torch.__version__ < (2, 13), reason="older torch lacks some names, which are skipped")
def test_lists_hold_no_name_that_torch_lacks() -> None:
    """Names are guarded for other versions of torch, so a typing error would go unnoticed."""
    missing = [
        name
        for name in allowlist.EXTRA_FUNCTIONS
        if not hasattr(targets._home(name.rpartition(".")[0]), name.rpartition(".")[2])
    ]
    assert set(missing) <= {
        "torch._check_index",
        "torch._functorch.eager_transforms._set_tensor_requires_grad",
        "torch._dynamo.variables.torch.untyped_storage_size",
    }
    for homes in allowlist.OP_HOMES.values():
        for home in homes:
            assert importlib.util.find_spec(home) is not None


def test_programs_call_the_same_functions() -> None:
    scope = {"torch": torch, "operator": operator, "math": importlib.import_module("math")}
    importlib.import_module("torch._numpy")
    for name, function in targets._functions().items():
        home = name.rpartition(".")[0]
        if home.startswith("torch."):
            targets._home(home)
        assert targets.key(eval(text.target(name, ""), scope)) == targets.key(function)
