"""The children of these tests find their modules where the shared fork server looks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphdbg.toolkit.isolation import ForkServer

from ..one_server import Lender

Ask = Any


@pytest.fixture(scope="session")
def child(one_server: Lender) -> Iterator[Ask]:
    """`child("make", case="...")`: what a function of hostile_children returns, in a child of its own; with the `wall`
    or not."""
    with ForkServer() as server:

        def call(function: str, *, wall: bool = False, **payload: Any) -> Any:
            if wall:  # as every task that is told of such a case
                answer = server.submit(f"tests.hostile.hostile_children:{function}", payload, limit_s=900).answer()
            else:
                given = {"function": function, "given": payload}
                answer = server.submit("tests.hostile.hostile_children:call", given, limit_s=900, ours=True).answer()
            assert answer.status == "done", answer
            return answer.value | {"output": answer.output} if wall else answer.value

        yield call


@pytest.fixture(scope="session")
def talking(child: Ask, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A case with every kind of text."""
    case = tmp_path_factory.mktemp("talking") / "case"
    child("make", case=str(case))
    return case
