"""A followed minification in lines of plain text: what it does now, its steps, its improvements, other failures. Draws
nothing.

For example:

    facts(watched, now=time.time())[0]  # -> 'running: looking for the place: windows of neighbouring nodes'
"""

from __future__ import annotations

from collections.abc import Mapping

from ...dumps.wording import clock_text, counted, size_text
from ...toolkit.verdicts.verdict_words import QUERIES
from ..events import PURPOSES, STEPS
from ..events import words as step_words
from ..minified import Also
from ..story import Improvement, StepCount, Story
from .watched import Watched

QUIET = 5
"""After so many queries without an improvement, a line reports that."""


def standing(watched: Watched, now: float) -> str:
    """The first line: how it stands."""
    story = watched.story
    match watched.state:
        case "starting":
            return "starting: nothing has been asked yet"
        case "running" if story.paused:
            return "paused: space goes on"
        case "running":
            doing = story.steps[story.step].words if story.step in story.steps else story.step
            return f"running: {doing or 'starting'}"
        case "ended" if story.done is not None:
            return f"done after {_queries(story)}" + (f": {story.done['stopped']}" if story.done.get("stopped") else "")
        case "ended":
            why = "" if story.ended in ("", "ended", "reduced") else f": {story.ended}"
            return f"ended after {_queries(story)}{why}"
        case "dead":
            return f"died at query {len(story.queries)}; R resumes: nothing that was asked is asked again"
        case "elsewhere":
            return "it runs, or ran, on another host: it can be watched only"
        case "unknown":
            return f"the folder names no process; {_queries(story)} so far. R resumes"
        case _:
            return "the folder is gone; what was read is still shown"


def facts(watched: Watched, now: float) -> list[str]:
    """Lines on standing, query in flight, best case, counts and time; empty ones are left out."""
    story = watched.story
    going = _going(watched, now)
    lines = [standing(watched, now), *(["; ".join(going)] if going else [])]
    if story.original[0]:
        lines.append(f"best: {_size(story, story.best or story.original)}")
    if story.signature:
        lines.append(f"failure: {story.signature}")
    if story.queries:
        lines.append(queries_text(story.asked, story.verdicts))
    time = time_text(story, now, running=watched.state == "running")
    return [*lines, time] if time else lines


def _going(watched: Watched, now: float) -> list[str]:
    """The query that runs, and for how long nothing has become smaller; nothing where neither is so."""
    story, running, going = watched.story, watched.state == "running", list[str]()
    flight = story.flight()
    if running and flight is not None and not story.paused:
        more = f", {len(story.flying) - 1} more beside it" if len(story.flying) > 1 else ""
        since = f" for {clock_text(max(0.0, now - flight.time))}" if flight.time else ""
        going.append(f"query {flight.number} runs{since}{more}")
    if running and (idle := story.idle()) >= QUIET:
        going.append(f"nothing smaller for {counted(idle, 'query')}")
    return going


def doing(story: Story) -> str:
    """The current step in plain words."""
    step = step_words(story.step or "sanity")
    return f"paused: {step}" if story.paused else step


def size(story: Story) -> str:
    """The best case so far against the original."""
    nodes, inputs = story.original
    if story.best is None:
        return f"{counted(nodes, 'node')}, {size_text(inputs)} of inputs, as recorded" if nodes else "nothing yet"
    return _size(story, story.best)


def _size(story: Story, best: tuple[int, int]) -> str:
    nodes, inputs = story.original
    of_nodes = f"{best[0]} of {counted(nodes, 'node')} ({share_text(best[0], nodes)})"
    return f"{of_nodes}, {size_text(best[1])} of {size_text(inputs)} of inputs ({share_text(best[1], inputs)})"


def share_text(part: float, whole: float) -> str:
    """A part in percent, in two digits or three; 100 % of nothing."""
    share = 100 * part / whole if whole else 100.0
    return f"{share:.0f} %" if share >= 10 or not share else f"{share:.2g} %"


def rate_text(pace_s: float) -> str:
    """The rate of something that takes `pace_s` seconds: 2.5 a second, 12 a minute, 9 an hour."""
    unit_s, unit = (1, "a second") if pace_s < 1 else (60, "a minute") if pace_s < 60 else (3600, "an hour")
    return f"{unit_s / pace_s:.{0 if unit_s > 60 else 1}f} {unit}"


FIGURES_HEAD = f"{'':<8}{'now':>10}{'at first':>12}{'':>8}"


def figures(watched: Watched, now: float) -> list[tuple[str, str]]:
    """The numbers of a search as lines with styles: sizes now and at first, queries with their rate, those kept,
    time."""
    story = watched.story
    best, first, running = story.best or story.original, story.original, watched.state == "running"
    going = [*_going(watched, now), "", ""][: 2 * running]  # what follows stays in its place
    lines: list[tuple[str, str]] = [(standing(watched, now), "bold"), *((text, "") for text in going)]
    spent = (now if running else story.last) - story.began if story.began else 0.0

    def add(name: str, number: str, more: str = "") -> None:
        lines.append((f"{name:<8}{number:>10}  {more}", ""))

    if first[0]:
        lines += [("", ""), (FIGURES_HEAD, "dim")]
        add("nodes", str(best[0]), f"{first[0]:>10}{share_text(best[0], first[0]):>9}")
        add("inputs", size_text(best[1]), f"{size_text(first[1]):>10}{share_text(best[1], first[1]):>9}")
    if story.queries:
        pace = story.pace_s() if running else spent / len(story.queries)
        details = [rate_text(pace)] if pace > 0 else []
        details += [f"{story.known} known before"] if story.known else []
        add("queries", str(len(story.queries)), ", ".join(details))
        kept, searched = story.verdicts.get("same", 0), story.asked.get("search", 0)
        add("kept", str(kept), f"of {searched} searched, {share_text(kept, searched)}" if searched else "")
    if spent > 0:
        add("time", clock_text(spent), left_text(story, now) if running and story.queries else "")
    smaller = [time for time, query in zip(story.times, story.queries, strict=False) if query.improved]
    if running and smaller:
        add("smaller", clock_text(max(0.0, spent - smaller[-1])), "ago")
    return lines + ([("", ""), (f"failure: {story.signature}", "")] if story.signature else [])


def queries_text(asked: Mapping[str, int], verdicts: Mapping[str, int]) -> str:
    """ "14 queries: 2 sanity, 9 search (7 failed the same way, 2 passed), 3 verification"."""
    total = sum(asked.values())
    parts: list[str] = []
    for purpose in PURPOSES:
        if not asked.get(purpose):
            continue
        text = f"{asked[purpose]} {purpose}"
        if purpose == "search":
            by_verdict = [f"{verdicts[said]} {words.was}" for said, words in QUERIES.items() if verdicts.get(said)]
            text += f" ({', '.join(by_verdict)})" if by_verdict else ""
        parts.append(text)
    return counted(total, "query") + (f": {', '.join(parts)}" if parts else "")


def left_text(story: Story, now: float) -> str:
    """ "about 0:30 left"; empty where nothing is known of that yet."""
    return f"about {clock_text(max(1.0, story.left_s(now)))} left" if story.pace_s() and story.step != "sanity" else ""


def time_text(story: Story, now: float, *, running: bool) -> str:
    """ "0:12 of 1:00, 2.0 s a query of late, about 0:30 left"; empty where nothing has begun."""
    known = (now if running else story.last) - story.began
    spent = known if story.began else sum(query.seconds for query in story.queries)
    most = f"of {clock_text(story.max_time_s)}" if story.max_time_s else "so far"
    parts = [f"{clock_text(max(0.0, spent))} " + (most if running else "in all" if story.began else "of queries")]
    if story.pace_s():
        parts.append(f"{story.pace_s():.1f} s a query {'of late' if running else 'at the end'}")
    if running and (left := left_text(story, now)):
        parts.append(left)
    if story.known:
        parts.append(counted(story.known, "answer was", "answers were") + " known from before")
    return ", ".join(parts) if story.queries or story.began else ""


def step_line(step: StepCount, story: Story, *, running: bool) -> tuple[str, str]:
    """A mark and the line of a step: `>` now, `x` disabled, `^` raised, `-` skipped, `.` begun, blank: to come."""
    mark = {"disabled": "x", "raised": "^", "skipped": "-"}.get(step.mark, "." if step.begun else " ")
    if step.name == story.step and running:
        mark = ">"
    numbers = f"{step.asked:>5} {step.accepted:>5} {step.seconds:>7.1f}" if step.asked else f"{'':>19}"
    return mark, f"{mark} {step.name:<12} {numbers}  " + (f"({step.mark}) " if step.mark else "") + step.words


def page(watched: Watched, now: float) -> list[str]:
    """The whole page as lines, for a command."""
    story, running = watched.story, watched.state == "running"
    lines = [*facts(watched, now), *(f"asked: {words}" for words in watched.wishes.values())]
    lines += ["", STEP_HEAD, *(step_line(step, story, running=running)[1] for step in steps(watched))]
    lines += ["", *(history_line(item, story) for item in story.history)]
    return lines + [other_line(other) for other in story.others.values()]


STEP_HEAD = "  step         asked smaller    s"


def steps(watched: Watched) -> list[StepCount]:
    """The steps that were begun or may come."""
    story = watched.story
    over = watched.state in ("ended", "dead", "unknown")
    order = {name: place for place, name in reversed(list(enumerate(story.begun)))}
    shown = [step for step in story.steps.values() if step.begun or not over]
    return sorted(shown, key=lambda step: (step.name != "sanity", order.get(step.name, len(story.begun))))


def steerable(step: StepCount) -> bool:
    """Whether a step can be left out."""
    return step.name in STEPS


def history_line(item: Improvement, story: Story) -> str:
    """`3: query 12   8 nodes  49.3 KiB   windows`."""
    size = f"{counted(item.nodes, 'node', form='>7'):<13}  {size_text(item.input_bytes):>12}"
    turned = f"  (from {item.after})" if item.after is not None and item.after != item.number - 1 else ""
    last = next((other for other in reversed(story.history) if other.case == story.best_case), None)
    best = "  best" if last is item and item.number else ""
    name = "the original" if not item.number else item.step
    return f"{item.number:>3}  query {item.queries:<5} {size}  {name}{turned}{best}"


def other_line(other: Also) -> str:
    """`2 times, from 14 nodes on: CppCompileError in compile: ...`."""
    size = f", from {counted(other.nodes, 'node')} on" if other.nodes else ""
    return f"{counted(other.count, 'time')}{size}: {other.signature}" + (f"  {other.path}" if other.path else "")


def _queries(story: Story) -> str:
    return counted(len(story.queries), "query")
