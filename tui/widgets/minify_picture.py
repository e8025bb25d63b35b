"""What the plot of the minify screen shows: nodes and input bytes of the best case, a mark per verdict, where steps began.

>>> plot.show(picture(watched))
"""

from __future__ import annotations

from ...dumps.wording import counted
from ...minifier.progress.story import Story
from ...minifier.progress.watched import Watched
from .minify_views import MARKS
from .plot import Marks, Picture, Series

UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def picture(watched: Watched, *, ascii_only: bool = False) -> Picture:
    """The numbers of a followed minification as a picture."""
    story = watched.story
    if not story.points:
        return Picture()
    nodes, sizes = [point[0] for point in story.points], [point[1] for point in story.points]
    series = [Series(nodes, "bold cyan", "*", (counted(max(nodes), "node"), "1"))]
    if max(sizes) > 1:
        series.append(Series(sizes, "yellow", "+", (f"{short(max(sizes))}B", "1 B")))
    return Picture(series, Marks([_mark(query.verdict, ascii_only) for query in story.queries], _turns(story)))


def _turns(story: Story) -> list[tuple[int, str]]:
    return [(query, step) for query, step in story.turns if query < len(story.points)]


def _mark(verdict: str, ascii_only: bool) -> tuple[str, str]:
    mark, letter, style = MARKS.get(verdict, ("?", "?", ""))
    return (letter if ascii_only else mark), style


def short(count: int) -> str:
    """`111 k`, `2.1 M`, before a unit."""
    for size, unit in UNITS:
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} "
