"""The plot of the minify screen as numbers, and the lists below it, each a function from what is known. Decides
nothing.

For example:

    VIEWS[1].name, [text.plain for text in VIEWS[1].lines(watched, looked)]
    # ('History', ['  0  query 1  53 nodes ...'])
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from ....dumps import opening
from ....dumps.errors import GraphdbgError
from ....dumps.tables import plain
from ....dumps.wording import counted, size_text
from ....minifier.events import QueryAnswered
from ....minifier.minified import Also
from ....minifier.progress import telling
from ....minifier.progress.candidates import NUMBERS_ONLY, AtomNames, Line, difference, parsed, state, whole
from ....minifier.progress.outcome import ended, others_on_disk, sentences_afterwards
from ....minifier.progress.plot import mark_of
from ....minifier.progress.watched import Watched
from ....minifier.story import Story
from ....toolkit.verdicts.verdict_words import query_words
from ...widgets.texts import Made

SHOWN = 24
"""Lines of the repro that the result begins with."""
QUERY_WIDTH = 200
"""The width of the widest line of a query."""
SIGNS = {"+": "green", "-": "red", "~": "yellow", "@": "dim", " ": ""}


@dataclass
class Looked:
    """What the views need beside the story: names of nodes, what is chosen, what lies on disk."""

    atoms: AtomNames = field(default_factory=lambda: NUMBERS_ONLY)
    doubt: str = ""
    shown: str | None = None
    """The candidate that was chosen to be seen, in place of the one in flight; `title` says which, `number` which
    state."""
    title: str = ""
    number: int | None = None
    ascii_only: bool = False
    against: str = ""
    """The candidate that the shown one is compared with; empty: it is shown whole."""
    output: tuple[str, list[str]] = ("", [])
    """Of the query that runs: its stage, the last lines that it printed."""
    done: dict[str, Any] | None = None
    repro: str = ""
    """The text of repro.py."""
    others: list[Also] = field(default_factory=list[Also])

    def look_at_disk(self, watched: Watched) -> None:
        """Reads the result and the other failures; called in a thread."""
        self.done = done = ended(watched.out, watched.story)
        with contextlib.suppress(OSError, GraphdbgError):
            self.repro = opening.read_text(done["repro_path"]) if done["repro_path"] else ""
        self.others = others_on_disk(watched.out)


@dataclass(frozen=True)
class ListView:
    """One list: its name, its lines, how many of them are a heading, whether one can be chosen. `follows`: the cursor
    stays on the newest line."""

    name: str
    lines: Callable[[Watched, Looked], Sequence[Text]]
    first: int = 0
    chooses: bool = False
    follows: bool = False
    count: Callable[[Watched, Looked], int] = lambda watched, looked: 0


def _steps(watched: Watched, looked: Looked) -> list[Text]:
    running = watched.state == "running"
    lines = [Text(telling.STEP_HEAD, "dim")]
    for step in telling.steps(watched):
        mark, line = telling.step_line(step, watched.story, running=running)
        wish = [words for words in watched.wishes.values() if words.endswith(f" {step.name}")]
        style = {">": "bold", "x": "red", "^": "green"}.get(mark, "" if step.begun else "dim")
        lines.append(Text(line + (f"  [asked: {wish[-1]}]" if wish else ""), style))
    return lines


def _history(watched: Watched, looked: Looked) -> list[Text]:
    story = watched.story
    lines = [Text(plain(telling.history_line(item, story))) for item in story.history]
    return lines or [Text("nothing smaller yet", "dim")]


def candidate_now(story: Story) -> tuple[str, str]:
    """The text of the candidate in flight, else of the last query; and what it is."""
    flight = story.flight()
    if flight is not None:
        return flight.case, f"query {flight.number}, which runs"
    if story.queries:
        query = story.queries[-1]
        return query.case, f"query {query.queries}: {query_words(query.verdict).was}"
    return "", ""


def candidate(story: Story, looked: Looked) -> list[Text]:
    """The chosen candidate or the one in flight, against what was best before it. May take a while for a large
    graph."""
    text, title = (looked.shown, looked.title) if looked.shown is not None else candidate_now(story)
    if not text:
        return [Text("no candidate was asked yet", "dim")]
    against = looked.against if looked.shown is not None else story.best_case or "original"
    all_of_it = whole(looked.atoms)
    mine = all_of_it if text.removeprefix("verify ") == "original" else parsed(text)
    if mine is None:
        return [Text(plain(text))]
    if looked.shown is not None and not looked.against:
        lines, words = state(mine, looked.atoms), f"{title}: {counted(len(mine.keep), 'part')}"
    else:
        best = all_of_it if against == "original" else parsed(against) or all_of_it
        if not looked.atoms.nodes and against == "original":
            best = mine
        lines = difference(best, mine, looked.atoms)
        less, more = len(best.keep - mine.keep), len(mine.keep - best.keep)
        other = "the original" if against == "original" else "the best"
        parts = [f"{counted(less, 'part')} less"] * bool(less) + [f"{more} more"] * bool(more)
        same = not parts and best.edits == mine.edits
        words = f"the same as {other}" if same else f"beside {other}: {', '.join(parts) or 'with other edits'}"
        words = f"{title}; {words}"
    head = [Text(plain(words), "bold")] + ([Text(plain(looked.doubt), "yellow")] if looked.doubt else [])
    return [*head, *map(_line, lines)]


def output(watched: Watched, looked: Looked) -> list[Text]:
    """The stage and the latest output of the running query; where none runs, the detail of the last one."""
    story, (stage, printed) = watched.story, looked.output
    if (flight := story.flight()) is not None and watched.state == "running":
        head = Text(plain(f"query {flight.number}" + (f": {stage}" if stage else "")), "bold")
        return [head, *(Text(plain(line)) for line in printed or ["it has printed nothing so far"])]
    if not story.queries:
        return [Text("no query has run yet", "dim")]
    last = story.queries[-1]
    head = Text(f"query {last.queries} {query_words(last.verdict).was}", "bold")
    return [head, *(Text(plain(line)) for line in story.detail.splitlines())]


def _line(line: Line) -> Text:
    return Text(f"{line.sign} {plain(line.text)}", SIGNS.get(line.sign, ""))


def _queries(watched: Watched, looked: Looked) -> Sequence[Text]:
    queries, ascii_only = watched.story.queries, looked.ascii_only
    if not queries:
        return [Text("nothing was asked yet", "dim")]
    return Made(len(queries), lambda index: _query(queries[index], ascii_only), QUERY_WIDTH)


def _query(query: QueryAnswered, ascii_only: bool) -> Text:
    said = query_words(query.verdict)
    nodes, size = counted(query.nodes, "node", form=">7"), size_text(query.input_bytes)
    numbers = f"{nodes:<13} {size:>12} {query.seconds:>7.1f} s"
    known = ", known from before" if query.recalled else ""
    text = Text(f"{query.queries:>4} ")
    text.append(*mark_of(query, ascii_only))
    text.append(f" {numbers}  {query.step:<12} {said.was}{known}", "bold" if query.improved else "")
    if query.verdict not in ("same", "pass") and query.signature:
        text.append(f": {plain(query.signature)}", "dim")
    return text


def others(watched: Watched, looked: Looked) -> list[Also]:
    """The other failures, those of an ended search with their cases."""
    seen = sorted(watched.story.others.values(), key=lambda other: -other.count)
    return seen if any(other.path for other in seen) or not looked.others else looked.others


def _others(watched: Watched, looked: Looked) -> list[Text]:
    texts = [Text(plain(telling.other_line(other))) for other in others(watched, looked)]
    return texts or [Text("no other failure was met", "dim")]


def _said(watched: Watched, looked: Looked) -> list[Text]:
    lines = [Text(plain(line)) for line in watched.story.said]
    lines += [Text(f"asked: {words}", "yellow") for words in watched.wishes.values()]
    for order in watched.story.steers.values():
        why = f" ({order.why})" if order.why else ""
        lines.append(Text(f"{order.state}: {order.what}{why}", "yellow" if order.state == "refused" else ""))
    return lines or [Text("nothing was said yet", "dim")]


def _result(watched: Watched, looked: Looked) -> list[Text]:
    if looked.done is None or watched.state in ("starting", "running"):
        return [Text("it has not ended yet", "dim")]
    first, *rest = [Text(plain(line)) for line in sentences_afterwards(looked.done)]
    first.stylize("bold")
    head = next((head for head in ("\ndef graph(", "\nimport ") if head in looked.repro), "")
    program = looked.repro[looked.repro.find(head) + 1 :] if head else looked.repro
    code = [Text(plain(line), "cyan") for line in program.splitlines() if line.strip()]
    more = [Text(f"... {counted(len(code) - SHOWN, 'more line')}", "dim")] if len(code) > SHOWN else []
    keys = "y  copy the repro    2  its graph    6  the report" if code else "2  its graph    6  the report"
    return [first, *code[:SHOWN], *more, Text(keys if looked.done["case"] else "", "dim"), *rest]


VIEWS = (
    ListView("Steps", _steps, 1, True, count=lambda seen, _: sum(step.begun for step in seen.story.steps.values())),
    ListView("History", _history, chooses=True, count=lambda watched, looked: len(watched.story.history)),
    ListView("Candidate", lambda watched, looked: candidate(watched.story, looked)),
    ListView("Queries", _queries, chooses=True, follows=True, count=lambda watched, looked: len(watched.story.queries)),
    ListView("Other failures", _others, chooses=True, count=lambda watched, looked: len(others(watched, looked))),
    ListView("Log", _said, count=lambda watched, looked: len(watched.story.said)),
    ListView("Result", _result),
)
