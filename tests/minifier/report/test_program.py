"""Graph records as Python functions: what is written, and what is refused because the text is executed."""

from __future__ import annotations

from typing import Any

import pytest

from graphdbg.dumps.errors import GraphdbgError
from graphdbg.dumps.program.function import program_of
from graphdbg.dumps.program.text import quoted
from graphdbg.dumps.schema import GraphBody, NodeRecord, StoredTensor, SymbolRecord, SymValue, TensorValue

from .cases import call, node, record_of, relu_record, tensor


def test_a_small_graph() -> None:
    program = program_of(relu_record())
    assert program.source == "def graph(x):\n    relu = torch.ops.aten.relu.default(x)\n    return (relu,)"
    assert program.parameters == ["x"]


@pytest.mark.parametrize(
    ("arg", "text"),
    [
        (None, "None"),
        (True, "True"),
        (1.5, "1.5"),
        ("same", '"same"'),
        ("a'b\"c", "'a\\'b\"c'"),
        ([1, [2]], "[1, [2]]"),
        ({"tuple": [1]}, "(1,)"),
        ({"size": [1, 2]}, "(1, 2)"),
        ({"dict": [["a", 1]]}, '{"a": 1}'),
        ({"slice": [0, None, 2]}, "slice(0, None, 2)"),
        ({"float": "-inf"}, 'float("-inf")'),
        ({"complex": [1.0, {"float": "nan"}]}, 'complex(1.0, float("nan"))'),
        ({"dtype": "bfloat16"}, "torch.bfloat16"),
        ({"memory_format": "channels_last"}, "torch.channels_last"),
        ({"device": "cuda:0"}, 'torch.device("cuda:0")'),
        ({"function": "aten.add.Tensor"}, "torch.ops.aten.add.Tensor"),
        ({"ellipsis": True}, "..."),
    ],
)
def test_arguments(arg: Any, text: str) -> None:
    record = record_of({"x": tensor(2)}, [call("y", "aten.foo.default", node("x"), arg)], ["y"])
    assert f"torch.ops.aten.foo.default(x, {text})" in program_of(record).source


@pytest.mark.parametrize(
    ("node_record", "text"),
    [
        (call("y", "operator.getitem", node("x"), 1), "y = x[1]"),
        (call("y", "operator.getitem", node("x"), {"tuple": [0, {"ellipsis": True}]}), "y = x[0, ...]"),
        (call("y", "_operator.add", node("x"), {"sym": ["int", "s0 + 1"]}), "y = x + (s0 + 1)"),
        (call("y", "math.sqrt", 2.0), "y = math.sqrt(2.0)"),
        (
            call("y", "torch.nn.functional.gelu", node("x"), approximate="tanh"),
            'y = torch.nn.functional.gelu(x, approximate="tanh")',
        ),
        (call("y", "higher_order.cond", node("x")), "y = torch.ops.higher_order.cond(x)"),
        (call("y", "view", node("x"), -1, op="call_method"), "y = x.view(-1)"),
        (call("y", "builtins.getattr", node("x"), "shape"), "y = x.shape"),
    ],
)
def test_calls(node_record: NodeRecord, text: str) -> None:
    record = record_of({"x": tensor("s0", 2)}, [node_record], ["y"], symbols=[SymbolRecord("s0", hint=4)])  # type: ignore[arg-type]
    assert text in program_of(record).source


@pytest.mark.parametrize(
    "node_record",
    [
        call("y", "os.system('x')", node("x")),
        call("y", "builtins.eval", "1"),
        call("y", "builtins.__import__", "os"),
        call("y", "aten.x.default); import os; (", node("x")),
        call("y", "torch.__loader__", node("x")),
        call("y\n", "aten.relu.default", node("x")),
        call("import", "aten.relu.default", node("x")),
        call("y", "__reduce__", node("x"), op="call_method"),
        call("y", "x.y", node("x"), op="call_method"),
        call("y", "aten.relu.default", **{"a=1, b": 1}),
        call("y", "aten.relu.default", {"dtype": "float32; import os"}),
        call("y", "aten.relu.default", {"sym": ["int", "__import__('os')"]}),
        call("y", "aten.relu.default", {"sym": ["int", "f(1)"]}),
        call("y", "aten.relu.default", {"opaque": ["x", "y"]}),
        call("y", "layer", node("x"), op="call_module"),
    ],
)
def test_what_is_no_plain_name_is_refused(node_record: NodeRecord) -> None:
    with pytest.raises(GraphdbgError):
        program_of(record_of({"x": tensor(2)}, [node_record], [node_record.name]))


def test_os_system_is_not_a_function_of_os() -> None:
    """A target under an unknown root can only be a torch op: `os.system` becomes torch.ops.os.system, which does not
    exist."""
    source = program_of(record_of({"x": tensor(2)}, [call("y", "os.system", "true")], ["y"])).source
    assert 'torch.ops.os.system("true")' in source


def test_names_of_modules_are_not_hidden() -> None:
    record = record_of({"torch": tensor(2)}, [call("sys", "aten.relu.default", node("torch"))], ["sys"])
    assert program_of(record).source.startswith("def graph(torch_):\n    sys_ = torch.ops.aten.relu.default(torch_)")


def test_constants_become_the_last_parameters() -> None:
    attr = NodeRecord(name="_tensor_constant0", op="get_attr", target="_tensor_constant0")
    add = call("add", "aten.add.Tensor", node("x"), node("_tensor_constant0"))
    record = record_of({"x": tensor(2)}, [attr, add], ["add"], attrs={"_tensor_constant0": StoredTensor("", tensor(2))})
    program = program_of(record)
    assert program.constants == {"_tensor_constant0": "_tensor_constant0"}
    assert program.source.startswith("def graph(x, _tensor_constant0):")


def test_symbols_are_bound_at_the_start() -> None:
    value = TensorValue("float32", ["s0", 4], [4, 1])
    view = call("view", "aten.view.default", node("x"), [{"sym": ["int", "s0*4"]}])
    symbols = [SymbolRecord("s0", hint=3), SymbolRecord("s1", hint=5)]
    record = record_of({"x": value, "n": SymValue("int", "s1", 5)}, [view], ["view"], symbols=symbols)
    assert "    s0 = x.size(0)\n    view = torch.ops.aten.view.default(x, [(s0 * 4)])" in program_of(record).source
    halved = call("view", "aten.view.default", node("x"), [{"sym": ["int", "FloorDiv(s1, 2)"]}])
    record = record_of({"x": value, "n": SymValue("int", "s1", 5)}, [halved], ["view"], symbols=symbols)
    assert "    s1 = n\n    view = torch.ops.aten.view.default(x, [(s1 // 2)])" in program_of(record).source


def test_subgraphs_become_inner_functions() -> None:
    inner = record_of({"a": tensor(2)}, [call("sin", "aten.sin.default", node("a"))], ["sin"]).graph
    true = NodeRecord(name="true_graph_0", op="get_attr", target="true_graph_0")
    cond = call("cond", "higher_order.cond", node("p"), node("true_graph_0"), node("true_graph_0"), [node("x")])
    record = record_of({"p": tensor(), "x": tensor(2)}, [true, cond], ["cond"])
    record.graph = GraphBody(record.graph.nodes, subgraphs={"true_graph_0": inner})
    source = program_of(record).source
    assert "    def true_graph_0(a):\n        sin = torch.ops.aten.sin.default(a)\n        return (sin,)" in source
    compile(source, "repro.py", "exec")


def test_long_signatures_are_broken() -> None:
    inputs = {f"primals_{i}": tensor(2) for i in range(40)}
    source = program_of(record_of(inputs, [call("y", "aten.relu.default", node("primals_0"))], ["y"])).source
    assert max(map(len, source.splitlines())) <= 120
    compile(source, "repro.py", "exec")


@pytest.mark.parametrize("text", ["plain", 'say "x"', "it's", "a\\b", "a\nb", "é", ""])
def test_quoted_gives_the_text_back(text: str) -> None:
    assert eval(quoted(text)) == text
