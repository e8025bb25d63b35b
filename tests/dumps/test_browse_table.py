"""One graph's table as screens and `show` read it: its users, modules, strides and FLOPs."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdbg.dumps import sidecar
from graphdbg.dumps.browse.search import find_place
from graphdbg.dumps.browse.table import GraphView, ReplayedValue, formula_of, strided, tensors, users_of
from graphdbg.dumps.errors import UnreadableError, UsageError
from graphdbg.dumps.graph_folder import write_graph_folder
from graphdbg.dumps.names import Level, levels
from graphdbg.dumps.schema import NodeRecord
from graphdbg.dumps.store import SavedGraph

from .graphs import chain
from .layered import layered, value


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A case folder with 300 nodes and a sidecar."""
    folder = tmp_path_factory.mktemp("browse") / "case"
    write_graph_folder(folder, layered(300))
    return folder


def test_a_graph_without_a_sidecar_is_read_from_its_record(case: Path, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    write_graph_folder(folder, chain())
    (folder / sidecar.TABLE).unlink()
    view = GraphView(SavedGraph(folder).table)
    assert view.table == sidecar.build(chain())


@given(st.data())
def test_damage_is_told(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """Whatever the file holds, it gives a table whose columns fit together, or is said to be unreadable."""
    folder = tmp_path_factory.getbasetemp() / "damaged"
    if not folder.exists():
        write_graph_folder(folder, chain())
    whole: dict[str, Any] = msgspec.msgpack.decode(sidecar.encode(chain()))
    for name in data.draw(st.lists(st.sampled_from(list(whole)), max_size=2)):
        odd = st.one_of(st.none(), st.integers(-2, 99), st.lists(st.integers(-1, 12), max_size=6), st.just([[9]] * 5))
        whole[name] = data.draw(odd)
    encoded = msgspec.msgpack.encode(whole)
    (folder / sidecar.TABLE).write_bytes(encoded[: data.draw(st.sampled_from([len(encoded), len(encoded) // 2]))])
    with contextlib.suppress(UnreadableError):
        table = SavedGraph(folder).table
        assert len(list(table.rows())) == len(table.name) == len(table.inputs)


@given(st.integers(0, 60), st.integers(0, 2**32))
def test_users_are_the_inputs_turned_round(count: int, seed: int) -> None:
    rng = random.Random(seed)
    inputs = [sorted(rng.sample(range(node), min(node, rng.randrange(4)))) for node in range(count)]
    users = users_of(inputs)
    for node in range(count):
        assert users(node) == [other for other in range(count) if node in inputs[other]]
        assert users.last(node) == max((other for other in range(count) if node in inputs[other]), default=-1)


def test_modules_are_dotted_paths() -> None:
    text = "L['self'].blocks.0: model.Block\nL['self'].blocks.0.up: torch.nn.Linear"
    assert levels(text) == (Level("blocks.0", "Block"), Level("blocks.0.up", "Linear"))
    assert levels("") == () and levels("L['self']: model.Net") == ()
    assert levels("L['self'].a\x1b[2J: x") == (Level("a\\x1b[2J", "x"),)


@pytest.mark.parametrize(
    ("shape", "stride", "expected"),
    [
        ([4, 8], [8, 1], False),
        ([4, 8], [1, 4], True),
        ([4, 1, 8], [8, 99, 1], False),
        ([], [], False),
        ([0, 3], [1, 1], False),
        ([2, 3], [0, 1], True),
        (["s0", 8], [8, 1], False),
        (["s0", 8], [16, 1], True),
        ([8, "s0"], ["s0", 1], False),
        ([[4, 8], None, [2]], [[8, 1], None, [2]], True),
        (None, None, False),
        ("s0", None, False),
    ],
)
def test_what_is_not_contiguous(shape: Any, stride: Any, expected: bool) -> None:
    assert strided(shape, stride) is expected


def test_tensors_of_a_value() -> None:
    assert tensors([2, "s0"]) == [[2, "s0"]] and tensors([[2], None, [[3]]]) == [[2], [3]] and tensors("s0") == []


def one_call(target: str, inputs: list[Any], result: Any) -> GraphView:
    """A view of a graph with one call."""
    record = layered(1)
    nodes = [
        NodeRecord(name=f"x{at}", op="placeholder", target=f"x{at}", value=value(*shape))
        for at, shape in enumerate(inputs)
    ]
    args = [{"node": node.name} for node in nodes]
    record.graph.nodes = [*nodes, NodeRecord(name="y", op="call_function", target=target, args=args, value=result)]
    return GraphView(sidecar.build(record))


@pytest.mark.parametrize(
    ("target", "inputs", "shape", "expected"),
    [
        ("aten.mm.default", [(8, 64), (64, 256)], (8, 256), 2 * 8 * 64 * 256),
        ("aten.addmm.default", [(256,), (8, 64), (64, 256)], (8, 256), 2 * 8 * 64 * 256),
        ("aten.bmm.default", [(3, 8, 64), (3, 64, 5)], (3, 8, 5), 2 * 3 * 8 * 64 * 5),
        ("torch.nn.functional.linear", [(2, 8, 64), (256, 64), (256,)], (2, 8, 256), 2 * 2 * 8 * 64 * 256),
        (
            "aten.convolution.default",
            [(2, 3, 32, 32), (16, 3, 5, 5), (16,)],
            (2, 16, 28, 28),
            2 * 2 * 16 * 28 * 28 * 3 * 25,
        ),
        (
            "aten.convolution.default",
            [(2, 6, 8, 8), (6, 4, 3, 3)],
            (2, 4, 10, 10),
            2 * 2 * 6 * 8 * 8 * 4 * 9,
        ),  # transposed
        (
            "aten._scaled_dot_product_flash_attention.default",
            [(4, 2, 16, 8), (4, 2, 32, 8), (4, 2, 32, 8)],
            (4, 2, 16, 8),
            2 * 4 * 2 * 16 * 32 * (8 + 8),
        ),
        ("aten.add.Tensor", [(8, 64), (8, 64)], (8, 64), None),
    ],
)
def test_flops_follow_from_shapes(target: str, inputs: list[Any], shape: tuple[int, ...], expected: int | None) -> None:
    view = one_call(target, inputs, value(*shape))
    assert view.flops(len(view) - 1) == expected


def test_flops_of_a_symbol_are_not_guessed() -> None:
    assert formula_of("aten.mm.default") is not None
    assert one_call("aten.mm.default", [("s0", 64), (64, 8)], value(4, 8)).flops(2) is None


def test_a_place_by_name_number_and_line(case: Path) -> None:
    view = GraphView(SavedGraph(case).table)
    name = view.table.name[40]
    assert find_place(view, name) == 40 == find_place(view, "#40") == find_place(view, " 40 ")
    assert find_place(view, view.table.name[-1][:4]) == len(view) - 1
    line = find_place(view, "model.py:14")
    assert view.text[view.table.where[line]] == "model.py:14" and find_place(view, ":14") == line
    for wrong, why in (
        ("99999", "the last of"),
        ("mean", "names begin with it"),
        ("meam_0", "(?i)did you mean"),
        ("model.py:99", "line"),
    ):
        with pytest.raises(UsageError, match=why):
            find_place(view, wrong)


def test_values_of_a_replay_are_taken_by_name(case: Path) -> None:
    view = GraphView(SavedGraph(case).table)
    view.take_values(
        {view.table.name[5]: (-1.0, 2.0, 0, 3, 1e-3), "gone": (0, 0, 0, 0, 0), view.table.name[6]: (None,)}
    )
    assert (
        view.values.get(5) == ReplayedValue(-1.0, 2.0, 0, 3, 1e-3)
        and view.values.get(6) == ReplayedValue()
        and view.values.get(7) is None
    )
