"""The table of stages: each row says what its function takes and gives, and what of torch it calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import graphdbg.toolkit.compile_fx as package
from graphdbg.toolkit.compile_fx import STAGES, Stage
from graphdbg.toolkit.compile_fx.stage import REWRITING, Work, first_stage

FIELDS: dict[str, str] = Work.__annotations__
OPTIONS = set(FIELDS["options"].split(" | "))


def function_of(stage: Stage) -> Callable[..., Any]:
    return getattr(import_module(f"{package.__name__}.{stage.home}"), stage.name)


def kept(field: str) -> str:
    """The type of a field of a part, once it is there."""
    return FIELDS[field].removesuffix(" | None")


@pytest.mark.parametrize("stage", STAGES.values(), ids=list(STAGES))
def test_a_function_takes_and_gives_what_its_row_says(stage: Stage) -> None:
    signature = inspect.signature(function_of(stage))
    work, *taken = signature.parameters.values()
    assert work.annotation == "Work"
    assert tuple(item.name for item in taken) == stage.takes
    for item in taken:
        assert item.annotation == kept(item.name) or (item.name == "options" and item.annotation in OPTIONS), item
    assert signature.return_annotation == (kept(stage.gives) if stage.gives else "None")


@pytest.mark.parametrize("stage", STAGES.values(), ids=list(STAGES))
def test_what_it_takes_was_given_before(stage: Stage) -> None:
    names = list(STAGES)
    earlier = {STAGES[name].gives for name in names[: names.index(stage.name)]}
    assert set(stage.takes) - {"options"} <= earlier


def test_what_of_torch_a_row_names_is_called_here() -> None:
    source = "".join(path.read_text() for path in Path(package.__file__).parent.glob("*.py") if path.name != "stage.py")
    missing = [name for stage in STAGES.values() for name in stage.calls if name not in source]
    assert not missing


def test_stages_that_rewrite_are_those_with_passes() -> None:
    from graphdbg.toolkit.compile_fx.passes import PASSES

    assert set(REWRITING) == {stage for stage, _ in PASSES}


@pytest.mark.parametrize("stage", STAGES.values(), ids=list(STAGES))
def test_a_recorded_graph_enters_at_the_first_stage_that_it_has_before_it(stage: Stage) -> None:
    for recorded in set(stage.graphs) - {"joint_passed"}:
        assert list(STAGES).index(first_stage(recorded)) <= list(STAGES).index(stage.name)
