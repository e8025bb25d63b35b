"""Text can be read: 4.5 to 1 at least against what is behind it, in every room, dark, light and without colours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.style import Style
from textual.color import Color
from textual.pilot import Pilot

from graphdbg.tui.app import Workbench
from graphdbg.tui.settings import THEMES

from .stories import ROOMS, play
from .test_snapshots import WITH_JOB, rest

LEAST = 4.5


def contrast(one: Color, other: Color) -> float:
    """As WCAG 2 defines it, 1 to 21."""

    def light(color: Color) -> float:
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color.normalized]
        return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def pale(app: Workbench) -> Iterator[str]:
    """Words that stand out too little, with their contrast."""
    for strip in app.screen._compositor.render_strips():
        for segment in strip:
            style = segment.style or Style()
            if not segment.text.strip(" │─┃━▏▎▍▌▋▊▉█▇▆▅▄▃▂▁▔▕╸╺┐┘└┌╭╮╰╯├┤┬┴┼") or style.color is None or style.bgcolor is None:
                continue
            front, back = Color.from_rich_color(style.color), Color.from_rich_color(style.bgcolor)
            front = back.blend(front, 0.5) if style.dim else front
            front, back = (back, front) if style.reverse else (front, back)
            if (found := contrast(front, back)) < LEAST:
                yield f"{segment.text.strip()!r} {found:.1f} ({front.hex} on {back.hex})"


@pytest.mark.parametrize("theme", ["dark", "light", "no colour"])
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in WITH_JOB else ()) for name in ROOMS])
def test_every_word_can_be_read(name: str, theme: str, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if theme == "no colour":
        monkeypatch.setenv("NO_COLOR", "1")
    found: list[str] = []

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        app.theme = THEMES.get(theme, THEMES["dark"])
        await rest(pilot, [])
        found.extend(pale(app))

    play(story, ROOMS[name](), (160, 50))
    assert not found, found
