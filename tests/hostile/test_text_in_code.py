"""Text of a dump never ends the literal or the comment that Inductor writes it into: not in C++, Python or Triton
source.

Each claim is made twice: with the one function that makes text inert, and with that switched off, where the marks are
found and the payloads run. What compiles is slow: C++ takes seconds, and its headers are compiled once for each cache.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphdbg.dumps import inert, live, trust
from graphdbg.dumps.errors import GraphdbgError
from graphdbg.dumps.schema import GuardRecord, NodeRecord, Record
from graphdbg.dumps.store import load_graph

from ..dumps.graphs import chain, tensor_value
from .breakouts import ARGUMENTS, ENDINGS, MESSAGE, NAMES, WAYS
from .marked import ENDS, full, mark, places, put

BACKENDS = ("cpp", "cpp_wrapper", "aoti", "triton")
UNSAFE = re.compile(r"""['"\\{}\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|\*/|/\*|\?\?|<[A-Z_]""")
SINKS = (
    "graph.nodes.*.args(aten._assert_async.msg).1",
    "graph.nodes.*.args(hostile.tell.default).1",
    "graph.nodes.*.args(_c10d_functional.all_reduce.default).2",
    "graph.nodes.*.from_node(aten.sin.default).0",
    "graph.nodes.*.meta(aten.sin.default).source_fn_stack.0.1",
)
"""Texts that do stand in the source of every backend, as words."""
ALSO_AHEAD = (SINKS[0], SINKS[2], "graph.nodes.*.meta(aten.sin.default).source_fn_stack.0.1")
"""Those of them that do so ahead of time, too, where the graph is traced once more, and operators of libraries go to
JSON."""


@given(st.text() | st.lists(st.sampled_from([*ENDS, "<", "DEF", "?", "/", "*", "x"])).map("".join))
@example("".join(ENDS))
def test_nothing_that_ends_anything_is_left(text: str) -> None:
    result = inert.text(text)
    assert UNSAFE.search(result) is None
    assert inert.text(result) == result
    assert UNSAFE.search(inert.name(text)) is None and re.fullmatch(r"\w{0,100}", inert.name(text), re.ASCII)
    assert all(UNSAFE.search(line) is None for line in inert.lines(text).split("\n") if '"' not in line)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("Runtime assertion failed for u0 <= 5 on node 'ge'", "Runtime assertion failed for u0 <= 5 on node `ge`"),
        ('say "hi"\n\ttwice', "say ``hi``<0x0a><0x09>twice"),
        ("bij,bjk->bik", "bij,bjk->bik"),
        ("größer als π", "größer als π"),
        ("C:\\model */ <STORE_OUTPUT>", "C:/model * / < STORE_OUTPUT>"),
    ],
)
def test_what_is_left_can_be_read(text: str, result: str) -> None:
    assert inert.text(text) == result


def test_frames_stay_frames() -> None:
    stack = '  File "/home/ann/my model.py", line 3, in forward\n    x = f("a")\n'
    assert inert.lines(stack) == '  File "/home/ann/my model.py", line 3, in forward\n    x = f(``a``)\n'
    assert ')"' not in inert.lines('  File "x)", line 1, in f')


def test_trust_leaves_text_as_recorded() -> None:
    text = mark(0)
    with trust.granted():
        assert inert.text(text) == inert.name(text) == inert.lines(text) == text
    assert inert.text(text) != text


def test_the_users_own_words_are_saved_again() -> None:
    """A graph that comes out of a dump and goes into another keeps what was written."""
    record = chain()
    node = record.graph.nodes[1]
    node.from_node = ["it's", 'a "name"']
    node.meta = {"source_fn_stack": [["f's", "torch.nn.functional.gelu"]], "custom": {"dict": [["k", "it's"]]}}
    node.kwargs = {"words": "isn't", "more": {"tuple": ['a "name"']}}
    node.module = len(record.strings)
    record.strings.append("L['self'].fc: torch.nn.Linear")
    record.guards.append(GuardRecord("s0 > 1", kind="assert", message='say "so"'))
    record.symbols[0].source = "L['x'].size()[0]"
    gm, _, _ = live.fake_module(record, None)
    live_node = next(item for item in gm.graph.nodes if item.name == node.name)
    assert live_node.kwargs["words"] == "isn`t" and live_node.meta["source_fn_stack"] == [("f`s", "gelu")]
    again = live.encode(gm, id=record.id, stage=record.stage)
    result = again.graph.nodes[1]
    assert (result.from_node, result.meta, result.kwargs) == (node.from_node, node.meta, node.kwargs)
    assert (again.strings[result.stack], again.strings[result.module]) == (record.strings[0], record.strings[-1])
    assert again.symbols[0].source == "L['x'].size()[0]"
    assert [guard.message for guard in again.guards] == ['say "so"']


def test_a_field_of_tomorrow_is_marked_by_itself() -> None:
    class Tomorrow(NodeRecord):
        words: str = ""
        notes: list[str] = []
        held: dict[str, str] = {}

    kinds = {
        f"{place.kind} {place.what}" for place in places(full(Tomorrow("x", "placeholder", "x", value=tensor_value(2))))
    }
    assert {"words set", "notes append", "held key", "name set", "value.dtype set", "from_node(x) append"} <= kinds
    assert put({"a": [""]}, {places({"a": [""]})[2]: "m"}) == {"a": ["m"]}
    assert all(issubclass(kind, Record) for kind in (Tomorrow, NodeRecord))


def test_a_program_that_is_compiled_has_inert_text() -> None:
    """repro.py goes through torch.compile, which writes the message into C++ once more."""
    record = chain()
    evil = WAYS["a message, in C++"].text("/tmp/x")
    record.graph.nodes[1] = NodeRecord("told", "call_function", MESSAGE, args=[{"node": "x"}, evil])
    record.config = {"inductor": {"aot_inductor.serialized_in_spec": f'{evil})"'}}
    result = inert.record(record)
    assert UNSAFE.search(result.graph.nodes[1].args[1]) is None
    assert UNSAFE.search(str(result.config["inductor"]["aot_inductor.serialized_in_spec"])) is None
    assert record.graph.nodes[1].args[1] == evil
    with trust.granted():
        assert inert.record(record) == record


@pytest.mark.long
def test_no_mark_is_left_in_a_live_graph(child: Any, talking: Path) -> None:
    """Whatever torch can reach of a graph, and so write into any code: names, arguments, metadata, facts on symbols,
    settings."""
    reply = child("marked", case=str(talking))
    assert reply["left"] == []
    assert len(reply["taken"]) > 100 and set(SINKS) <= set(reply["seen"])


@pytest.mark.long
def test_marks_are_left_without_the_escape(child: Any, talking: Path) -> None:
    left = "\n".join(child("marked", case=str(talking), off=True)["left"])
    assert [sink for sink in SINKS if sink not in left] == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_mark_is_left_in_generated_code(child: Any, talking: Path, backend: str) -> None:
    reply = child("marked", case=str(talking), backend=backend)
    assert (reply["left"], reply["error"]) == ([], "")
    assert set(SINKS if backend != "aoti" else ALSO_AHEAD) <= set(reply["seen"])


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_marks_are_left_in_generated_code_without_the_escape(child: Any, talking: Path, backend: str) -> None:
    reply = child("marked", case=str(talking), backend=backend, off=True)
    assert reply["error"] == "" and [item for item in ALSO_AHEAD if item not in "\n".join(reply["left"])] == []


@pytest.mark.slow
@pytest.mark.parametrize("held", ["by the escape", "by the wall", "by nothing"])
@pytest.mark.parametrize("name", WAYS)
def test_a_payload_runs_only_without_the_escape_and_the_wall(
    child: Any, talking: Path, tmp_path: Path, name: str, held: str
) -> None:
    case, ran = tmp_path / "case", tmp_path / "ran"
    if WAYS[name].backend == "aoti":
        child("make", case=str(case), of="held")
    else:
        shutil.copytree(talking, case)
    graph = json.loads((case / "graph.json").read_bytes())
    WAYS[name].edit(graph, str(ran))
    (case / "graph.json").write_text(json.dumps(graph))
    (tmp_path / "own").mkdir()
    off, wall = held != "by the escape", held == "by the wall"
    answer = child("run", wall=wall, case=str(case), folder=str(tmp_path / "own"), backend=WAYS[name].backend, off=off)
    assert ran.exists() == (held == "by nothing"), answer["raised"]
    assert not wall or "touch: cannot touch" in answer["output"], answer  # it ran


@pytest.fixture(scope="module")
def of_arguments(child: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is left of marks in the code of a graph with further operators, with the escape and without."""
    case = tmp_path_factory.mktemp("more") / "case"
    child("make", case=str(case), of="more")
    return {escape: child("marked", case=str(case), backend="cpp", off=escape == "off") for escape in ("on", "off")}


@pytest.mark.slow
@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_stands_in_code_only_as_words(of_arguments: dict[str, Any], name: str) -> None:
    on, off = of_arguments["on"], of_arguments["off"]
    assert (on["error"], off["error"], on["left"]) == ("", "", [])
    assert any(kind.endswith(ARGUMENTS[name]) for kind in on["seen"])
    assert ARGUMENTS[name] in "\n".join(off["left"])


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_code_is_refused(talking: Path, tmp_path: Path, name: str, ending: str) -> None:
    graph = json.loads((talking / "graph.json").read_bytes())
    NAMES[name](graph, ENDINGS[ending].format(tmp_path / "ran"))
    shutil.copytree(talking, tmp_path / "case")
    (tmp_path / "case" / "graph.json").write_text(json.dumps(graph))
    with pytest.raises(GraphdbgError):
        live.fake_module(load_graph(tmp_path / "case").record, None)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "words", ["__import__('os').system('true')", "1; x", "tl.core.os", "'a' + b", "a b", "'''", "x\ny"]
)
def test_options_of_kernels_are_words(words: str) -> None:
    """Inductor writes `KEY : tl.constexpr = VALUE` into Triton source, with no quotes around either."""
    record = chain()
    record.graph.nodes[1].target = "higher_order.flex_attention"
    record.graph.nodes[1].kwargs = {
        "kernel_options": {"dict": [[words, words], ["PRECISION", "'ieee'"], ["BLOCK_M", 64]]}
    }
    gm, _, _ = live.fake_module(record, None)
    options = next(node for node in gm.graph.nodes if "kernel_options" in node.kwargs).kwargs["kernel_options"]
    result, *others = options.items()
    assert all(re.fullmatch(r"\w*", item, re.ASCII) for item in result)
    assert others == [("PRECISION", "'ieee'"), ("BLOCK_M", 64)]
    assert live.encode(gm, id=record.id, stage=record.stage).graph.nodes[1].kwargs == record.graph.nodes[1].kwargs
