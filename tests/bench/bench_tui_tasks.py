"""The tasks that one opens the workbench for, at a real terminal: how many keys each takes and how long, before and
now.

    python -m tests.bench.bench_tui_tasks [--only WORD]

Two small runs are recorded: one whose kernel does not compile, and one that is silently wrong (Inductor's own test bug
of relu). Each task is done with the keys that a person would press, and is over when what it is about is seen; words
that are typed count nothing. "before" is the workbench of commit 5040f9e, whose keys were counted and whose times were
taken with the same kind of graphs. Exits with 1 where a task is not done, or needed more than two keys and needs more
than half of them now.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.hostile.terminals import scratch
from tests.tui.real_terminal import RealTerminal

SIZE = (160, 50)
BEFORE: dict[str, tuple[int | None, str]] = {
    "find the graph that failed (crash)": (0, "0.5-1.1 s"),
    "find the graph that is silently wrong": (None, "43 s a graph, forgotten after"),
    "start triage from Home": (6, "43 s"),
    "name the first wrong node and its line": (1, "54 s"),
    "go to that node": (1, "0 s"),
    "its source": (1, "0.1 s"),
    "its kernel": (2, "0.1 s"),
    "minify from triage": (2, "105 s, no repro"),
    "skip a step": (1, "0.1-1 s"),
    "pause": (1, "0.1 s"),
    "disable a step": (1, "0.1-1 s"),
    "raise a step": (1, "0.1-1 s"),
    "restart a state": (1, "0.1-1 s"),
    "back to the running search": (3, "5 failed: an empty form"),
    "see the repro": (3, "0.3 s"),
    "copy the repro": (1, "0.3 s"),
    "minify a crash": (2, "97 s"),
    "cancel and keep the best": (2, "5.5 s"),
    "forward beside backward": (6, "< 1 s"),
    "partner of a node": (1, "0.24 s"),
    "all mm with more than N users": (15, "0.1 s"),
}
"""Keys, and seconds as they were told; None: it could not be done."""


@dataclass
class Done:
    """What a task took."""

    keys: int
    seconds: float
    note: str = ""


class Person:
    """Someone who presses keys and reads; `task` counts and times."""

    def __init__(self, terminal: RealTerminal, done: dict[str, Done]) -> None:
        self.terminal, self.done = terminal, done
        self._count, self._began = 0, terminal.began

    def begin(self) -> None:
        """A new task."""
        self.terminal.rest()
        self._count, self._began = 0, time.monotonic()

    def press(self, *names: str) -> None:
        """Keys that count."""
        self._count += len(names)
        self.terminal.keys(*names)

    def type(self, word: str) -> None:
        """A word, which does not."""
        self.terminal.keys(word)

    def sees(self, task: str, holds: str | Callable[[str], object], limit_s: float = 30) -> None:
        """The task is over once this is seen."""
        try:
            self.terminal.until(holds, limit_s)
            self.done[task] = Done(self._count, time.monotonic() - self._began)
        except TimeoutError as error:
            print(f"{task}: {error}", file=sys.stderr)


def told(pattern: str) -> Callable[[str], object]:
    """Whether the screen has what a pattern finds."""
    return re.compile(pattern, re.MULTILINE).search


def looking(person: Person) -> None:
    """A run whose compile died: the cursor is on it."""
    person.sees("find the graph that failed (crash)", told(r"^ 0_0/forward: CppCompileError.*t triage"))


def judging(person: Person) -> None:
    """A run that is silently wrong."""
    terminal = person.terminal
    terminal.until(" 0_0 ")
    person.begin()
    person.press("k", "t")
    terminal.until(told(r"[✗x] wrong"), 300)
    person.press("!")
    person.sees("find the graph that is silently wrong", told(r"FAILS: wrong numbers"), 30)
    terminal.until(lambda text: "running" not in text.splitlines()[0], 300)


def triaging(person: Person) -> None:
    """From Home to the node, its line, its source and its kernel."""
    terminal = person.terminal
    terminal.until(" 0_0 ")
    person.begin()
    person.press("t")
    person.sees("start triage from Home", told(r"\[4 Replay [✗x]"), 300)
    person.begin()
    person.press("B")
    person.sees("name the first wrong node and its line", told(r"relu.*train_residual\.py:\d+"), 300)
    terminal.until(lambda text: "running" not in text.splitlines()[0], 300)
    person.begin()
    person.press("!")
    person.sees("go to that node", told(r"\[2 Graph.*relu"))
    person.begin()
    person.press("]")
    person.sees("its source", told(r"\[Source\][\s\S]*torch\.relu"))
    person.terminal.keys("[")
    person.begin()
    person.press("]", "]")
    person.sees("its kernel", told(r"\[Code\][\s\S]*(tmp\d|int64_t|extern_kernels)"))
    terminal.keys("4")
    terminal.until("[4 Replay")


def shrinking(person: Person) -> None:
    """From the ladder to the repro, steering meanwhile."""
    terminal = person.terminal
    person.begin()
    person.press("m")
    terminal.until("enter starts it")
    person.press("enter")
    began = time.monotonic()
    keys = person._count
    terminal.until(told(r"\[5 Minify . \d+/\d+"), 120)
    for name, keys_of, holds in (("pause", ["space"], "paus"), ("skip a step", ["S"], "skip")):
        person.begin()
        person.press(*keys_of)
        person.sees(name, holds, 30)
        if name == "pause":
            terminal.rest()
            terminal.keys("space")
            terminal.rest()
    person.begin()
    terminal.keys("1")
    terminal.until("[1 Home")
    person.begin()
    person.press("5")
    person.sees("back to the running search", told(r"\[5 Minify"))
    terminal.until(told(r"\[5 Minify [✓+]"), 400)
    person._count, person._began = keys, began
    person.sees("minify from triage", told(r"import torch"), 30)
    person.begin()
    person.sees("see the repro", "import torch")
    person.begin()
    person.press("y")
    person.sees("copy the repro", "Copied")


def stopping(person: Person) -> None:
    """A crash: minified from its graph, stopped, the best is kept."""
    terminal = person.terminal
    terminal.until("f filter")
    person.begin()
    person.press("5")
    terminal.until("enter starts it")
    person.press("enter")
    terminal.until(told(r"\[5 Minify . \d+/\d+"), 120)
    keys, began = person._count, person._began
    for name, pressed, holds in (
        ("disable a step", ["d"], "disable"),
        ("raise a step", ["P", "P"], "raise"),
        ("restart a state", ["r"], "restart"),
    ):
        person.begin()
        person.press(*pressed)
        person.sees(name, holds, 20)
        terminal.rest()
    person.begin()
    person.press("x")
    terminal.until("end the search")
    person.press("x")
    person.sees("cancel and keep the best", told(r"\[5 Minify [✓+]"), 120)
    person._count, person._began = keys, began
    person.sees("minify a crash", "import torch", 60)


def reading(person: Person) -> None:
    """A graph beside its partner, and a filter."""
    terminal = person.terminal
    terminal.until("[2 Graph")
    terminal.rest(0.6)
    person.begin()
    person.press("f")
    person.type("op:mm users>2")
    person.press("enter")
    person.sees("all mm with more than N users", told(r"^ .*1 of 29|1 row"))
    terminal.keys("0")
    terminal.rest()
    person.begin()
    person.press("p")
    person.sees("partner of a node", told(r"wrong/0_0/backward"))
    terminal.keys("esc")
    terminal.until("0_0/forward")
    person.begin()
    person.press("3")
    terminal.until("esc close")
    person.type("back")
    person.press("enter")
    person.sees("forward beside backward", "│ B wrong/0_0/backward")


def table(done: dict[str, Done]) -> bool:
    """Prints it; whether all is as it should be."""
    good = True
    print("| task | keys before | now | time before | now |\n|---|---|---|---|---|")
    for task, (before, said) in BEFORE.items():
        result = done.get(task)
        few = result is not None and (before is None or before <= 2 or result.keys <= before / 2)
        good = good and few
        now = f"{result.keys} | {said} | {result.seconds:.1f} s" if result else f"not done | {said} | -"
        print(f"| {task}{'' if few else ' **MISSED**'} | {'impossible' if before is None else before} | {now} |")
    return good


STORIES: tuple[tuple[tuple[Callable[[Person], None], ...], list[str]], ...] = (
    ((looking, stopping), ["died"]),
    ((reading,), ["wrong/0_0/forward"]),
    ((judging,), ["wrong"]),
    ((triaging, shrinking), ["wrong"]),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--only", default="", metavar="WORD", help="the stories whose name has this word")
    asked = parser.parse_args()
    done: dict[str, Done] = {}
    for stories, words in STORIES:
        if asked.only and not any(asked.only in story.__name__ for story in stories):
            continue
        with scratch() as (folder, env), RealTerminal(words, folder, SIZE, env) as terminal:
            person = Person(terminal, done)
            for story in stories:
                try:
                    story(person)
                except TimeoutError as error:
                    print(f"{story.__name__}: {error}", file=sys.stderr)
            terminal.keys("q")
    return not table(done)


if __name__ == "__main__":
    sys.exit(main())
