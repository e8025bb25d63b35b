"""Armed processes: what is written when a call raised, when something was noticed later, and after a death; what stays
behind."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import graphdbg
from graphdbg.dumps import trust
from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.isolation import cache, client
from graphdbg.toolkit.recorder.armed import calls, entry, rings, saving
from graphdbg.toolkit.recorder.armed import entry as armed_session
from graphdbg.toolkit.recorder.armed.entry import Armed


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Armed]:
    """This process, armed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    torch._dynamo.reset()
    yield entry.begin(at_end=False)
    entry.end()
    assert trust.rings() == []
    torch._dynamo.reset()


def first_inputs(run: Path) -> list[Any]:
    (row,) = graphdbg.open_run(run).graphs()
    return graphdbg.load_graph(row.path).inputs()


def scaled(x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    return (x * 2)[words]


def test_a_call_that_raised_is_written_with_its_own_inputs(ring: Armed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls.Allowance, "may", lambda self, what: True)  # time for each look, on any machine
    compiled = torch.compile(scaled, backend="eager")
    x = torch.randn(5)
    compiled(x, torch.tensor([1, 2]))
    with pytest.raises((IndexError, RuntimeError)):
        compiled(x, torch.tensor([1, 77]))
    compiled(x, torch.tensor([3, 4]))
    saved = saving.save(ring, None, None)
    assert saved.path.name == "graphdbg-armed-1" and "raised" in saved.why and saved.notes == []
    kept, words = first_inputs(saved.path)
    assert torch.equal(kept, x) and words.tolist() == [1, 77]
    (row,) = graphdbg.open_run(saved.path).graphs()
    assert row.status == "failed"


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda p, step: step(), "was written to (version"),
        (lambda p, step: p.data.mul_(2), "without its version counter"),
        (lambda p, step: p.untyped_storage().resize_(0), "has released its memory"),
        (lambda p, step: None, ""),
    ],
)
def test_what_was_written_since_the_call_is_named(ring: Armed, write: Any, text: str) -> None:
    model = torch.nn.Linear(300, 300)  # not copied at each call
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model, backend="eager")
    compiled(torch.randn(2, 300)).sum().backward()
    write(model.weight, optimizer.step)
    saved = saving.save(ring, model, None)
    about = [note for note in saved.notes if "weight" in note]
    assert [text in note for note in about] == [True] * bool(text), saved.notes
    assert ("by SGD.step" in about[0]) == (text == "was written to (version") if about else not text


def test_an_activation_that_is_gone_is_made_again(ring: Armed) -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        x = x.sin() + 1
        torch._dynamo.graph_break()
        return x.cos()

    x = torch.randn(4)
    with torch.no_grad():
        torch.compile(broken, backend="eager")(x)
    saved = saving.save(ring, None, None)
    assert any("was computed again" in note for note in saved.notes)
    (second,) = [row for row in graphdbg.open_run(saved.path).graphs() if row.id.startswith("1_0")]
    torch.testing.assert_close(graphdbg.load_graph(second.path).inputs()[0], x.sin() + 1)


def test_graphs_that_compile_in_a_step_are_of_that_step(ring: Armed) -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(x) * 2
        torch._dynamo.graph_break()
        return (x + 1).sum()

    torch.compile(halves, backend="aot_eager")(torch.randn(5, requires_grad=True)).backward()
    assert len(saving.save(ring, None, None).graphs) == 2  # AOTAutograd traces joint graphs by the engine


def test_a_model_that_is_deleted_is_freed(ring: Armed) -> None:
    model = torch.nn.Linear(30, 30)
    torch.compile(model, backend="eager")(torch.randn(2, 30))
    gone = weakref.ref(model.weight)
    del model
    gc.collect()
    assert gone() is None
    notes = saving.save(ring, None, None).notes
    assert any("weight" in note and "was freed, and is synthesised" in note for note in notes)


def test_a_parameter_that_took_the_place_of_another_is_the_one_that_is_held(ring: Armed) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    compiled = torch.compile(model, backend="eager")
    compiled(torch.ones(2, 3))
    assert ring.calls is not None
    (kept,) = ring.calls.last_step()
    again = 0
    for number in range(40):
        value = torch.full((3, 3), float(number))
        before = id(model[0].weight)
        del model[0].weight
        model[0].weight = torch.nn.Parameter(value)
        again += before == id(model[0].weight)
        compiled(torch.ones(2, 3))
        assert kept.newest is not None
        assert any(value is model[0].weight for value in kept.values(kept.newest)), number
    assert again, "no parameter came to lie where another had been: the test shows nothing"


@pytest.mark.long
def test_the_ring_is_bounded(ring: Armed, monkeypatch: pytest.MonkeyPatch) -> None:
    entry.end()
    monkeypatch.setattr(armed_session, "RING_BYTES", 1 << 18)
    ring = entry.begin(at_end=False)
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 99)
    monkeypatch.setattr(torch._dynamo.config, "accumulated_recompile_limit", 99)

    def many(x: torch.Tensor, n: float) -> torch.Tensor:
        for _ in range(150):
            x = x.sin() * n
        return x

    compiled = torch.compile(many, backend="eager", dynamic=False)
    for number in range(14):
        compiled(torch.ones(3), number + 0.5)
    size = sum(path.stat().st_size for path in ring.path.rglob("*") if path.is_file())
    graphs = len(graphdbg.open_run(ring.path).graphs())
    assert size <= 1 << 18 and 1 < graphs < 14


def test_requests_that_make_no_sense_are_sentences(ring: Armed, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing was compiled since"):
        graphdbg.save_repro()
    torch.compile(scaled, backend="eager")(torch.ones(3), torch.tensor([0]))
    with pytest.raises(UsageError, match="no call of this function is kept"):
        graphdbg.save_repro(first_inputs)
    with pytest.raises(UsageError, match="never overwritten"):
        graphdbg.save_repro(run=tmp_path)
    entry.end()
    with pytest.raises(UsageError, match="not armed"):
        graphdbg.save_repro()
    entry.begin(at_end=False)


KILLED = """
import os, signal, sys, torch

@torch.library.custom_op("armed::dies", mutates_args=())
def dies(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 9: os.kill(os.getpid(), signal.SIGKILL)
    return x.clone()

dies.register_fake(lambda x: torch.empty_like(x))
compiled = torch.compile(lambda x: dies(x + 1), backend="eager")
for step in range(5):
    compiled(torch.full((3,), step))
"""


@pytest.mark.long
def test_a_process_that_is_killed_leaves_a_run_to_the_next_command(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "GRAPHDBG_ARM": "1"}
    (tmp_path / "killed.py").write_text(KILLED)
    died = subprocess.run([sys.executable, "killed.py"], cwd=tmp_path, env=environment, check=False)
    assert died.returncode == -9
    command = [sys.executable, "-m", "graphdbg", "ls", "--json"]
    listed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "killed.py ended before it could save its graphs" in listed.stderr
    assert "the last one was 0_0/dynamo: it ran (execution 4)" in listed.stderr
    assert json.loads(listed.stdout)
    (value,) = first_inputs(tmp_path / "graphdbg-armed-1")
    assert value.tolist() == [3, 3, 3]
    again = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "ended before it could save its graphs" not in again.stderr


@pytest.mark.long
def test_a_ring_that_cannot_be_made_a_run_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "GRAPHDBG_ARM": "1"}
    (tmp_path / "killed.py").write_text(KILLED)
    subprocess.run([sys.executable, "killed.py"], cwd=tmp_path, env=environment, check=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(rings.journal.Journal, "event", refused)
        assert rings.recovered() == [] and not list(tmp_path.glob("graphdbg-armed*"))
    (item,) = rings.recovered()
    assert item.graph == "0_0/dynamo" and trust.rings() == []


def test_a_fork_leaves_its_parents_ring_alone(ring: Armed) -> None:
    compiled = torch.compile(scaled, backend="eager")
    x = torch.randn(5)
    compiled(x, torch.tensor([1, 2]))
    pid = os.fork()
    if pid == 0:
        compiled(x, torch.tensor([3, 4]))
        entry.end()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    saved = saving.save(ring, None, None)
    assert first_inputs(saved.path)[1].tolist() == [1, 2]


def test_a_graph_that_fails_again_is_written_again(ring: Armed) -> None:
    compiled = torch.compile(scaled, backend="eager")
    for number in (77, 78):
        with pytest.raises((IndexError, RuntimeError)):
            compiled(torch.ones(5), torch.tensor([1, number]))
        assert first_inputs(saving.save(ring, None, None).path)[1].tolist() == [1, number]


def test_where_no_ring_can_be_made_the_program_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    graphdbg.arm()
    assert "graphdbg: not armed: no ring can be made" in capsys.readouterr().err and entry.armed() is None


def test_marks_are_read_as_they_were_written(tmp_path: Path) -> None:
    mark = rings.Mark(tmp_path)
    mark.call(b"0_0/dynamo", 7)
    namespace: Any = SimpleNamespace(states={"0_0/dynamo": SimpleNamespace(status="ran")})
    assert rings._last(namespace, tmp_path / rings.MARK)[:3] == ("0_0/dynamo", True, "it ran (execution 7)")
    mark.state(rings.BACKWARD)
    assert rings._last(namespace, tmp_path / rings.MARK)[1] is False


def test_a_servers_folder_is_furnished_by_one_thread_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = tmp_path / "seed"
    (seed / "files" / "precompiled_headers").mkdir(parents=True)
    for number in range(400):
        (seed / "files" / "precompiled_headers" / f"{number}").write_text("x")
    (seed / cache.MADE).touch()
    monkeypatch.setattr(cache, "known_seed", lambda: seed)
    root = tmp_path / "server"
    (root / "tmp").mkdir(parents=True)
    server = object.__new__(client._ServerProcess)
    server.lock, server.root, server.walled, server.furnished = threading.Lock(), root, False, False
    errors: list[BaseException] = []

    def furnish() -> None:
        try:
            server.furnish()
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=furnish) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert errors == [] and server.furnished
