"""What tables show: columns equal the record, and a table's text can neither break nor colour the terminal."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdbg.dumps import sidecar, statistics
from graphdbg.dumps.errors import UnreadableError
from graphdbg.dumps.graph_folder import write_graph_folder
from graphdbg.dumps.schema import ConstValue, OpaqueValue, SequenceValue, SymValue, TensorValue
from graphdbg.dumps.store import load_graph
from graphdbg.dumps.tables import Column, plain, render
from graphdbg.dumps.walk import user_frame

from .graphs import STACK, chain, tensor_value


def test_rows_say_what_the_record_says() -> None:
    table = sidecar.build(chain(nodes=4))
    x, sin, _, output = table.rows()
    assert (x.name, x.op, x.users, x.inputs, x.where) == ("x", "placeholder", 1, [], "")
    assert (sin.target, sin.dtype, sin.inputs, sin.users) == ("aten.sin.default", "float32", [0], 1)
    assert (sin.where, sin.code) == ("model.py:12", "return h.sin()")
    assert (sidecar.dims_text(sin.shape), sidecar.dims_value(sin.stride)) == ("[2, s0]", ["s0", 1])
    assert (sin.size_bytes, output.inputs, output.dtype) == (24, [2], "")


@pytest.mark.parametrize(
    ("value", "columns"),
    [
        (tensor_value(2, 3), ("float32", "[2, 3]", "[3, 1]", "cpu", 24)),
        (TensorValue("bool", [], [], device="cuda:0"), ("bool", "[]", "[]", "cuda:0", 1)),
        (SymValue("int", "s0 + 1", 4), ("SymInt", '"s0 + 1"', "", "", 0)),
        (
            SequenceValue("tuple", [tensor_value(2), ConstValue(None), tensor_value("s0")]),
            ("float32; -; float32", '[[2], null, ["s0"]]', "[[1], null, [1]]", "cpu", None),
        ),
        (OpaqueValue("Generator"), ("", "", "", "", 0)),
        (None, ("", "", "", "", None)),
        (tensor_value(2**62, 4), ("float32", f"[{2**62}, 4]", "[4, 1]", "cpu", None)),
    ],
)
def test_values(value: sidecar.Value | None, columns: tuple[object, ...]) -> None:
    assert sidecar.value_columns(value, lambda dim: dim if isinstance(dim, int) else None) == columns


def test_a_stack_without_frames_has_no_line() -> None:
    assert user_frame("") == ("", "")
    assert user_frame('File "<eval_with_key>.3", line 7, in forward') == ("<eval_with_key>.3:7", "")


def test_the_user_line_is_outside_torch() -> None:
    file = "/env/lib/python3.11/site-packages/torch/nn/modules/linear.py"
    library = f'  File "{file}", line 130, in forward\n    return F.linear(input)\n'
    assert user_frame(STACK + library) == ("model.py:12", "return h.sin()")
    assert user_frame(library) == ("linear.py:130", "return F.linear(input)")
    assert user_frame('File "a.py", line 1, in f\nFile "b.py", line 2, in g\n') == ("b.py:2", "")


def test_a_missing_sidecar_is_rebuilt_and_a_damaged_one_told(tmp_path: Path) -> None:
    write_graph_folder(tmp_path / "case", chain())
    whole = load_graph(tmp_path / "case").table
    file = tmp_path / "case/table.msgpack"
    data = file.read_bytes()
    known = msgspec.msgpack.decode(data)
    for damaged in (
        b"",
        data[:-3],
        b"\xc1",
        msgspec.msgpack.encode({"format": 1, "strings": [], "name": ["x"]}),
        data[:40],
        *(
            msgspec.msgpack.encode(known | {"strings": [re.sub(r"^\[.*", dims, text) for text in known["strings"]]})
            for dims in ("[8, ", "8", "[" * 10**5)
        ),
    ):
        file.write_bytes(damaged)
        with pytest.raises(UnreadableError, match=r"table\.msgpack"):
            _ = load_graph(tmp_path / "case").table
    file.write_bytes(msgspec.msgpack.encode({**msgspec.msgpack.decode(data), "format": 2}))
    with pytest.raises(UnreadableError, match="Upgrade graphdbg"):
        _ = load_graph(tmp_path / "case").table
    file.unlink()
    assert load_graph(tmp_path / "case").table == whole


@given(st.binary(max_size=200))
def test_any_bytes_are_a_table_or_a_sentence(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "table.msgpack"
    file.write_bytes(data)
    with pytest.raises(UnreadableError):
        sidecar.read_table(file)


def test_statistics_count() -> None:
    record = chain(nodes=6)
    for node in record.graph.nodes[:-1]:
        node.value = tensor_value(2, 8)
    result = statistics.of(sidecar.build(record))
    assert (result.nodes, result.targets, result.input_bytes, result.computed_bytes) == (
        6,
        {"aten.sin.default": 4},
        64,
        256,
    )
    assert "4 call_function" in statistics.text(result)


@given(st.lists(st.tuples(st.text(), st.text()), max_size=5))
def test_a_table_has_one_line_per_row_and_no_controls(rows: list[tuple[str, str]]) -> None:
    text = render([Column("name"), Column("n", right=True)], rows)
    assert text.count("\n") == len(rows)
    assert not any((ord(letter) < 32 and letter != "\n") or letter == "\x7f" for letter in text)


def test_escapes_of_a_dump_do_not_reach_the_terminal() -> None:
    assert plain("a\x1b[2Jb\nc") == "a\\x1b[2Jb c"
    assert "\x1b[2J" not in render([Column("name")], [("\x1b[2J",)], terminal=True)
    assert "[bold]" in render([Column("name")], [("[bold]x[/bold]",)], terminal=True)
