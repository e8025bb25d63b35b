"""The recorder's pieces that need no compiler: options, launching, the import hook, tracebacks."""

from __future__ import annotations

import importlib
import sys

import pytest

from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.autoload import in_inductor_worker
from graphdbg.toolkit.isolation import launch
from graphdbg.toolkit.recorder import leaving
from graphdbg.toolkit.recorder.options import Options, check_stages, checked, from_environment
from graphdbg.toolkit.recorder.origin import environment, rank_and_restart
from graphdbg.toolkit.recorder.summary import _by_reason
from graphdbg.toolkit.torch_private import importing


def test_options_survive_the_environment(tmp_path):
    options = checked(Options(run=str(tmp_path / "r"), inputs="first", stages=["post_grad", "dynamo"], wrapped=True))
    assert options.stages == ["dynamo", "post_grad_forward", "post_grad_backward", "post_grad_inference"]
    variables = options.environment()
    assert from_environment(variables["GRAPHDBG"], variables) == options


def test_unreadable_options_are_refused():
    with pytest.raises(UsageError, match="GRAPHDBG_OPTIONS"):
        from_environment("r", {"GRAPHDBG_OPTIONS": "{"})
    with pytest.raises(UsageError, match="unknown stage"):
        check_stages(["middle"])


def test_what_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    assert launch.command_line(["train.py", "-x"]) == [sys.executable, "train.py", "-x"]
    assert launch.command_line(["-m", "mod", "a"]) == [sys.executable, "-m", "mod", "a"]
    assert launch.command_line([sys.executable, "x.py"]) == [sys.executable, "x.py"]
    with pytest.raises(UsageError, match="no such script"):
        launch.command_line(["other.py"])


def test_the_python_behind_a_command(tmp_path, monkeypatch):
    script = tmp_path / "tool"
    script.write_text("#!/usr/bin/env python3\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert launch.python_of(["tool"]) == "python3"
    assert launch.python_of([sys.executable]) == sys.executable


def test_signals_become_codes():
    assert launch.run([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"], {}) == 143
    assert launch.signal_text(139) == "signal SIGSEGV"


def test_inductor_workers_are_left_alone():
    assert in_inductor_worker(["python", "/site-packages/torch/_inductor/compile_worker/__main__.py", "--pickler=x"])
    assert not in_inductor_worker(["python", "train.py"])


def test_ranks_and_environment_come_from_an_allow_list():
    assert rank_and_restart({}) == (None, 0)
    assert rank_and_restart({"RANK": "3", "TORCHELASTIC_RESTART_COUNT": "1"}) == (3, 1)
    assert environment({"WANDB_API_KEY": "secret", "TORCH_TOKEN": "secret", "OMP_NUM_THREADS": "2"}) == {
        "OMP_NUM_THREADS": "2"
    }


def test_import_hook_calls_back_once_and_restores_the_loader(tmp_path, monkeypatch):
    (tmp_path / "watched_module.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    called = []
    importing.unwatch()  # what an earlier test still waits for
    importing.watch({"watched_module": called.append})
    try:
        module = importlib.import_module("watched_module")
        assert called == [module] and module.value == 1
        assert type(module.__loader__).__name__ == "SourceFileLoader"
        assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
        assert not any(type(finder).__name__ == "_Finder" for finder in sys.meta_path)
        importing.watch({"watched_module": called.append})
        assert len(called) == 2
    finally:
        importing.unwatch()
        sys.modules.pop("watched_module", None)


def test_frames_of_the_recorder_are_cut_from_tracebacks(monkeypatch):
    monkeypatch.setattr(leaving, "_HERE", __file__)
    try:
        exec(compile("1 / 0", "user.py", "exec"))
    except ZeroDivisionError as error:
        trace = leaving.trimmed(error.__traceback__)
    assert trace is not None and trace.tb_next is None
    assert trace.tb_frame.f_code.co_filename == "user.py"


def test_remarks_with_one_reason_are_counted():
    messages = [f"not recorded, 0_0/{stage}: OSError: disk full" for stage in ("dynamo", "joint", "forward")]
    assert _by_reason([*messages, "stage joint cannot be recorded: gone"]) == [
        "not recorded, 0_0/dynamo and 2 more: OSError: disk full",
        "stage joint cannot be recorded: gone",
    ]
