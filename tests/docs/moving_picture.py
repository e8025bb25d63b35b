"""The moving picture of README: records real commands at a terminal and draws what came, each pause at most a second,
as one SVG that plays in a browser: `python -m tests.docs.moving_picture docs/pictures/moving.svg`.

What the picture says is kept as text in its <desc>, a line each. README shows the same session: `make docs-test` runs
it and compares, and `tests/docs/test_site.py` compares README with the picture.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path

import pyte

from .run_pages import environment

COMMANDS = (
    "graphdbg dump -o myrun -m graphdbg.examples.train_gpt --plant accuracy --steps 2",
    "graphdbg triage myrun",
    "graphdbg minify -o small myrun",
    "python small/repro.py",
)
"""What is typed. The planted fault is Inductor's own test hook: it makes relu wrong, and training goes on."""
COLUMNS, ROWS, SECONDS, PAUSE_S, LAST_S = 100, 26, 30.0, 1.0, 4.0
TOGETHER_S = 0.04
WIDE, HIGH = 8.4, 18
COLOURS = {
    "red": "#f47067",
    "green": "#6bc46d",
    "brown": "#daaa3f",
    "yellow": "#daaa3f",
    "blue": "#6cb6ff",
    "magenta": "#dcbdfb",
    "cyan": "#56d4dd",
}
STYLE = """
svg { background: #1c2128 } text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #adbac7;
white-space: pre } .b { font-weight: 700; fill: #e6edf3 } .d { opacity: .65 }
"""


def typed(command: str) -> Iterator[str]:
    """A prompt and a command, a few letters at a time."""
    yield "\x1b[1;32m$\x1b[0m "
    for at in range(0, len(command), 4):
        yield command[at : at + 4]
    yield "\r\n"


def at_a_terminal(command: str, folder: Path) -> Iterator[tuple[float, bytes]]:
    """What a command writes at a terminal, with the seconds since what came before."""
    master, slave = pty.openpty()
    env = environment(folder) | {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    env.pop("NO_COLOR", None)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    child = subprocess.Popen(["bash", "-c", command], cwd=folder, env=env, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    before = time.monotonic()
    while child.poll() is None or select.select([master], [], [], 0)[0]:
        if not select.select([master], [], [], 0.2)[0]:
            continue
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        yield time.monotonic() - before, part
        before = time.monotonic()
    os.close(master)
    child.wait()


Row = tuple[tuple[str, str], ...]
"""One row of the screen: stretches of text, each with its attributes in SVG."""


def row_of(cells: dict[int, pyte.screens.Char]) -> Row:
    """The stretches of one row; the blank end is left out."""
    stretches: list[tuple[str, str]] = []
    for column in range(COLUMNS):
        cell = cells[column]
        classes = " ".join((["b"] if cell.bold else []) + (["d"] if cell.fg == "brightblack" else []))
        fill = COLOURS.get(cell.fg.removeprefix("bright"), "")
        look = (f' class="{classes}"' if classes else "") + (f' style="fill:{fill}"' if fill else "")
        if stretches and stretches[-1][1] == look:
            stretches[-1] = (stretches[-1][0] + cell.data, look)
        else:
            stretches.append((cell.data, look))
    while stretches and not stretches[-1][0].strip():
        stretches.pop()
    return tuple(stretches)


def recorded(folder: Path) -> tuple[list[tuple[float, tuple[Row, ...]]], list[str]]:
    """The screens with the second at which each comes, and all lines that were printed."""
    screen = pyte.HistoryScreen(COLUMNS, ROWS, history=10_000)
    stream = pyte.Stream(screen)
    frames: list[tuple[float, tuple[Row, ...]]] = []
    now = 0.0

    def show(seconds: float, text: str) -> None:
        nonlocal now
        now += min(seconds, PAUSE_S)
        stream.feed(text)
        rows = tuple(row_of(screen.buffer[row]) for row in range(ROWS))
        if frames and now - frames[-1][0] < TOGETHER_S:  # parts of one redrawing
            frames.pop()
        if not frames or rows != frames[-1][1]:
            frames.append((now, rows))

    for command in COMMANDS:
        for letters in typed(command):
            show(0.06, letters)
        for seconds, part in at_a_terminal(command, folder):
            show(seconds, part.decode(errors="replace"))
        show(1.5 * PAUSE_S, "")
    rows = [*screen.history.top, *(screen.buffer[row] for row in range(ROWS))]
    lines = ["".join(text for text, _ in row_of(row)).rstrip() for row in rows]
    return frames, [line for line in lines if line and line[0] not in "╭│╰"]


def picture(frames: list[tuple[float, tuple[Row, ...]]], lines: list[str]) -> str:
    """The SVG: all screens below each other in one strip, of which the window shows one at a time."""
    scale = (SECONDS - LAST_S) / frames[-1][0]
    numbers: dict[Row, int] = {(): -1}
    strip: list[str] = []
    steps: list[str] = []
    height = ROWS * HIGH + 16
    for at, (seconds, rows) in enumerate(frames):
        steps.append(f"{100 * seconds * scale / SECONDS:.2f}% {{ transform: translateY(-{at * height}px) }}")
        for place, row in enumerate(rows):
            number = numbers.setdefault(row, len(numbers))
            if row:
                strip.append(f'<use href="#r{number}" y="{at * height + place * HIGH}"/>')
    steps.append(f"100% {{ transform: translateY(-{(len(frames) - 1) * height}px) }}")
    rows_drawn: list[str] = []
    for row, number in numbers.items():
        spans = "".join(f"<tspan{look}>{escape(text, quote=False)}</tspan>" for text, look in row)
        if row:
            wide = WIDE * sum(len(text) for text, _ in row)  # the dots of a plot may come from another font
            fit = f'textLength="{wide:g}" lengthAdjust="spacingAndGlyphs"'
            rows_drawn.append(f'<text id="r{number}" x="12" y="22" xml:space="preserve" {fit}>{spans}</text>')
    said = escape("\n".join(lines), quote=False)
    keyframes = f"@keyframes play {{ {' '.join(steps)} }}"
    width = round(COLUMNS * WIDE + 24)
    last = (len(frames) - 1) * height
    still = (
        f"@media (prefers-reduced-motion: reduce) {{ #strip {{ animation: none; transform: translateY(-{last}px) }} }}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            ' role="img">',
            "<title>A run with wrong numbers: recorded, triaged, minified, and shown by its repro</title>",
            f"<desc>{said}</desc>",
            f"<style>{STYLE}{keyframes}",
            f"#strip {{ animation: play {SECONDS:g}s step-end infinite }} {still}</style>",
            "<defs>",
            *rows_drawn,
            "</defs>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#1c2128"/>',
            '<g id="strip">',
            *strip,
            "</g></svg>\n",
        ]
    )


def lines_of(svg: str) -> list[str]:
    """The lines that a picture shows, as text."""
    said = re.search(r"<desc>(.*?)</desc>", svg, re.DOTALL)
    return unescape(said[1]).splitlines() if said else []


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="picture-") as place:
        folder = Path(place).resolve()
        frames, lines = recorded(folder)
        Path(sys.argv[1]).write_text(picture(frames, lines), encoding="utf-8")


if __name__ == "__main__":
    main()
