"""Pictures read back: no two boxes overlap, frames hold what is theirs and nothing else, every text lies in its box."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from graphdbg.dumps.store import Run
from graphdbg.toolkit.drawing import dot, nodes, overview, picture
from graphdbg.toolkit.drawing.dot import FAMILIES, Box, Cluster, Edge, View
from graphdbg.toolkit.drawing.source import DrawnGraph, of_record, of_saved

from ...dumps.layered import layered
from .svg_boxes import Picture, Rectangle, read


def drawn_picture(view: View) -> Picture:
    data, _ = picture.rendered(dot.source(view), "svg")
    return read(data.decode())


def without_modules(graph: DrawnGraph, *, lines: bool) -> DrawnGraph:
    for node in graph.nodes:
        node.modules = ()
        node.frames = node.frames if lines else ()
    return graph


VIEWS: dict[str, Callable[[Run], View]] = {
    "transformer forward": lambda run: nodes.whole(of_saved(run.graph("0_0/forward"))),
    "transformer backward": lambda run: nodes.whole(of_saved(run.graph("0_0/backward"))),
    "transformer both": lambda run: picture.side_by_side(*picture.of(run.graph("0_0/forward"))),
    "transformer both by module": lambda run: picture.side_by_side(
        *picture.of(run.graph("0_0/backward")), by_module=True
    ),
    "convnet joint": lambda run: nodes.whole(of_saved(run.graph("1_0/joint"))),
    "convnet joint halves": lambda run: picture.side_by_side(*picture.of(run.graph("1_0/joint")), by_module=True),
    "convnet by module": lambda run: overview.overview(of_saved(run.graph("1_0/forward"))),
    "neighbourhood": lambda run: nodes.around(of_saved(run.graph("0_0/forward")), "relu", 3),
    "300 nodes": lambda run: nodes.whole(of_record(layered(280))),
    "10,000 nodes by module": lambda run: overview.overview(of_record(layered(10_000))),
    "3,000 nodes by line": lambda run: overview.overview(without_modules(of_record(layered(3_000)), lines=True)),
    "3,000 nodes by runs": lambda run: overview.overview(without_modules(of_record(layered(3_000)), lines=False)),
}


@pytest.fixture(scope="module", params=VIEWS)
def drawn(request: pytest.FixtureRequest, real_run: Run) -> tuple[View, Picture]:
    view = VIEWS[request.param](real_run)
    return view, drawn_picture(view)


@pytest.mark.long
def test_every_box_is_in_the_picture_and_no_two_overlap(drawn: tuple[View, Picture]) -> None:
    view, result = drawn
    assert set(result.boxes) == {box.id for box in view.boxes}
    assert len(result.boxes) > 3
    assert overlapping(result) == []


def test_frames_hold_what_is_theirs_and_nothing_else(drawn: tuple[View, Picture]) -> None:
    view, result = drawn
    assert set(result.frames) == {f"cluster_{cluster.id}" for cluster in view.clusters}
    around = {cluster.id: cluster.parent for cluster in view.clusters}
    for box in view.boxes:
        homes = set(enclosing(box.cluster, around))
        for title, frame in result.frames.items():
            place = result.boxes[box.id].place
            assert frame.place.holds(place) if title in homes else not frame.place.overlaps(place), (box.id, title)
    for cluster in view.clusters:
        homes = {f"cluster_{cluster.id}", *enclosing(cluster.parent, around)}
        for title, frame in result.frames.items():
            own = result.frames[f"cluster_{cluster.id}"].place
            assert frame.place.holds(own) if title in homes else own.holds(frame.place) or not own.overlaps(frame.place)


def test_every_text_fits_its_box_and_hides_no_other(drawn: tuple[View, Picture]) -> None:
    view, result = drawn
    for box in view.boxes:
        shape = result.boxes[box.id]
        assert [text.text for text in shape.texts] == [text for text, _, _ in dot.lines_of(box)]
        assert [text.text for text in shape.texts if not shape.place.holds(text.place, 1.0)] == []
        assert not [1 for a, b in itertools.combinations(shape.texts, 2) if a.place.overlaps(b.place)]


def test_labels_of_edges_lie_on_no_box_and_on_no_other_label(drawn: tuple[View, Picture]) -> None:
    view, result = drawn
    assert (
        len(result.labels) >= sum(bool(edge.label) for edge in view.edges) * 0.9
    )  # edges between the same boxes share a title
    both = itertools.product(result.labels.items(), result.boxes.items())
    assert [(label, box) for (label, first), (box, second) in both if first.place.overlaps(second.place, 2)] == []
    pairs = itertools.combinations(result.labels.items(), 2)
    assert [(a, b) for (a, first), (b, second) in pairs if first.place.overlaps(second.place, 2)] == []


def test_the_reader_sees_boxes_that_overlap() -> None:
    """What the tests above rest on: boxes that were laid one on the other are found."""
    view = View("made up", "nodes", [Box("a", "one"), Box("b", "two")], [], [Edge("a", "b")])
    text = dot.source(view)
    data, _ = picture.rendered(text, "svg")
    content = read(data.decode())
    assert overlapping(content) == []
    place = content.boxes["a"].place
    content.boxes["b"].place = Rectangle(place.left + 5, place.top + 5, place.right + 5, place.bottom + 5)
    assert overlapping(content) == [("a", "b")]


HOSTILE = ['"quoted" \\ \\n', "<b>&amp;</b>", "\x1b[31mred\x00", "漢字の名前", "a" * 300, "", "{x|y}", "-->", "'"]


def test_texts_of_a_graph_cannot_change_the_picture() -> None:
    boxes = [Box(f"n{i}", text, [text], "other", "c0", detail=text) for i, text in enumerate(HOSTILE)]
    edges = [Edge("n0", f"n{i}", text) for i, text in enumerate(HOSTILE[1:], 1)]
    view = View(HOSTILE[0], "nodes", boxes, [Cluster("c0", HOSTILE[1])], edges, HOSTILE)
    result = drawn_picture(view)
    assert set(result.boxes) == {box.id for box in boxes}
    assert len(result.frames) == 1
    assert result.boxes["n1"].texts[0].text == "<b>&amp;</b>"
    assert result.heading[0] == HOSTILE[0]


def contrast(fill: str) -> float:
    """WCAG 2's contrast of a fill to the darkest soft text in use (#444444)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    return (luminance(fill) + 0.05) / (luminance("#444444") + 0.05)


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_stand_out_on_every_fill(family: str) -> None:
    assert contrast(FAMILIES[family][1]) >= 4.5


def test_no_two_families_have_one_fill() -> None:
    fills = [fill for _, fill in FAMILIES.values()]
    assert len(set(fills)) == len(fills)


def overlapping(result: Picture) -> list[tuple[str, str]]:
    pairs = itertools.combinations(result.boxes.items(), 2)
    return [(a, b) for (a, first), (b, second) in pairs if first.place.overlaps(second.place)]


def enclosing(cluster: str, around: dict[str, str]) -> Iterator[str]:
    while cluster:
        yield f"cluster_{cluster}"
        cluster = around[cluster]
