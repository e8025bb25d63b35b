"""Texts of boxes stand in the middle of their box, whatever font the machine had that drew them."""

from __future__ import annotations

from graphdbg.toolkit.drawing.picture import centred

BEFORE = b"""<g id="edge1" class="edge"><title>a-&gt;b</title><text text-anchor="start" x="1" y="2">kept</text></g>
<g id="node1" class="node">
<title>a</title>
<g id="a_node1"><a xlink:title="one">
<path fill="#f6f6f6" d="M60,-98C60,-98 20,-98 20,-62"/>
<text xml:space="preserve" text-anchor="start" x="35.62" y="-83.63">one</text>
<text xml:space="preserve" text-anchor="start" x="31" y="-69">two</text>
</a>
</g>
</g>
"""


def test_only_texts_of_boxes_move_and_to_the_middle() -> None:
    after = BEFORE.replace(b'text-anchor="start" x="35.62"', b'text-anchor="middle" x="40.00"')
    assert centred(BEFORE) == after.replace(b'text-anchor="start" x="31"', b'text-anchor="middle" x="40.00"')


def test_a_box_without_outline_stays() -> None:
    without = BEFORE.replace(b"<path", b"<other")
    assert centred(without) == without
