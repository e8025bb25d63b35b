"""Dynamo does not see the recorder: what it counts is the same with and without a recording (tests/bench/unseen_matrix.py)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from graphdbg.toolkit.unseen import alone, seen, unseen

BENCH = Path(__file__).parents[2] / "bench"

ALONE = """
import sys
import graphdbg.toolkit.unseen as unseen
sys.path.insert(0, sys.argv[1])
if sys.argv[2] == "without":
    unseen.passed_over = lambda function: None  # so Dynamo is never switched off
import unseen_matrix
unseen_matrix.prepare()
unseen_matrix.matrix(["eager_backward_inside"], ["aot_eager"])
"""


def different(*words: str) -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, str(BENCH / "unseen_matrix.py"), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)["different"]


def test_a_compiled_training_step_is_counted_alike() -> None:
    assert not different("--only", "eager_backward_inside", "--backends", "aot_eager,aot_eager_decomp_partition")


@pytest.mark.slow
def test_it_would_be_seen() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE, str(BENCH), "without"], capture_output=True, text=True, check=True)
    assert "Dynamo saw [" in done.stderr and "Capturer" in done.stderr


@pytest.mark.slow
def test_all_programs_are_counted_alike() -> None:
    assert not different()


def dynamo_state() -> object:
    """What Dynamo does on this thread: None for nothing."""
    return torch._C._dynamo.eval_frame.get_eval_frame_callback()


def test_off_inside_and_as_it_was_in_what_is_theirs() -> None:
    told: list[object] = []

    def theirs() -> None:
        told.append(dynamo_state())

    @unseen
    def inner() -> None:
        told.append(dynamo_state())
        seen(theirs)

    @unseen
    def ours() -> None:
        told.append(dynamo_state())
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
        told.append(dynamo_state())
    finally:
        torch._C._dynamo.eval_frame.set_eval_frame(before)
    assert told == [None, False, None, False, None, None, False, False]


def test_each_thread_has_its_own() -> None:
    told: list[object] = []

    @unseen
    def ours() -> None:
        thread = threading.Thread(target=lambda: told.append(seen(dynamo_state)))
        thread.start()
        thread.join()

    ours()
    assert told == [None]
