"""Names of passes: what people type, what bisect prints, what is misspelt; and that the table needs no torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.compile_fx import Pipeline
from graphdbg.toolkit.compile_fx.passes import PASSES, Matched, PassReport, asked, listing, names, outcomes, resolve


@pytest.mark.parametrize(
    ("name", "items"),
    [
        ("post_grad.remove_noop_ops", ["post_grad.remove_noop_ops"]),
        ("remove_noop_ops", ["joint.remove_noop_ops", "post_grad.remove_noop_ops"]),
        ("pass_pattern_1", ["joint.softmax_patterns", "post_grad.matmul_patterns"]),
        ("joint.pass_pattern_1", ["joint.softmax_patterns"]),
        ("joint_graph_passes.pass_pattern_1", ["joint.softmax_patterns"]),  # as bisect prints it
        ("post_grad_passes.remove_noop_ops", ["post_grad.remove_noop_ops"]),
        ("post_grad_custom_pre_pass", ["post_grad.post_grad_custom_pre_pass", "post_grad.group_batch_fusion_passes"]),
        ("post_grad.post_grad_custom_pre_pass", ["post_grad.post_grad_custom_pre_pass"]),
        ("joint.attention_patterns/pointless_convert", ["joint.attention_patterns/pointless_convert"]),
        ("joint.pass_pattern_0/pad_mm", ["joint.attention_patterns/pad_mm"]),
        ("pointless_view", ["joint.early_patterns/pointless_view"]),  # a pattern, as bisect prints it
        ("_sfdp_pattern_1_training", ["joint.attention_patterns/_sfdp_pattern_1_training"]),
        ("pad_mm", ["joint.attention_patterns/pad_mm"]),
        ("custom_backend_passes_cuda", ["post_grad.custom_backend_passes_cuda"]),
        ("custom_backend_passes", ["post_grad.custom_backend_passes_*"]),
    ],
)
def test_a_name_is_all_that_it_can_mean(name: str, items: list[str]) -> None:
    assert [f"{stage}.{item}" for stage, item in resolve(name)] == items


def test_a_misspelt_name_is_told_with_the_nearest_and_where_all_are() -> None:
    with pytest.raises(UsageError) as error:
        resolve("remove_noop")
    text = str(error.value)
    assert text.startswith("no pass or stage is called 'remove_noop': ")
    assert text.endswith(" Did you mean remove_noop_ops (joint, post_grad); `--skip list` lists all.")


@pytest.mark.parametrize("name", ["nothing.like.it", "joint.", "", "lower.remove_noop_ops", "joint.early_patterns/"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no pass or stage is called"):
        Pipeline(skip=(name,))


def test_a_pass_of_another_stage_is_not_meant() -> None:
    with pytest.raises(UsageError, match=r"the passes, \d+ of joint, have other names"):
        resolve("joint.stable_sort")


def test_stages_and_passes_are_told_apart() -> None:
    assert asked(["joint", "post_grad.dce"]) == ({"joint"}, {("post_grad", "dce")})
    assert asked("joint_graph_passes") == ({"joint"}, frozenset())  # all of them, as bisect prints it
    pipeline = Pipeline(skip=("post_grad.dce",))
    assert pipeline.changes_code and not pipeline.skip


def test_a_bare_name_skips_what_can_be_skipped() -> None:
    with pytest.raises(UsageError, match="cannot be skipped: passes before it leave nodes"):
        asked(["stable_topological_sort"])


def test_each_pass_is_listed_with_what_it_does() -> None:
    lines = listing().splitlines()
    assert len(lines) == len(names()) == len(PASSES)
    assert "joint.softmax_patterns (pass_pattern_1): softmax of scaled values without overflow" in lines
    assert [name for name in names("joint") if not name.startswith("joint.")] == []


def test_what_came_of_a_skip_is_told() -> None:
    reports = [
        PassReport("joint", "remove_noop_ops", skipped_because="asked for"),
        PassReport("joint", "attention_patterns", matched=[Matched("mm_pattern", 1, 2), Matched("bmm_to_mm", 3)]),
    ]
    wanted = {
        ("joint", "remove_noop_ops"),
        ("joint", "auto_chunker"),
        ("joint", "attention_patterns/pad_mm"),
        ("joint", "attention_patterns/attention"),
    }
    assert outcomes(wanted, reports) == [
        "joint.attention_patterns/attention matched nothing in this graph: nothing skipped",
        "joint.attention_patterns/pad_mm: kept from 2 matches",
        "joint.auto_chunker did not run for this graph: nothing skipped",
        "joint.remove_noop_ops: skipped 1 time",
    ]


def test_names_need_no_torch() -> None:
    code = (
        "import sys; from graphdbg.toolkit.compile_fx.passes import listing; listing(); assert 'torch' not in "
        "sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
