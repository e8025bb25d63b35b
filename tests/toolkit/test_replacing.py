"""Functions of torch that are ours while a thread asks: others see none of it, and the last one out restores them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from graphdbg.toolkit.torch_private.replacing import Hooks, Replaced, replaced


def usual(value: str) -> str:
    return f"usual {value}"


def made(hooks: list[Hooks]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda original: lambda value: f"{hooks[0].here} {value}" if hooks[0].here else original(value)


@pytest.fixture
def owner() -> SimpleNamespace:
    return SimpleNamespace(function=usual)


@pytest.fixture
def hooks(owner: SimpleNamespace) -> Hooks:
    box: list[Hooks] = []
    box.append(Hooks(lambda: [(owner, "function", made(box))]))
    return box[0]


def test_only_this_thread_sees_it(owner: SimpleNamespace, hooks: Hooks) -> None:
    seen: list[str] = []
    with hooks.inside("mine"):
        other = threading.Thread(target=lambda: seen.append(owner.function("x")))
        other.start()
        other.join()
        seen.append(owner.function("x"))
    assert seen == ["usual x", "mine x"]
    assert owner.function is usual


def test_the_last_one_out_restores_in_whatever_order_they_leave(owner: SimpleNamespace, hooks: Hooks) -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with hooks.inside("other"):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with hooks.inside("first"):
        thread.start()
        assert entered.wait(10)
    assert owner.function("x") == "usual x"
    assert owner.function is not usual
    leave.set()
    thread.join()
    assert owner.function is usual


def test_errors_and_nesting_leave_nothing(owner: SimpleNamespace, hooks: Hooks) -> None:
    with pytest.raises(KeyError), hooks.inside("outer"), hooks.inside("inner"):
        assert owner.function("x") == "inner x"
        raise KeyError
    assert owner.function is usual
    assert hooks.here is None


def test_somebody_elses_wrapper_stays(owner: SimpleNamespace, hooks: Hooks) -> None:
    with hooks.inside("mine"):
        ours = owner.function
        owner.function = lambda value: f"theirs {ours(value)}"
    assert owner.function("x") == "theirs usual x"


def test_an_attribute_is_put_back_as_it_was_or_taken_away() -> None:
    class Owner:
        @staticmethod
        def kept() -> str:
            return "kept"

    before = vars(Owner)["kept"]
    with replaced(Owner, "kept", staticmethod(lambda: "ours")), replaced(Owner, "new", 1):
        assert (Owner.kept(), Owner.new) == ("ours", 1)  # type: ignore[attr-defined]
    assert vars(Owner)["kept"] is before
    assert not hasattr(Owner, "new")


def test_what_somebody_has_wrapped_meanwhile_stays(owner: SimpleNamespace) -> None:
    ours = Replaced()
    ours.put(owner, "function", lambda value: f"ours {value}")
    wrapped = owner.function
    owner.function = theirs = lambda value: f"theirs {wrapped(value)}"
    ours.put_back()
    assert owner.function is theirs
