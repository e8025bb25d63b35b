"""The findings of a judging command, passed to whoever keeps them: the workbench shows them, wherever the command was
typed.

Prints, keeps and judges nothing itself. Only a command line that a person started has a keeper: none in a program that
calls graphdbg, in a job of the workbench (its output is read anyhow), or in a command that a search asks again and
again.

For example: `found("bisect", "myrun", "myrun/0_0/forward", [result.to_json()], code=1)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

KEPT_ELSEWHERE = "_GRAPHDBG_KEPT_ELSEWHERE"
"""Set in the environment of commands whose findings nobody needs to keep. (What begins with GRAPHDBG may change a
judgement.)"""

Keeper = Callable[[str, str, Iterable[dict[str, Any]], int], object]
_keepers: list[Keeper] = []


def keep_by(keeper: Keeper) -> None:
    """Sets what keeps the findings from now on."""
    _keepers[:] = [keeper]


def found(asked: str, target: str, lines: Iterable[dict[str, Any]], code: int) -> None:
    """Hands over the findings of a command. `asked`: its run or graph as typed; `target`: the path of that; `lines`:
    the findings as `--json-lines` (of bisect and check `--json`) prints them; `code`: its exit code."""
    for keeper in _keepers:
        keeper(asked, target, lines, code)
