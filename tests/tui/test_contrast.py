"""Text can be read: 4.5 to 1 at least against what is behind it, in every room, dark, light and without colours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.color import Color as RichColor
from rich.style import Style
from textual.color import Color
from textual.pilot import Pilot

from graphdbg.tui.app import LEAST, OwnColours, Workbench, contrast
from graphdbg.tui.settings import THEMES

from .stories import ROOMS, play
from .test_snapshots import WITH_JOB, rest

PALETTES = {
    "xterm": "000000 e5e5e5 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd ff0000 00ff00 ffff00 5c5cff ff00ff 00ffff",
    "xterm, white": "ffffff 000000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd ff0000 00ff00 ffff00 5c5cff ff00ff 00ffff",
    "GNOME": "1e1e1e ffffff cc0000 4e9a06 c4a000 3465a4 75507b 06989a ef2929 8ae234 fce94f 729fcf ad7fa8 34e2e2",
    "Windows Terminal": "0c0c0c cccccc c50f1f 13a10e c19c00 0037da 881798 3a96dd e74856 16c60c f9f1a5 3b78ff b4009e "
    "61d6d6",
    "Solarized, light": "fdf6e3 657b83 dc322f 859900 b58900 268bd2 d33682 2aa198 cb4b16 586e75 657b83 839496 6c71c4 "
    "93a1a1",
    "says nothing": "",
}
"""Background, text, the colours 1 to 6 and 9 to 14."""
NAMES = ("11", "10", *(f"4;{number}" for number in (1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14)))
GREYS = {"11": Color(0, 0, 0), "10": Color(255, 255, 255)}
"""A terminal that says nothing has text that can be read on its background."""


def palette(name: str) -> dict[str, Color]:
    """The colours of a terminal by the names that it is asked for them."""
    return {at: Color.parse(f"#{rgb}") for at, rgb in zip(NAMES, PALETTES[name].split(), strict=False)}


def seen(color: RichColor, known: dict[str, Color], plain: str) -> Color:
    """How a terminal shows a colour; one that it did not tell could be any: the background itself."""
    if color.is_default:
        return known[plain]
    return known.get(f"4;{color.number}", known["11"]) if color.number is not None else Color.from_rich_color(color)


def pale(app: Workbench, known: dict[str, Color], least: float = LEAST) -> Iterator[str]:
    """Words that stand out too little, with their contrast."""
    for strip in app.screen._compositor.render_strips():
        for segment in strip:
            style = segment.style or Style()
            if (
                not segment.text.strip(" │─┃━▏▎▍▌▋▊▉█▇▆▅▄▃▂▁▔▕╸╺┐┘└┌╭╮╰╯├┤┬┴┼")
                or style.color is None
                or style.bgcolor is None
            ):
                continue
            front, back = seen(style.color, known, "10"), seen(style.bgcolor, known, "11")
            front = back.blend(front, 0.5) if style.dim else front
            front, back = (back, front) if style.reverse else (front, back)
            if (result := contrast(front, back)) < least:
                yield f"{segment.text.strip()!r} {result:.1f} ({front.hex} on {back.hex})"


@pytest.mark.parametrize("theme", ["dark", "light", "no colour"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in WITH_JOB else ()) for name in ROOMS]
)
def test_every_word_can_be_read(name: str, theme: str, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if theme == "no colour":
        monkeypatch.setenv("NO_COLOR", "1")
    results: list[str] = []

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        app.theme = THEMES.get(theme, THEMES["dark"])
        await rest(pilot, [])
        results.extend(pale(app, GREYS))

    play(story, ROOMS[name](), (160, 50))
    assert not results, results


def test_contrast_is_that_of_wcag() -> None:
    assert round(contrast(Color(255, 255, 255), Color(0, 0, 0)), 1) == 21
    assert round(contrast(Color.parse("#767676"), Color(255, 255, 255)), 2) == LEAST + 0.04


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in WITH_JOB else ()) for name in ROOMS]
)
def test_every_word_can_be_read_in_colours_of_the_terminal(name: str, work: Path) -> None:
    results: list[str] = []

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        app.theme = THEMES["ansi"]
        for terminal in PALETTES:
            known = palette(terminal)
            app.own_colours = OwnColours({at: color.normalized for at, color in known.items()})
            app.refresh_css()
            await rest(pilot, [])
            known = known or GREYS
            least = min(LEAST, contrast(known["10"], known["11"]))  # its text is no paler than it shows all else
            results.extend(f"{terminal}: {word}" for word in pale(app, known, least))

    play(story, ROOMS[name](), (160, 50))
    assert not results, results
