"""Dynamo does not see the recorder: what it counts is the same with and without a recording
(tests/matrix/unseen_matrix.py)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch._dynamo.config
import torch._dynamo.utils

from graphdbg import open_run, record
from graphdbg.toolkit.live import steps
from graphdbg.toolkit.torch_private.unseen import alone, seen, unseen

ROOT = Path(__file__).parents[3]

ALONE = """
import sys
import graphdbg.toolkit.torch_private.unseen as unseen
if sys.argv[1] == "without":
    unseen.passed_over = lambda function: None  # so Dynamo is never switched off
from tests.matrix import unseen_matrix
unseen_matrix.prepare()
list(unseen_matrix.matrix([("eager_backward_inside", "aot_eager")]))
"""


def different(rows: Path, *words: str) -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.matrix.unseen_matrix", "--out", str(rows), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)["different"]


@pytest.mark.long
def test_a_compiled_training_step_is_counted_alike(tmp_path: Path) -> None:
    backends = "aot_eager,aot_eager_decomp_partition"
    assert not different(tmp_path / "rows.jsonl", "--only", "eager_backward_inside", "--backends", backends)


@pytest.mark.slow
def test_it_would_be_seen() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, "without"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "Dynamo saw [" in done.stderr and "Capturer" in done.stderr


@pytest.mark.slow
def test_all_programs_are_counted_alike(tmp_path: Path) -> None:
    assert not different(tmp_path / "rows.jsonl")


def dynamo_state() -> object:
    """What Dynamo does on this thread: None for nothing."""
    return torch._C._dynamo.eval_frame.get_eval_frame_callback()


def test_off_inside_and_as_it_was_in_what_is_theirs() -> None:
    messages: list[object] = []

    def theirs() -> None:
        messages.append(dynamo_state())

    @unseen
    def inner() -> None:
        messages.append(dynamo_state())
        seen(theirs)

    @unseen
    def ours() -> None:
        messages.append(dynamo_state())
        seen(theirs)
        seen(inner)
        with alone():
            seen(theirs)
        inner()
        raise ValueError("ours")

    before = torch._C._dynamo.eval_frame.set_eval_frame(False)  # only what was compiled before runs compiled
    try:
        with pytest.raises(ValueError, match="ours"):
            ours()
        messages.append(dynamo_state())
    finally:
        torch._C._dynamo.eval_frame.set_eval_frame(before)
    assert messages == [None, False, None, False, None, None, False, False]


def test_each_thread_has_its_own() -> None:
    messages: list[object] = []

    @unseen
    def ours() -> None:
        thread = threading.Thread(target=lambda: messages.append(seen(dynamo_state)))
        thread.start()
        thread.join()

    ours()
    assert messages == [None]


class Minus(torch.optim.Optimizer):
    """One whose step is compiled whole; torch's own break the graph."""

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(parameter.grad)


@pytest.mark.skipif(
    not hasattr(torch._dynamo.config, "ignore_logging_functions"), reason="this torch traces every hook"
)
def test_a_step_that_is_compiled_holds_nothing_of_ours(tmp_path: Path) -> None:
    weight = torch.ones(3, requires_grad=True)
    optimizer = Minus([weight], {})
    weight.grad = torch.ones(3)
    traced: list[str] = []
    before = torch._dynamo.config.ignore_logging_functions

    def backend(gm: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        traced.extend(code.co_filename for code in torch._dynamo.utils.get_traced_code() or ())
        return gm

    with record(tmp_path / "run", after_step=3) as session:
        step = torch.compile(lambda: optimizer.step(), backend=backend, fullgraph=True)
        for _ in range(2):
            step()
        json.dumps(sorted(torch._dynamo.config.ignore_logging_functions))  # as torch 2.11 logs it with each compile
        optimizer.step()
        assert not session.waiting.now and steps.count() == 3
        step()
    assert any("torch/optim" in file for file in traced)
    assert not [file for file in traced if Path(file).is_relative_to(Path(steps.__file__).parents[2] / "toolkit")]
    assert torch._dynamo.config.ignore_logging_functions == before
    [saved] = open_run(tmp_path / "run").graphs()
    assert saved.status == "ran" and "ignore_logging_functions" not in saved.record.config.get("dynamo", {})
