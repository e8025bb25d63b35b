"""Hostile dumps that are well formed: refused in a sentence with file and place when a live graph is asked for; nothing
runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphdbg.dumps import live
from graphdbg.dumps.errors import EnvironmentLackError, GraphdbgError, RefusedError, UnreadableError
from graphdbg.dumps.graph_folder import write_graph_folder
from graphdbg.dumps.store import load_graph

from .graphs import chain

Edit = Callable[[dict[str, Any]], object]
TOUCH = "touch /tmp/graphdbg-hostile-ran"


def node(position: int, **changes: Any) -> Edit:
    return lambda graph: graph["graph"]["nodes"][position].update(changes)


def call(target: str, *args: Any, **kwargs: Any) -> Edit:
    return node(1, target=target, args=list(args), kwargs=kwargs)


def method(name: str, *args: Any) -> Edit:
    return node(1, op="call_method", target=name, args=[{"node": "x"}, *args])


X = {"node": "x"}

REFUSED: dict[str, tuple[Edit, str]] = {
    "os.system": (call("os.system", TOUCH), "'os.system'"),
    "posix.system": (call("posix.system", TOUCH), "'posix.system'"),
    "subprocess": (call("subprocess.Popen.__init__", TOUCH), "'subprocess.Popen.__init__'"),
    "builtins.eval": (call("builtins.eval", "1"), "'builtins.eval'"),
    "builtins.exec": (call("builtins.exec", "1"), "'builtins.exec'"),
    "builtins.__import__": (call("builtins.__import__", "os"), "'builtins.__import__'"),
    "builtins.open": (call("builtins.open", "/etc/passwd"), "'builtins.open'"),
    "torch.load": (call("torch.load", "evil.pt"), "'torch.load'"),
    "torch.hub.load": (call("torch.hub.load", "evil", "evil"), "'torch.hub.load'"),
    "torch.jit.load": (call("torch.jit.load", "evil.pt"), "'torch.jit.load'"),
    "torch.compile": (call("torch.compile", X), "'torch.compile'"),
    "torch.from_file": (call("torch.from_file", "/etc/passwd"), "'torch.from_file'"),
    "torch.save": (call("torch.save", X, "/tmp/x"), "'torch.save'"),
    "torch.utils.cpp_extension.load": (call("torch.utils.cpp_extension.load", "x"), "cpp_extension"),
    "torch.ops.load_library": (call("torch.ops.load_library", "/tmp/evil.so"), "load_library"),
    "torch.classes": (call("torch.classes.load_library", "/tmp/evil.so"), "load_library"),
    "operator.methodcaller": (call("operator.methodcaller", "system"), "'operator.methodcaller'"),
    "operator.attrgetter": (call("operator.attrgetter", "__class__"), "'operator.attrgetter'"),
    "operator.call": (call("operator.call", X), "'operator.call'"),
    "aten.from_file": (call("aten.from_file.default", "/etc/passwd"), "'aten.from_file.default'"),
    "aten.save": (call("aten.save.default", X, "/tmp/x"), "'aten.save.default'"),
    "debugprims.load_tensor": (call("debugprims.load_tensor.default", "x", [1], [1]), "debugprims"),
    "prim ops": (call("prim.Print.default", X), "'prim.Print.default'"),
    "unchecked memory": (call("inductor._reinterpret_tensor.default", X, [9], [1], 99), "_reinterpret_tensor"),
    "a torchbind call": (call("higher_order.call_torchbind", X, "run"), "'higher_order.call_torchbind'"),
    "inline assembly": (call("higher_order.inline_asm_elementwise", X), "inline_asm_elementwise"),
    "a user's Triton kernel": (
        lambda g: (
            call("higher_order.triton_kernel_wrapper_mutation", kernel_idx=0)(g),
            g.update(kernels=[{"name": "evil", "program": f"import os; os.system({TOUCH!r})"}]),
        ),
        "--kernel evil; then add --trust",
    ),
    "a kernel without its source": (
        call("higher_order.triton_kernel_wrapper_mutation", kernel_idx=0),
        "no kernel source",
    ),
    "a Python function": (call("opaque:mymodule.evil", X), "'mymodule.evil'"),
    "getattr of __class__": (call("builtins.getattr", X, "__class__"), "getattr of '__class__'"),
    "getattr of a node": (call("builtins.getattr", X, X), "getattr of"),
    "getattr with a default": (call("builtins.getattr", X, "shape", 1), "getattr of"),
    "a function as argument": (node(2, args=[{"node": "sin_0"}, {"function": "os.system"}]), "'os.system'"),
    "an opaque argument": (node(2, args=[{"opaque": ["mymodule.Config", "Config()"]}]), "mymodule.Config"),
    "the method __reduce_ex__": (method("__reduce_ex__", 2), "'__reduce_ex__'"),
    "the method __class__": (method("__class__"), "'__class__'"),
    "the method apply_": (method("apply_", {"function": "math.sin"}), "'apply_'"),
    "the method numpy": (method("numpy"), "'numpy'"),
    "a method of our own": (method("evil"), "'evil'"),
    "a path through __class__": (
        lambda g: (
            g["graph"]["attrs"].update({"__class__.w": g["graph"]["attrs"]["w"]}),
            g["graph"]["nodes"][1].update(op="get_attr", target="__class__.w", args=[]),
        ),
        "'__class__.w'",
    ),
    "an attribute that replaces forward": (
        lambda g: g["graph"]["attrs"].update({"forward": g["graph"]["attrs"]["w"]}),
        "'forward'",
    ),
    "a module class that is no layer": (
        lambda g: (
            g["graph"].update(modules={"m": {"type": "torch.jit.ScriptModule"}}),
            g["graph"]["nodes"][1].update(op="call_module", target="m"),
        ),
        "'torch.jit.ScriptModule'",
    ),
    "a module class with code": (
        lambda g: (
            g["graph"].update(modules={"m": {"type": "torch.nn.Module.register_forward_hook"}}),
            g["graph"]["nodes"][1].update(op="call_module", target="m"),
        ),
        "register_forward_hook",
    ),
    "a symbol that shadows": (
        lambda g: (g["symbols"][0].update(name="torch"), g.update(guards=[])),
        "'torch' is not a symbol name",
    ),
    "an expression over nothing": (
        lambda g: g["graph"]["nodes"][1]["value"].update(shape=[2, "s9"], stride=[1, 1]),
        "'s9'",
    ),
    "a power without end": (lambda g: g["graph"]["nodes"][2].update(args=[{"sym": ["int", "9**9**9**9"]}]), "exponent"),
    "a placeholder with many arguments": (node(0, target="*x"), "'*x'"),
}

LACKING: dict[str, tuple[Edit, str]] = {
    "an op of a library": (call("mylib.fused.default", X), "mylib::fused"),
    "an overload that is not there": (call("aten.sin.evil", X), "has no overload 'evil'"),
    "a higher-order op that is not there": (call("higher_order.evil", X), "'evil'"),
    "a dtype that is not there": (node(2, args=[{"node": "sin_0"}, {"dtype": "float3"}]), "'float3'"),
}

UNREADABLE: dict[str, tuple[Edit, str]] = {
    "a view past its storage": (
        lambda g: g["graph"]["attrs"]["w"]["value"].update(shape=[1000, 1000], stride=[1000, 1]),
        "past the",
    ),
    "a tensor that is missing": (lambda g: g["graph"]["attrs"]["w"].update(storage="0" * 40), "0000"),
    "an argument that FX cannot print": (
        node(2, kwargs={"k": {"dict": [["a", [{"function": "aten.add.Tensor"}]]]}}),
        "FX",
    ),
    "an operand that is not there": (node(1, target="operator.add", args=[]), "FX"),
    "a size that is no number": (
        node(1, value={"value_kind": "sym", "kind": "int", "expr": "nan"}),
        "'nan' is not a whole number",
    ),
    "outputs that are no numbers": (node(-1, meta={"user_visible_output_idxs": ["x"]}), "user_visible_output_idxs"),
    "a text that is not there": (node(1, meta={"output_stack_traces": [{"string": 99}]}), "99"),
    "a bound symbol that is not there": (node(1, meta={"unbacked_bindings": [["u7", []]]}), "'u7'"),
}


def case_of(folder: Path, edit: Edit) -> Path:
    import torch

    from .graphs import MemoryTensors

    sink = MemoryTensors()
    record = chain(storage=sink.put(bytes(torch.zeros(64).untyped_storage())))
    write_graph_folder(folder / "case", record, None, sink)
    file = folder / "case/graph.json"
    graph = json.loads(file.read_bytes())
    edit(graph)
    file.write_text(json.dumps(graph))
    return file


def refusal(file: Path, kind: type[GraphdbgError]) -> str:
    saved = load_graph(file.parent)
    with pytest.raises(kind) as caught:
        live.fake_module(saved.record, saved.tensors, where=str(file))
    with pytest.raises(kind):
        saved.module()
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_the_honest_case_loads(tmp_path: Path) -> None:
    saved = load_graph(case_of(tmp_path, lambda graph: None).parent)
    assert [node.name for node in saved.module().graph.nodes] == [node.name for node in saved.record.graph.nodes]


@pytest.mark.parametrize("what", REFUSED)
def test_what_must_not_run_is_refused(tmp_path: Path, what: str) -> None:
    edit, words = REFUSED[what]
    file = case_of(tmp_path, edit)
    sentence = refusal_of_any(file, RefusedError)
    assert str(file) in sentence
    assert words in sentence
    assert not Path("/tmp/graphdbg-hostile-ran").exists()


def refusal_of_any(file: Path, kind: type[GraphdbgError]) -> str:
    """The sentence, whether reading or building refuses."""
    with pytest.raises(kind) as caught:
        saved = load_graph(file.parent)
        live.fake_module(saved.record, saved.tensors, where=str(file))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("what", LACKING)
def test_what_this_process_lacks_is_named(tmp_path: Path, what: str) -> None:
    edit, words = LACKING[what]
    assert words in refusal(case_of(tmp_path, edit), EnvironmentLackError)


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_makes_no_graph_is_told(tmp_path: Path, what: str) -> None:
    edit, words = UNREADABLE[what]
    assert words in refusal_of_any(case_of(tmp_path, edit), UnreadableError)


def test_damaged_tensors_are_told(tmp_path: Path) -> None:
    file = case_of(tmp_path, lambda graph: None)
    tensor = next((file.parent / "tensors").iterdir())
    whole = tensor.read_bytes()
    for data, words in ((b"", "empty"), (whole[:-1], "bytes follow"), (whole[:-1] + b"\x01", "hash")):
        tensor.write_bytes(data)
        saved = load_graph(file.parent)
        with pytest.raises(UnreadableError, match=words):
            saved.module()


def test_string_arguments_cannot_leave_a_comment(tmp_path: Path) -> None:
    """Inductor writes a node's arguments into comments of the code that it generates: a line break there would start
    code."""
    text = "x\nimport os; os.system('true')  # \x1b[2J"
    saved = load_graph(case_of(tmp_path, node(2, kwargs={"message": text})).parent)
    result = next(node for node in saved.module().graph.nodes if "message" in node.kwargs)
    assert result.kwargs["message"].isprintable()


def test_a_stack_cannot_leave_a_raw_string(tmp_path: Path) -> None:
    text = '  File "a.py", line 1, in f\n    x)"; system("true"); R"('
    edit = lambda g: (g.update(strings=[text, *g["strings"]]), g["graph"]["nodes"][1].update(stack=0))  # noqa: E731
    saved = load_graph(case_of(tmp_path, edit).parent)
    gm = saved.module()
    traces = [node.meta.get("stack_trace", "") for node in gm.graph.nodes]
    assert any(traces)
    assert not any(')"' in trace for trace in traces)
    again = live.encode(gm, id=saved.record.id, stage=saved.record.stage)
    assert text in again.strings  # the user's own line is shown as it was


@pytest.mark.long
def test_nothing_runs_while_refusing(tmp_path: Path) -> None:
    """In a process that counts: after a first round that warms torch, refusing starts nothing and runs no code."""
    for number, (edit, _) in enumerate([*REFUSED.values(), *LACKING.values()]):
        (tmp_path / str(number)).mkdir()
        case_of(tmp_path / str(number), edit)
    done = subprocess.run([sys.executable, "-c", LOADER, str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


LOADER = """
import sys
from pathlib import Path
from graphdbg.dumps import live
from graphdbg.dumps.errors import GraphdbgError
from graphdbg.dumps.store import load_graph

seen = []

def load_all():
    for folder in sorted(Path(sys.argv[1]).iterdir()):
        try:
            saved = load_graph(folder / "case")
            live.fake_module(saved.record, saved.tensors)
        except GraphdbgError:
            continue
        sys.exit(f"{folder} was loaded")

def watch(event, args):
    if event in ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pickle.find_class", "exec"):
        if event != "exec" or "/graphdbg/" not in args[0].co_filename:
            seen.append((event, args))

load_all()  # torch imports modules of its own on first use
sys.addaudithook(watch)
load_all()
sys.exit(str(seen) if seen else 0)
"""
