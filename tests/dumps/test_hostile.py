"""Hostile and damaged dumps: each is refused with one sentence that names the file and the place in it, and nothing
runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdbg.dumps.arguments import KINDS
from graphdbg.dumps.errors import RefusedError, UnreadableError
from graphdbg.dumps.graph_folder import encode, write_graph_folder
from graphdbg.dumps.schema import FORMAT
from graphdbg.dumps.store import load_graph, open_run

from .graphs import chain, new_run

Edit = Callable[[dict[str, Any]], object]


def node(position: int, **changes: Any) -> Edit:
    return lambda graph: graph["graph"]["nodes"][position].update(changes)


def argument(arg: Any) -> Edit:
    return node(2, args=[{"node": "sin_0"}, arg])


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


def value(**changes: Any) -> Edit:
    return lambda graph: graph["graph"]["nodes"][1]["value"].update(changes)


REFUSED: dict[str, tuple[Edit, str]] = {
    "a quote in a node name": (node(1, name="a'b"), "node 1"),
    "a newline in a node name": (node(1, name="a\nimport os"), "node 1"),
    "a call as a node name": (node(1, name="__import__('os')"), "node 1"),
    "a word of Python as a node name": (node(1, name="import"), "node 1"),
    "a letter beyond ASCII in a node name": (node(1, name="ﬁ"), "node 1"),
    "a newline in a method": (node(1, op="call_method", target="sin()\nos.system"), "node 1 'sin_0', target"),
    "a dotted method": (node(1, op="call_method", target="data.storage"), "node 1 'sin_0', target"),
    "a quote in an attribute": (node(1, op="get_attr", target='w"); evil("'), "node 1 'sin_0', target"),
    "a newline in a placeholder": (node(0, target="x\n"), "node 0 'x', target"),
    "a default in a placeholder": (node(0, target="x=evil()"), "node 0 'x', target"),
    "a call as a function": (node(1, target="os.system('true')"), "node 1 'sin_0', target"),
    "another output target": (node(-1, target="evil"), "node 4 'output', target"),
    "a keyword argument that is code": (node(1, kwargs={"a=evil(), b": 1}), "keyword argument"),
    "a quote in an attribute's name": (
        lambda g: g["graph"]["attrs"].update({"a'b": g["graph"]["attrs"]["w"]}),
        "attribute",
    ),
    "a path as a tensor name": (
        lambda g: g["graph"]["attrs"]["w"].update(storage="../../../etc/passwd"),
        "attribute 'w'",
    ),
    "an absolute tensor name": (lambda g: g["graph"]["attrs"]["w"].update(storage="/etc/passwd"), "attribute 'w'"),
    "a path as an id": (lambda g: g.update(id="../../0_0/forward"), "id"),
    "a call in a symbolic argument": (argument({"sym": ["int", "__import__(os)"]}), "args[1]"),
    "a call in a size": (value(shape=[2, "exec(s0)"]), "value, shape"),
    "a call in a guard": (lambda g: g.update(guards=[{"expr": "eval(s0)"}]), "guard 0"),
    "a quote in a dtype": (value(dtype="float32'"), "dtype"),
    "a path as a device": (value(device="/dev/mem"), "device"),
    "a quote in a function argument": (argument({"function": "os.system'"}), "args[1]"),
    "a quote in a symbol": (lambda g: g["symbols"][0].update(name="s0'"), "symbol"),
    "a quote in a setting": (lambda g: g.update(config={"inductor": {"a'b": 1}}), "config 'inductor'"),
    "a quote in an input": (lambda g: g.update(inputs=[{"name": "x')"}]), "input 0"),
}

UNREADABLE: dict[str, tuple[Edit, str]] = {
    "a node that comes later": (node(1, args=[{"node": "sin_1"}]), "node 'sin_1' comes later"),
    "a node that uses itself": (node(1, args=[{"node": "sin_0"}]), "node 'sin_0' comes later"),
    "a node that is not there": (node(1, args=[{"node": "nobody"}]), "there is no node 'nobody'"),
    "a node in a slice that is not there": (argument({"slice": [{"node": "nobody"}, None, None]}), "args[1][0]"),
    "two nodes of one name": (node(2, name="sin_0"), "an earlier node has the same name"),
    "an unknown tag": (argument({"pickle": "gASV"}), "'pickle' is not a tag"),
    "two tags": (argument({"node": "x", "tuple": []}), "exactly one tag"),
    "no tag": (argument({}), "exactly one tag"),
    "a slice of two": (argument({"slice": [1, 2]}), "a list of 3"),
    "a float that is none": (argument({"float": "1e400"}), "not nan, inf or -inf"),
    "arguments without end": (argument(nested(200)), "nested"),
    "a tensor argument that is not there": (argument({"tensor": "v"}), "not among the graph's attributes"),
    "an attribute that is not there": (node(1, op="get_attr", target="v"), "no attribute 'v'"),
    "a module that is not there": (node(1, op="call_module", target="fc"), "no module 'fc'"),
    "a string that is not there": (node(1, stack=7), "there is no string 7"),
    "a size that is negative": (value(shape=[-1, 2]), "-1 is negative"),
    "sizes without strides": (value(shape=[1, 2, 3]), "3 sizes but 2 strides"),
    "a half expression": (value(shape=["2*", 1]), "expression '2*'"),
    "no output": (lambda g: g["graph"]["nodes"].pop(), "no output node"),
    "nodes after the output": (
        lambda g: g["graph"]["nodes"].append({"name": "y", "op": "placeholder", "target": "y"}),
        "not the last node",
    ),
    "another stage": (lambda g: g.update(stage="sideways"), "'sideways' is not a stage"),
    "a field of the wrong type": (node(1, name=3), "$.graph.nodes[1].name"),
    "an unknown field": (node(1, hook="os.system"), "$.graph.nodes[1]"),
    "a missing field": (lambda g: g.pop("graph"), "`graph`"),
    "another op": (node(1, op="exec"), "$.graph.nodes[1].op"),
    "a newer version": (lambda g: g.update(format=FORMAT + 1, novelty=True), "upgrade graphdbg"),
    "a version of words": (lambda g: g.update(format="one"), "format"),
    "no version": (lambda g: g.pop("format"), "format"),
    "version nought": (lambda g: g.update(format=0), "there is no format 0"),
}


def case_of(folder: Path, edit: Edit) -> Path:
    write_graph_folder(folder / "case", chain())
    file = folder / "case/graph.json"
    graph = json.loads(file.read_bytes())
    edit(graph)
    file.write_text(json.dumps(graph))
    return file


def refusal(file: Path) -> UnreadableError:
    with pytest.raises(UnreadableError) as caught:
        _ = load_graph(file.parent).record
    sentence = str(caught.value)
    assert str(file) in sentence
    assert "\n" not in sentence
    return caught.value


@pytest.mark.parametrize("what", REFUSED)
def test_what_must_not_be_built_is_refused(tmp_path: Path, what: str) -> None:
    edit, place = REFUSED[what]
    error = refusal(case_of(tmp_path, edit))
    assert isinstance(error, RefusedError)
    assert place in str(error)


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_makes_no_graph_is_told(tmp_path: Path, what: str) -> None:
    edit, place = UNREADABLE[what]
    assert place.lower() in str(refusal(case_of(tmp_path, edit))).lower()


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside a JSON document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, item in inner for deeper in places(item, (*path, key)))]


NASTY = st.sampled_from(
    ["__import__('os')", "a b", "../x", "", "s0", "9" * 50, "ａ", "x\n", "tuple", "sin_1"]
) | st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | NASTY,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NASTY | st.sampled_from(sorted(KINDS)), inner, max_size=2)
    ),
    max_leaves=6,
)


@given(st.data())
def test_any_edit_loads_or_is_told(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    graph = json.loads(encode(chain()))
    *parents, last = data.draw(st.sampled_from(places(graph)[1:]))
    target = graph
    for key in parents:
        target = target[key]
    target[last] = data.draw(JSON)
    folder = tmp_path_factory.getbasetemp() / "edited"
    folder.mkdir(exist_ok=True)
    file = folder / "graph.json"
    file.write_text(json.dumps(graph))
    try:
        saved = load_graph(folder)
        for node in saved.record.graph.nodes:
            assert node.name.isascii()
            assert node.name.isidentifier()
        assert len(saved.table) == len(saved.record.graph.nodes)
        encode(saved.record)
    except UnreadableError as error:
        assert str(file) in str(error)


def test_subgraphs_are_checked_too(tmp_path: Path) -> None:
    def edit(graph: dict[str, Any]) -> None:
        inner = json.loads(json.dumps(graph["graph"]))
        inner["nodes"][1]["name"] = "a b"
        graph["graph"]["subgraphs"] = {"body_0": inner}

    assert "subgraph 'body_0', node 1 'a b'" in str(refusal(case_of(tmp_path, edit)))


BYTES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "the file is empty"),
    "blanks": (b"  \n", "the file is empty"),
    "half": (b"{", "cut off"),
    "a list without end": (b"[" * 100_000, "graphdbg did not write it"),
    "a value without end": (b'{"format":1,"config":{"a":{"b":' + b"[" * 100_000, "nested too deeply"),
    "no text": (b"\xff\xfe", "not JSON"),
    "null": (b"null", "graphdbg did not write it"),
}


@pytest.mark.parametrize("what", BYTES)
def test_bytes_that_are_no_record(tmp_path: Path, what: str) -> None:
    data, why = BYTES[what]
    file = case_of(tmp_path, lambda graph: None)
    file.write_bytes(data)
    assert why in str(refusal(file))


def test_every_truncation_is_told(tmp_path: Path) -> None:
    file = case_of(tmp_path, lambda graph: None)
    whole = file.read_bytes()
    for size in range(0, len(whole) - 1, 97):
        file.write_bytes(whole[:size])
        refusal(file)


def test_a_graph_in_another_graphs_folder(tmp_path: Path) -> None:
    _, process = new_run(tmp_path / "run")
    process.save_graph(chain("0_0/forward")).rename(process.graph_path("0_0/joint"))
    with pytest.raises(UnreadableError, match="it is in the folder of '0_0/joint'"):
        _ = open_run(tmp_path / "run").graph("0_0/joint").record


def test_folders_and_journal_lines_that_are_no_graphs_are_ignored_and_told(tmp_path: Path) -> None:
    _, process = new_run(tmp_path / "run")
    process.save_graph(chain("0_0/forward"))
    (process.path / "graphs/evil/run").mkdir(parents=True)
    (process.path / "graphs/0_1").symlink_to("/etc")
    process.journal.event("captured", graph="../../../etc/passwd")
    run = open_run(tmp_path / "run")
    assert [graph.id for graph in run.graphs()] == ["0_0/forward"]
    assert [sentence.rpartition(": ")[2] for sentence in run.damage] == [
        "not a graph id, ignored",
        "'../../../etc/passwd' is not a graph id, ignored",
    ]


@pytest.mark.parametrize(
    "name",
    ["run.json", "process.json", "journal.jsonl", "graphs/0_0/forward/graph.json", "graphs/0_0/forward/table.msgpack"],
)
@pytest.mark.parametrize("data", [b"", b"{", b"\xff" * 50, b'{"format":99}', b"\x81\xa6format\x63"])
def test_the_command_line_shows_no_traceback(tmp_path: Path, name: str, data: bytes) -> None:
    from graphdbg.cli import run as command

    _, process = new_run(tmp_path / "run")
    process.save_graph(chain("0_0/forward"))
    process.close()
    (process.path.parent / name if name == "run.json" else process.path / name).write_bytes(data)
    for args in (
        ["ls", str(tmp_path / "run")],
        ["show", str(tmp_path / "run/0_0/forward")],
        ["show", f"{tmp_path}/run/0_0/forward", "--json"],
    ):
        assert command(args) in (0, 2)


def test_nothing_runs(tmp_path: Path) -> None:
    """All of them at once in a process that would notice: any audit event of starting or importing something else
    fails."""
    for number, (edit, _) in enumerate([*REFUSED.values(), *UNREADABLE.values()]):
        (tmp_path / str(number)).mkdir()
        case_of(tmp_path / str(number), edit)
    done = subprocess.run([sys.executable, "-c", LOADER, str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


LOADER = """
import sys
from pathlib import Path
from graphdbg.dumps.store import load_graph
from graphdbg.dumps.errors import UnreadableError

EVENTS = ("exec", "compile", "import", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen")
EVENTS += ("pickle.find_class",)
seen = []

def load_all():
    for folder in sorted(Path(sys.argv[1]).iterdir()):
        try:
            load_graph(folder / "case").record
        except UnreadableError:
            continue
        sys.exit(f"{folder} was loaded")

load_all()  # msgspec compiles the annotations of our own records once
# `ast.parse`, which reads a symbol's text, is a "compile" of an "<unknown>" file: to a tree, which nothing executes.
watched = lambda event, args: event in EVENTS and not (event == "compile" and args[1] == "<unknown>")
sys.addaudithook(lambda event, args: seen.append((event, args)) if watched(event, args) else None)
load_all()
sys.exit(str(seen) if seen else 0)
"""
