"""Each named pass of the table runs in one of the cases, is seen there, and is left out when asked, or says why it
cannot be."""

from __future__ import annotations

import pytest

from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.compile_fx import Pipeline
from graphdbg.toolkit.compile_fx.passes import PASSES, known

from .passes_cases import Case, cases, compiled, here, seen

CASES = cases()
OF = {name: case for case in CASES.values() for name in case.names}
NAMES = [own_pass.full_name for own_pass in PASSES.values() if here(own_pass.full_name)]


def as_run(name: str) -> str:
    return name.replace("passes_*", "passes_cpu")


def skippable(name: str) -> bool:
    row = known(*name.split(".", 1))
    assert row is not None
    return not row.always_needed


def code_of(pipeline: Pipeline, case: Case) -> bool:
    """Whether code was generated, where the case goes so far."""
    last = [report for report in pipeline.reports if report.stage == case.until]
    return bool(last) and not last[-1].error


def test_the_cases_have_each_pass_of_the_table() -> None:
    assert set(OF) == set(NAMES)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_passes_of_a_case_are_seen_and_can_all_be_left_out(name: str) -> None:
    case = CASES[name]
    usual = compiled(case)
    result = seen(usual)
    for each in map(as_run, case.names):
        assert each in result, f"{each} was not seen in {sorted(result)}"
        assert all(
            item.nodes_before is not None and item.seconds >= 0 and not item.skipped_because for item in result[each]
        )
    assert code_of(usual, case)
    mine = tuple(as_run(each) for each in case.names if skippable(each))
    without = compiled(case, mine)
    result = seen(without)
    inner = {"fuse_seed_creation_pass", "fuse_offset_creation_pass"}  # run by a pass that is left out as well
    for each in mine:
        if each.partition(".")[2] not in inner or "joint.replace_random_passes" not in mine:
            assert result[each] and all(item.skipped_because == "asked for" for item in result[each]), each
    assert code_of(without, case)


@pytest.mark.parametrize("name", [name for name in NAMES if not skippable(name)])
def test_what_no_graph_can_do_without_says_why(name: str) -> None:
    row = known(*name.split(".", 1))
    with pytest.raises(UsageError) as reported:
        Pipeline(skip=(name,))
    assert str(reported.value) == f"the pass {name} cannot be skipped: {row.needed}. Leave it in."


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if skippable(name)])
def test_each_pass_is_left_out_alone(name: str) -> None:
    case, name = OF[name], as_run(name)
    without = compiled(case, (name,))
    result = seen(without)
    skipped = [each for each, ones in result.items() if any(item.skipped_because for item in ones)]
    assert skipped == [name]
    assert code_of(without, case)
    count = len(result[name])
    assert without.skipped_passes() == [f"{name}: skipped {count} time{'' if count == 1 else 's'}"]
