"""What the registry promises: every action is reachable, safe, told in help, and a command does the same."""

from __future__ import annotations

import shlex
from collections import Counter
from inspect import isfunction, signature

import click
import pytest

from graphdbg.cli import COMMANDS, graphdbg
from graphdbg.tui.actions import EVERYWHERE, Action
from graphdbg.tui.app import Workbench
from graphdbg.tui.key_line import shown
from graphdbg.tui.registry import REGISTRY, of_room
from graphdbg.tui.screens.help import entries, keys_text, matching
from graphdbg.tui.screens.palette import likeness

from .stories import ROOMS


def is_safe(key: str) -> bool:
    """Whether terminals, tmux and ssh hand the key through as itself.

    ctrl+i is tab, ctrl+m enter, ctrl+j line feed, ctrl+h backspace and ctrl+[ escape there; ctrl+s and ctrl+z stop
    things; ctrl+b is tmux's and ctrl+a screen's.
    """
    *held, last = key.split("+") if key != "+" else [key]
    if not held:
        return True
    if held == ["shift"]:
        return last == "tab"
    return held == ["ctrl"] and len(last) == 1 and last.isalpha() and last not in "imjhszab"


def test_every_id_is_there_once() -> None:
    twice = [item for item, times in Counter(action.id for action in REGISTRY).items() if times > 1]
    assert not twice, f"two actions have the same id: {twice}"


@pytest.mark.parametrize("action", REGISTRY, ids=lambda action: action.id)
def test_an_action_can_be_done_and_its_command_is_one(action: Action) -> None:
    rooms = ROOMS if EVERYWHERE in action.rooms else action.rooms
    assert rooms, action
    for name in rooms:
        room = ROOMS[name]()
        places = (room, *room.parts, Workbench)
        does = next(filter(None, (getattr(part, action.method, None) for part in places)), None)
        assert does is not None, f"the screen {name}, a part of it or the app needs a method `{action.method}`"
        given = action.call[1:] if not isfunction(does) else (None, *action.call[1:])
        signature(does).bind(*given)
    why = f"{action.id} needs a label, and as help a sentence with a capital letter and a full stop: {action.help!r}"
    assert action.label and action.help[:1].isupper() and action.help.endswith("."), why
    unsafe = [key for key in action.keys if not is_safe(key)]
    assert action.keys and not unsafe, f"{action.id} needs keys that every terminal hands on; these are not: {unsafe}"
    if action.words:
        name, *words = shlex.split(action.words)
        assert name in COMMANDS, f"{action.id}: there is no command `graphdbg {name}`"
        command = graphdbg.get_command(click.Context(graphdbg), name)
        assert command is not None
        _, left, _ = command.make_parser(click.Context(command)).parse_args(words)
        assert not left, f"`graphdbg {action.words}` does not take {left}"


@pytest.mark.parametrize("name", ROOMS)
def test_no_key_means_two_things_in_a_room(name: str) -> None:
    meant: dict[str, list[str]] = {}
    for action in of_room(name):
        for key in action.keys:
            meant.setdefault(key, []).append(action.id)
    twice = {item: ids for item, ids in meant.items() if len(ids) > 1}
    assert not twice, f"on the screen {name} a key (or the digit of a screen) is taken twice: {twice}"


def test_a_key_means_the_same_in_all_rooms() -> None:
    meanings: dict[str, set[str]] = {}
    for action in REGISTRY:
        for key in action.keys:
            meanings.setdefault(key, set()).add(action.label)
    wrong = {item: sorted(labels) for item, labels in meanings.items() if len(labels) > 1}
    assert not wrong, f"a key has the same label on all screens; choose another key, or that label: {wrong}"


@pytest.mark.parametrize("name", ROOMS)
def test_the_last_line_has_five_keys_of_the_room(name: str) -> None:
    useful = [action for action in of_room(name) if action.footer]
    assert len(useful) >= 5, f"{name}: {len(useful)} of the actions in its SCREEN have footer=True, 5 are wanted"
    assert not any(EVERYWHERE in action.rooms for action in useful)


WANTED = {
    "triage": {"home.triage", "replay.run", "app.replay"},
    "bisect": {"replay.bisect"},
    "localize": {"replay.values", "replay.bisect"},
    "values": {"replay.values"},
    "kernel": {"tabs.next", "tabs.more"},
    "compare": {"diff.choose", "app.diff", "home.triage"},
    "search": {"graph.search", "home.filter"},
    "copy": {"replay.copy", "minify.copy", "report.copy"},
    "repro": {"app.report", "report.write", "replay.minify"},
    "quit": {"app.quit"},
    "shrink": {"minify.open", "app.minify", "replay.minify"},
}
"""A typed word -> what its best hit may be."""


@pytest.mark.parametrize("typed", WANTED)
def test_the_palette_knows_the_words_of_the_field(typed: str) -> None:
    scores = {action.id: likeness(typed, action) for action in REGISTRY}
    best = max(scores, key=lambda item: scores[item])
    assert best in WANTED[typed], best
    assert typed == "quit" or not scores["app.quit"]


@pytest.mark.parametrize("name", ROOMS)
def test_help_tells_every_key_of_a_room_and_nothing_that_is_not_there(name: str) -> None:
    names = {key for entry in entries(name) for key in keys_text(entry).split(" ")}
    there = {key for action in of_room(name) for item in action.keys for key in shown(item).split(" ")}
    assert names - there <= {"r", "y", "Y"}  # those of the panel of errors
    assert there <= names
    bound = {binding.key for binding in type(ROOMS[name]()).BINDINGS if not binding.priority}  # type: ignore[union-attr]
    assert bound == {key for action in of_room(name) for key in action.keys}


def test_help_finds_by_words_in_any_order() -> None:
    assert [entry.label for entry in matching("home", "command screen LINE")] == ["command"]
    assert matching("home", "zebra") == []


def test_keys_are_told_as_they_are_printed() -> None:
    names = [
        "question_mark",
        "at",
        "slash",
        "less_than_sign",
        "left_square_bracket",
        "colon",
        "escape",
        "ctrl+p",
        "f1",
        "j",
    ]
    assert [shown(name) for name in names] == ["?", "@", "/", "<", "[", ":", "esc", "ctrl+p", "f1", "j"]


@pytest.mark.parametrize("key", ["ctrl+enter", "alt+x", "ctrl+i", "ctrl+m", "ctrl+s", "ctrl+shift+p", "shift+up"])
def test_keys_that_terminals_eat_are_not_safe(key: str) -> None:
    assert not is_safe(key)
