"""The table against torch itself: each registered pattern and each option has its row, and no row is of something torch
lacks."""

from __future__ import annotations

import inspect
import re
from fnmatch import fnmatchcase
from typing import Any

import pytest
import torch

from graphdbg.toolkit.compile_fx.passes import PASSES, resolve
from graphdbg.toolkit.compile_fx.passes.table import PREDISPATCH

from .passes_cases import here


def groups() -> dict[tuple[str, str], Any]:
    """(stage, torch's name) -> the patterns that are registered, for those that are groups. Registers Inductor's own
    first."""
    from torch._inductor.fx_passes import b2b_gemm, joint_graph, post_grad, pre_grad, replace_random

    joint_graph.lazy_init(torch.device("cpu"))
    post_grad.lazy_init()
    pre_grad.lazy_init()
    results: dict[tuple[str, str], Any] = {
        ("joint", "early_patterns"): joint_graph.early_patterns,
        ("joint", "replace_random_passes"): replace_random.patterns,
        ("post_grad", "b2b_gemm_pass"): b2b_gemm.B2B_GEMM_PASS,
    }
    for stage, registered in (("joint", joint_graph.pass_patterns), ("post_grad", post_grad.pass_patterns)):
        results |= {(stage, f"pass_pattern_{i}"): group for i, group in enumerate(registered)}
    return results


def test_each_registered_pattern_can_be_asked_for_by_its_name() -> None:
    from graphdbg.toolkit.compile_fx.passes import pattern_name

    count = 0
    for (stage, name), group in groups().items():
        (result,) = resolve(f"{stage}.{name}")
        row = PASSES[result]
        registered = {pattern_name(entry) for entries in group.patterns.values() for entry in entries}
        unknown = {item for item in registered if not any(fnmatchcase(item, glob) for glob in row.patterns)}
        assert not unknown, f"{stage}.{name} has {sorted(unknown)}"
        count += len(registered)
        for item in registered:
            assert (stage, f"{row.name}/{item}") in resolve(item)
        unused = [glob for glob in row.patterns if not any(fnmatchcase(item, glob) for item in registered)]
        assert not unused, f"{stage}.{name} has no {unused}"
    assert count > 40


@pytest.mark.parametrize("stage", ["pre_grad", "post_grad"])
def test_each_option_of_fusions_has_a_row(stage: str) -> None:
    from torch._inductor.fx_passes import group_batch_fusion, post_grad, split_cat

    names = {*getattr(split_cat, f"{stage.upper()}_PATTERNS"), *getattr(group_batch_fusion, f"{stage.upper()}_FUSIONS")}
    if stage == "post_grad":
        names -= set(getattr(post_grad, "OPTIMUS_EXCLUDE_POST_GRAD", ()))
    assert names == {
        own_pass.name
        for own_pass in PASSES.values()
        if own_pass.stage == stage and "_fusion_options has" in own_pass.when
    }


def test_passes_before_dispatch_are_torchs() -> None:
    from torch._inductor.fx_passes import pre_grad

    source = inspect.getsource(pre_grad._run_pre_dispatch_passes)
    named = [name for name in re.findall(r"^\s{8}(\w+),", source, re.MULTILINE) if hasattr(pre_grad, name)]
    names = {pre_grad._get_pass_name_func(getattr(pre_grad, name))[0] for name in named}
    assert names - {"group_batch_fusion_passes"} == set(PREDISPATCH)


@pytest.mark.parametrize("stage", ["pre_grad", "joint", "post_grad"])
def test_each_observer_in_torchs_source_has_a_row(stage: str) -> None:
    """A pass that a later torch adds shows here, whether or not any of our graphs runs it."""
    from torch._inductor.fx_passes import joint_graph, post_grad, pre_grad

    function = {
        "pre_grad": pre_grad.pre_grad_passes,
        "joint": joint_graph.joint_graph_passes,
        "post_grad": post_grad.post_grad_passes,
    }[stage]
    source = inspect.getsource(function)
    source += inspect.getsource(pre_grad.fuse_fx) if stage == "pre_grad" else ""
    named = re.findall(r'GraphTransformObserver\(\s*\w+, "(\w+)"', source)
    assert len(named) >= 4
    for name in named:
        assert resolve(f"{stage}.{name}")


def test_each_row_of_this_torch_is_in_its_source() -> None:
    """The other way round: a row whose name torch has dropped."""
    from torch._inductor.fx_passes import joint_graph, post_grad, pre_grad, replace_random

    text = "".join(inspect.getsource(module) for module in (pre_grad, joint_graph, post_grad, replace_random))
    text += "".join(("fake_tensor_prop", "auto_chunker"))  # called by the stage; a package of its own
    for own_pass in PASSES.values():
        if not here(own_pass.full_name) or "_fusion_options has" in own_pass.when:
            continue
        names = [re.sub(r"_\d$", "_", name) for name in (*own_pass.aliases, own_pass.name)]
        assert any(name.rstrip("*").lower() in text.lower() for name in names), own_pass.full_name


def test_rows_of_the_other_torch_are_not_here() -> None:
    from torch._inductor.fx_passes import post_grad

    source = inspect.getsource(post_grad.post_grad_passes)
    other = [
        own_pass.name for own_pass in PASSES.values() if not here(own_pass.full_name) and own_pass.stage == "post_grad"
    ]
    assert other and not [name for name in other if name in source]
