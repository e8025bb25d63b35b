"""Which rows there are: sorting, folding, search and lanes together, and how a line reads; on screen and from
`show`."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from graphdbg.dumps import sidecar
from graphdbg.dumps.browse import columns as all_columns
from graphdbg.dumps.browse.columns import COLUMNS, ROOMY_OP, cell, fitted, fitting, named, widths
from graphdbg.dumps.browse.filter import parse
from graphdbg.dumps.browse.row_texts import ASCII, FAR, MOST, RowTexts, laying
from graphdbg.dumps.browse.search import hits_of, step
from graphdbg.dumps.browse.selection import Groups, Question, Selection, Sort, grouping, selecting
from graphdbg.dumps.browse.table import GraphView
from graphdbg.dumps.errors import UsageError
from graphdbg.dumps.graph_folder import write_graph_folder
from graphdbg.dumps.schema import FORMAT
from graphdbg.dumps.tables import cut
from graphdbg.minifier.commands.show import show

from .graphs import chain
from .layered import layered

MODULES = ["", "a: A", "a: A\na.x: X", "a: A\na.y: Y", "b: B", "a: A\na.x: X\na.x.k: K"]


@pytest.fixture(scope="module")
def view() -> GraphView:
    """Some layers."""
    return GraphView(sidecar.build(layered(100)))


def random_view(count: int, seed: int) -> GraphView:
    """Nodes of random modules and inputs."""
    rng = random.Random(seed)
    table = sidecar.Table(
        FORMAT, ["", "call_function", "placeholder", "aten.mul.Tensor", "aten.add.Tensor", *MODULES[1:]]
    )
    for node in range(count):
        table.name.append(f"n_{rng.randrange(50)}_{node}")
        table.op.append(rng.choice([1, 1, 1, 2]))
        table.target.append(rng.choice([3, 4]))
        table.module.append(rng.choice([0, *range(5, 5 + len(MODULES) - 1)]))
        table.size_bytes.append(rng.choice([None, 1, 7, 9]))
        table.inputs.append(sorted(rng.sample(range(node), min(node, rng.randrange(3)))))
        table.seq_nr.append(-1)
        for column in (table.dtype, table.shape, table.stride, table.device, table.where, table.code):
            column.append(0)
    table.users = [sum(node in used for used in table.inputs) for node in range(count)]
    return GraphView(table)


def select(
    view: GraphView,
    text: str = "",
    sort: Sort | None = None,
    folded: frozenset[int] = frozenset(),
    groups: Groups | None = None,
) -> Selection:
    return selecting(view, Question(parse(text), sort, folded), groups)


@given(st.integers(0, 80), st.integers(0, 2**32), st.sampled_from(["", "op:mul", "op:placeholder"]), st.booleans())
def test_every_node_that_fits_has_one_place(count: int, seed: int, text: str, sort: bool) -> None:
    """Whatever is filtered, folded and sorted: rows stand for exactly the nodes that fit, and each is found again."""
    view = random_view(count, seed)
    groups = grouping(view)
    folded = frozenset(group for group in range(len(groups)) if random.Random(seed + group).random() < 0.5)
    selection = select(view, text, Sort("bytes", seed % 2 == 0) if sort else None, folded, groups)
    stood_for = [node for row in selection.rows for node in ([row] if row >= 0 else selection.inside(~row))]
    fitting_nodes = [
        node
        for node in range(count)
        if text in ("", f"op:{view.op(node)}") or (text == "op:mul" and view.target(node) == "aten.mul.Tensor")
    ]
    assert sorted(stood_for) == fitting_nodes and selection.matched == len(fitting_nodes)
    for place, row in enumerate(selection.rows):
        for node in [row] if row >= 0 else selection.inside(~row):
            assert selection.place(node) == place
    for node in set(range(count)) - set(fitting_nodes):
        assert selection.place(node) == -1
        assert not len(selection) or 0 <= selection.nearest(node) < len(selection)


@given(st.integers(0, 80), st.integers(0, 2**32))
def test_groups_are_stretches_of_one_module(count: int, seed: int) -> None:
    view = random_view(count, seed)
    groups = grouping(view)
    assert groups.starts == sorted(groups.starts)
    for group in range(len(groups)):
        start, end, label = groups.starts[group], groups.ends[group], groups.labels[group]
        assert end - start > 1
        for node in range(start, end):
            path = ("inputs",) if view.op(node) == "placeholder" else view.levels(view.table.module[node])
            assert label in path
        parent = groups.parents[group]
        assert parent < 0 or (groups.starts[parent] <= start and end <= groups.ends[parent])
    for node in range(count):
        inner = groups.around(node)
        opened = groups.opened_for(node, range(len(groups)))
        assert node in groups.rows(opened)
        assert inner == -1 or groups.starts[inner] <= node < groups.ends[inner]


@pytest.mark.parametrize("key", ["name", "op", "bytes", "users", "module", "flops", "shape", "file", "dtype", "index"])
def test_sorting_keeps_all_and_turns_round(view: GraphView, key: str) -> None:
    rising, falling = (select(view, "", Sort(key, way)).rows for way in (False, True))
    assert sorted(rising) == sorted(falling) == list(range(len(view)))
    if key in ("bytes", "flops", "users"):
        read = (
            view.flops
            if key == "flops"
            else (view.table.size_bytes if key == "bytes" else view.table.users).__getitem__
        )
        known = [number for node in rising if (number := read(node)) is not None]
        assert known == sorted(known) and read(falling[0]) == max(known)
        missing = sum(read(node) is None for node in rising)
        assert all(read(node) is None for rows in (rising, falling) for node in rows[len(rows) - missing :])
    if key == "name":
        assert [view.table.name[node] for node in rising[:3]] == ["add_4", "add_12", "add_16"]


def test_sorting_is_stable_and_a_selection_keeps_its_filter(view: GraphView) -> None:
    equal = select(view, "op:mul", Sort("dtype"))
    assert list(equal.rows) == sorted(equal.rows)
    again = selecting(view, Question(parse("op:mul"), Sort("name")), None, equal)
    assert again.nodes is equal.nodes and equal.count_text == f"{len(equal)} of {len(view)}"


def test_search_goes_round(view: GraphView) -> None:
    hits = hits_of(view, "gelu")
    assert hits == [node for node in range(len(view)) if "gelu" in view.text[view.table.code[node]]]
    assert hits_of(view, "GELU") == [] and hits_of(view, "F.gelu") == hits and hits_of(view, "") == []
    assert step(hits, hits[0], forward=True) == (hits[1], 2, False)
    assert step(hits, hits[-1], forward=True) == (hits[0], 1, True)
    assert step(hits, hits[0], forward=False) == (hits[-1], len(hits), True)
    assert step([], 3, forward=True) is None
    assert hits_of(view, "gelu", hits[3:5]) == hits[3:5]
    module = hits_of(view, "blocks.1")
    assert module and all("blocks.1" in view.text[view.table.module[node]] for node in module)


def test_a_line_of_code_counts_only_where_no_node_has_the_text() -> None:
    result = chain(nodes=4)
    other, last = result.graph.nodes[2:]
    other.name, other.target, last.args = "other", "aten.cos.default", []  # of the line "return h.sin()", as sin_0
    small = GraphView(sidecar.build(result))
    assert [hits_of(small, text) for text in ("sin", "h.sin", "nowhere")] == [[1], [1, 2], []]


@given(st.integers(1, 120), st.integers(0, 2**32))
def test_lanes_hold_one_value_at_a_time(count: int, seed: int) -> None:
    view = random_view(count, seed)
    lanes = laying(view)
    until: dict[int, int] = {}
    for node in range(count):
        lane, last = lanes.lane[node], view.user_lists.last(node)
        if lane < MOST:
            assert until.get(lane, 0) <= node < last <= node + FAR
            until[lane] = last
        for glyphs in ({}, ASCII):
            gutter = lanes.gutter(node, *[glyphs] if glyphs else [])
            assert len(gutter) == lanes.width
            assert not glyphs or gutter.isascii()


def test_a_gutter_reads(view: GraphView) -> None:
    lanes = laying(view)
    first = view.position("mean_0") or 0
    assert [lanes.gutter(node).strip() for node in range(first, first + 3)] != ["", "", ""]


def test_columns_give_way_in_their_order(view: GraphView) -> None:
    wide = widths(view, COLUMNS[:12])
    before: set[str] = set()
    for width in range(40, 200, 5):
        shown = fitting(COLUMNS[:12], wide, width)
        keys = {column.key for column, _ in shown}
        assert {"index", "name", "op", "shape"} <= keys and before <= keys
        assert sum(size + 2 for _, size in shown) - 2 <= width
        before = keys
    assert len(before) == 12
    assert [column.key for column, _ in fitting(COLUMNS[:12], wide, 50)] == ["index", "name", "op", "dtype", "shape"]
    for width in range(70, 200, 5):  # no stride costs an op its letters
        sizes = {column.key: size for column, size in fitting(COLUMNS[:12], wide, width)}
        assert sizes["op"] >= min(wide["op"], ROOMY_OP)


def test_the_longest_text_of_a_small_graph_is_whole() -> None:
    small = GraphView(sidecar.build(chain()))
    shown = fitting(COLUMNS[:12], widths(small, COLUMNS[:12]), 90)
    name, op = (next(size for column, size in shown if column.key == key) for key in ("name", "op"))
    assert name == len("output") and op == len("placeholder")


def test_columns_by_name() -> None:
    assert [column.key for column in named("name, target #")] == ["name", "op", "index"]
    with pytest.raises(UsageError, match="Did you mean bytes"):
        named("byte")


@given(st.text(max_size=30), st.integers(1, 40), st.sampled_from(list(COLUMNS)))
def test_cells_have_their_width(text: str, width: int, column: all_columns.NodeColumn) -> None:
    from rich.cells import cell_len

    from graphdbg.dumps.tables import plain

    assert cell_len(fitted(plain(text), width, column)) == width or not plain(text).isascii()


def test_cut() -> None:
    cuts = [cut("layers.12.attention", 9, where) for where in ("start", "middle", "end")]
    assert cuts == ["…ttention", "laye…tion", "layers.1…"]
    assert cut("ab", 1, "end") == "a" and cut("ab", 2, "middle") == "ab"


def test_lines_read_as_their_headings(view: GraphView) -> None:
    groups = grouping(view)
    selection = select(view, "", None, groups.to_depth(0), groups)
    shown = fitting(COLUMNS[:12], widths(view, COLUMNS[:12]), 150)
    texts = RowTexts(selection, shown)
    heading = texts.heading(Sort("bytes", True))
    assert "bytes▼" in heading.replace(" ", "") and texts.key_at(heading.index("name")) == "name"
    group, node = next(row for row in selection.rows if row < 0), len(view) - 1
    lines = {len("".join(texts(row))) for row in (group, node, 0)}
    assert lines == {len(heading)}
    assert "inputs" in "".join(texts(group)) and f"{len(selection.inside(~group))} nodes" in "".join(texts(group))
    assert cell(view, "name", node) in "".join(texts(node))


# -- the command


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A case folder."""
    folder = tmp_path_factory.mktemp("rows") / "case"
    write_graph_folder(folder, layered(100))
    return folder


def test_show_prints_the_rows_of_the_screen(case: Path) -> None:
    def run(*words: str) -> list[str]:
        done = CliRunner().invoke(show, [str(case), *words], catch_exceptions=False)
        assert done.exit_code == 0
        return done.stdout.splitlines()

    fitting_rows = run("--filter", "op:mm users>0", "--sort", "index:down")
    assert [line.split()[1] for line in fitting_rows[1:4]] == ["mm_100", "mm_93", "mm_83"]
    assert run("--columns", "name,flops", "--filter", "op:mm")[1].split() == ["mm_8", "262k"]
    assert run("--columns", "name,inputs", "--filter", "op:mm")[1].split()[0] == "mm_8"
    folded = json.loads("\n".join(run("--fold", "0", "--json")))["nodes"]
    assert folded[0]["module"] == "inputs" and folded[1]["module"] == "blocks.0" and folded[1]["nodes"] == 17
    nodes = json.loads("\n".join(run("--find", "gelu", "--json")))["nodes"]
    assert {node["code"] for node in nodes} == {"h = F.gelu(h)"} and nodes[0]["contiguous"] is True
    for words, why in (
        (["--filter", "opp:mm"], "character 1"),
        (["--sort", "siez"], "no column"),
        (["--columns", "nan"], "no values"),
        (["--fold", "1", "--sort", "name"], "together"),
        (["--stats", "--filter", "x"], "(?i)leave one out"),
        (["--sort", "name:left"], "up or down"),
    ):
        with pytest.raises(UsageError, match=why):
            CliRunner().invoke(show, [str(case), *words], catch_exceptions=False)
