"""What dump says when it ends: the next commands, and what of the run a replay cannot bring back."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import graphdbg
from graphdbg.dumps import trust
from graphdbg.dumps.schema import FORMAT, DefinitionRecord, RunRecord
from graphdbg.dumps.store import open_run
from graphdbg.dumps.why.show import next_of
from graphdbg.dumps.writer import RunWriter
from graphdbg.toolkit.recorder import summary
from graphdbg.toolkit.recorder.flight import note_settings
from tests.dumps.graphs import chain

SETTING = {"unsaved": "setting inductor.post_grad_custom_post_pass", "what": "mypass.P", "module": "mypass"}


def mine(graph: Any) -> None:
    """A pass of the user's."""


class Pass:
    """Another one."""

    def __call__(self, graph: Any) -> None: ...


def closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *events: str, name: str = "myrun", module: str = "mypass"
) -> list[str]:
    """The closing words of a run with two graphs, the second of which had these events."""
    process = RunWriter.create(tmp_path / name, RunRecord(format=FORMAT, command=["train.py"])).process()
    for local in ("0_0/forward", "1_0/forward"):
        process.save_graph(chain(local))
    for kind in events:
        process.journal.event(kind, graph="1_0/forward", error="RuntimeError: no")
    process.journal.event("note", message="setting", **SETTING | {"module": module})
    process.close()
    monkeypatch.chdir(tmp_path)
    return summary.lines(tmp_path / name)


@pytest.mark.parametrize(
    ("events", "wanted"),
    [
        (("compiling", "compiled", "ran"), ["triage myrun --trust", "ls myrun", "replay myrun/0_0/forward --trust"]),
        (("compiling", "failed"), ["minify myrun/1_0/forward --trust", "ls myrun", "replay myrun/1_0/forward --trust"]),
    ],
)
@pytest.mark.parametrize("module", ["__main__", "mypass"])
def test_the_next_commands_begin_with_minify_where_something_failed_and_bring_the_users_pass_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: tuple[str, ...], wanted: list[str], module: str
) -> None:
    reported = closing(tmp_path, monkeypatch, *events, module=module)
    assert reported[reported.index("graphdbg: next, try") + 1 :] == [f"  graphdbg {words}" for words in wanted]


def test_a_graph_that_waits_for_other_ranks_is_not_minified_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = RunWriter.create(tmp_path / "myrun", RunRecord(format=FORMAT, command=["train.py"])).process()
    record = chain("0_0/forward")
    record.graph.meta["process_groups"] = {"dict": [["0", {"dict": [["backend", "gloo"], ["world_size", 2]]}]]}
    process.save_graph(record)
    process.journal.event("failed", graph="0_0/forward", error="RuntimeError: Connection closed by peer")
    process.close()
    monkeypatch.chdir(tmp_path)
    assert "  graphdbg triage myrun" in summary.lines(tmp_path / "myrun")


@pytest.mark.parametrize(("ours", "flag"), [(True, " --trust"), (False, "")])
def test_ls_brings_the_users_operators_back_where_the_user_recorded_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: bool, flag: str
) -> None:
    process = RunWriter.create(tmp_path / "run", RunRecord(format=FORMAT, command=["train.py"])).process()
    own = DefinitionRecord("__main__", "train.py", "import torch", spaces=["mine"])
    process.save_graph(msgspec.structs.replace(chain("0_0/forward"), definitions=[own]))
    process.journal.event("failed", graph="0_0/forward", error="RuntimeError: no")
    process.close()
    monkeypatch.setattr(trust, "trusted", lambda run=None: ours)
    assert next_of("run", open_run(tmp_path / "run")) == [f"graphdbg replay run/0_0/forward{flag}"]


def test_names_are_quoted_and_what_is_lost_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reported = closing(tmp_path, monkeypatch, name="my run")
    assert reported[-3] == "  graphdbg triage 'my run' --trust"
    (line,) = [line for line in reported if "cannot be saved" in line]
    assert line.startswith("graphdbg: setting inductor.post_grad_custom_post_pass (mypass.P) ")


def test_each_thing_is_told_once_and_they_are_limited() -> None:
    notes = [{**SETTING, "unsaved": f"setting inductor.{number}"} for number in range(7)] * 2
    reported = summary.unsaved_lines([*notes, {"message": "another"}])
    assert len(reported) == 6
    assert reported[-1] == "graphdbg: and 2 more that cannot be saved; each replay lists its own"


def test_a_module_that_can_be_imported_is_named() -> None:
    assert summary.unsaved_lines([SETTING])[0].endswith(
        "unless --trust runs its recorded source or --import mypass sets it"
    )
    own = summary.unsaved_lines(
        [{**SETTING, "module": "__main__", "what": "__main__.P", "file": "/home/ann/train.py", "line": 3}]
    )[0]
    assert "(P, train.py:3)" in own
    assert own.endswith("unless --trust runs its recorded source")


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (mine, "mine"),
        (functools.partial(mine), "mine"),
        (Pass(), "Pass"),
        ([1, "a", Pass()], "Pass"),
        ({"a": mine}, "mine"),
    ],
)
def test_the_function_or_class_is_named(value: Any, what: str) -> None:
    messages: list[dict[str, Any]] = []
    session: Any = SimpleNamespace(note=lambda message, **fields: messages.append(fields))
    record: Any = SimpleNamespace(
        config={"inductor": {"a": {"opaque": ["x", "x"]}, "b": 1, "trace.log": {"opaque": ["x", "x"]}}}
    )
    note_settings(session, {"inductor": {"a": value, "b": 1}}, record)
    (note,) = messages
    assert note["unsaved"] == "setting inductor.a"
    assert note["what"] == f"{__name__}.{what}"
    assert (note["module"], Path(note["file"]).name) == (__name__, "test_first_words.py")


def test_a_recording_names_the_pass_and_the_backend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch
    from torch._inductor import config

    def backend(gm: Any, inputs: Any) -> Any:
        return gm.forward

    torch.compiler.reset()
    with config.patch(post_grad_custom_pre_pass=mine), graphdbg.record(str(tmp_path / "run"), inputs="none"):
        torch.compile(lambda x: x.sin(), backend=backend)(torch.ones(2))
        torch.compile(lambda x: x.cos(), backend="eager")(torch.ones(2))
    torch.compiler.reset()
    messages = [line for line in capsys.readouterr().err.splitlines() if "saved" in line and "replay" in line]
    assert ["post_grad_custom_pre_pass" in line for line in messages] == [True, False]
    assert "a replay runs Inductor" in messages[1]


def test_a_pass_that_an_imported_module_set_is_not_called_lost() -> None:
    from torch._inductor import config

    from graphdbg.toolkit.live.spec import settings

    saved = {"inductor": {"post_grad_custom_pre_pass": {"opaque": ["builtins.function", "<function mine at 0x7f>"]}}}
    with settings(saved) as lost:
        assert len(lost) == 1
    with config.patch(post_grad_custom_pre_pass=mine), settings(saved) as lost:
        assert lost == []
    with config.patch(post_grad_custom_pre_pass=Pass()), settings(saved) as lost:
        assert len(lost) == 1
