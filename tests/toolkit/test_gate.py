"""A failure of what is not the run's program convicts nobody, unless the run had it or it was asked for."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from graphdbg.dumps.store import SavedGraph, load_graph, open_run
from graphdbg.toolkit.commands.replay import replay as command
from graphdbg.toolkit.isolation import JUDGING, ForkServer
from graphdbg.toolkit.recorder.origin import processor
from graphdbg.toolkit.replaying.fidelity import CompiledArtifacts
from graphdbg.toolkit.replaying.gate import gated, unlike
from graphdbg.toolkit.replaying.replay import replay
from graphdbg.toolkit.triage.ladder import triage
from graphdbg.toolkit.verdicts.outcome import Outcome
from graphdbg.toolkit.verdicts.signature import Signature
from graphdbg.toolkit.verdicts.verdict import UNLIKE, judged

from .test_replay import edit

HERE = version("torch")
CRASH, WRONG = Signature("crash", "compile", "AssertionError", raw="s27"), Signature("accuracy", "compare", size=1.0)


def _saved(status: str = "ran", error: str = "", **record: Any) -> SavedGraph:
    facts = {"versions": {"torch": HERE, "cpu": processor()}, "config": {}, "graph": SimpleNamespace(nodes=[])} | record
    run = SimpleNamespace(processes=[])
    return cast(
        "SavedGraph",
        SimpleNamespace(
            run=run, status=status, error=error, stage="forward", inputs_record=None, record=SimpleNamespace(**facts)
        ),
    )


def _outcome(signature: Signature, *notes: str) -> Outcome:
    return Outcome(judged(signature, "inductor"), signature, notes=list(notes))


def _watched(apart: Any = "", *, same: bool = False) -> CompiledArtifacts:
    watched = CompiledArtifacts()
    watched.apart, watched.said, watched.same = apart, "another one", same
    return watched


def test_what_makes_it_another_program() -> None:
    wrong = _outcome(WRONG)
    assert unlike(_saved(), wrong, _watched("graph"), []) == "another one"
    assert unlike(_saved(), wrong, _watched("code"), []) == "another one"
    assert unlike(_saved(), _outcome(CRASH), _watched(), []) == "it compiled in the run under the same torch"
    lost = "setting inductor.post_grad_custom_post_pass is not applied: its value could not be saved"
    assert unlike(_saved(), _outcome(WRONG, lost), _watched(), []) == lost
    assert unlike(_saved(), _outcome(WRONG, lost), _watched(same=True), []) == ""
    assert unlike(_saved(), wrong, _watched(same=True), []) == ""
    assert unlike(_saved("failed"), _outcome(CRASH), _watched(), []) == ""


def test_another_torch_processor_or_choice_by_time_is_what_was_asked_for() -> None:
    wrong = _outcome(WRONG)
    assert unlike(_saved(versions={"torch": "2.10.0+cpu", "cpu": processor()}), wrong, _watched("graph"), []) == ""
    for other in (
        {"versions": {"torch": HERE, "cpu": "VSX"}},
        {"versions": {"torch": HERE}},
        {"config": {"inductor": {"max_autotune": True}}},
    ):
        assert unlike(_saved(**other), wrong, _watched("code"), []) == ""
        assert unlike(_saved(**other), wrong, _watched("graph"), []) == "another one" or "torch" not in str(other)


def test_only_a_failure_that_the_run_did_not_have_is_turned() -> None:
    assert gated(_saved(), _outcome(WRONG), "").failed
    result = gated(_saved(), _outcome(WRONG), "another one")
    assert (result.verdict, result.detail) == ("cannot_tell", UNLIKE)
    assert result.reason.endswith("; this is not the run's program (another one)")
    assert gated(_saved("failed", "AssertionError: s27"), _outcome(CRASH), "another one").failed
    assert not gated(_saved("failed", "KeyError: 'something else entirely'"), _outcome(CRASH), "another one").failed
    assert gated(_saved(), _outcome(WRONG), "another one", ["my_passes"]).failed
    assert gated(_saved(), Outcome(), "another one").verdict == "ok"


IMAGINARY = """
import torch
torch.manual_seed(0)
# A negative view, which generated code reads as it lies (2.13.0).
x = torch.randn(3, 4, dtype=torch.complex64).conj().imag
with torch.no_grad():
    torch.compile(lambda x, y: x.relu() + y)(x, torch.randn(3, 4))
"""


@pytest.fixture(scope="module")
def runs(recorded_script: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of a program that torch gets wrong, and the same whose recorded post-grad graph is another one."""
    run = recorded_script(IMAGINARY, "--inputs", "first")
    other = tmp_path_factory.mktemp("other") / "run"
    shutil.copytree(run, other)
    edit(open_run(other).graph("0_0/post_grad_inference").path / "graph.json", "aten.relu.default", "aten.neg.default")
    return run, other


@pytest.fixture(scope="module")
def server(warm_inductor_cache: Path) -> Iterator[ForkServer]:
    with ForkServer(warm_inductor_cache, threads=2, preload=JUDGING) as server:
        yield server


@pytest.mark.long
def test_replay_and_triage_convict_the_runs_own_program_alone(runs: tuple[Path, Path], server: ForkServer) -> None:
    own, other = (load_graph(run / "0_0/inference") for run in runs)
    replayed = replay(own, server=server, outputs=False)
    assert (replayed.verdict.kind, replayed.fidelity, replayed.unlike) == ("wrong_numbers", "same", "")
    replayed = replay(other, server=server, outputs=False)
    assert (replayed.verdict.verdict, replayed.verdict.detail) == ("cannot_tell", UNLIKE)
    assert "aten.neg.default" in replayed.verdict.reason
    assert replayed.verdict.next[-1].endswith("/0_0/inference --anyway")
    assert replay(other, server=server, outputs=False, anyway=True).verdict.kind == "wrong_numbers"
    ladder = triage(other, server=server, rungs=["eager", "inductor_nofuse"])
    assert (ladder.first_failing, ladder.verdict.detail) == (None, UNLIKE)
    assert "post-grad graph of" in ladder.summary


@pytest.mark.slow
def test_it_is_minified_where_that_is_asked_for(runs: tuple[Path, Path], tmp_path: Path) -> None:
    from graphdbg.minifier.commands.minify import minify

    graph = str(runs[1] / "0_0/inference")
    done = CliRunner().invoke(command, [graph])
    assert done.exit_code == 4
    assert done.output.startswith("CANNOT TELL: ")
    done = CliRunner().invoke(minify, [graph, "-o", str(tmp_path / "out"), "--json"])
    assert done.exit_code == 4
    assert not (tmp_path / "out").exists()
    # The tests' one server outlives the first command, and its wall knows the folder that is gone: another name.
    done = CliRunner().invoke(minify, [graph, "-o", str(tmp_path / "asked"), "--anyway"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "asked" / "case").exists(), done.output
