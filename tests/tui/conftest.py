"""For the tests of the workbench: homes of their own, a small run without torch, and no defect that goes unseen in a
panel."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphdbg.dumps.errors import GraphdbgError
from graphdbg.tui.app import Workbench
from graphdbg.tui.widgets.trouble import ShownError

from ..dumps.graphs import chain, new_run


@pytest.fixture(autouse=True)
def own_homes(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings, copies and jobs of a test lie in a folder of its own, which it returns; no editor, no tmux, colours."""
    home = tmp_path_factory.mktemp("home")
    (home / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(home / "tmp"))  # where jobs go that find no other place
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    for name in ("VISUAL", "EDITOR", "TMUX", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture(autouse=True)
def no_defect(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ShownError]]:
    """Fails a test in which the workbench told a defect of ours; one that wants defects empties the list it gets."""
    messages: list[ShownError] = []
    note = Workbench.note

    def noting(self: Workbench, shown_error: ShownError) -> tuple[ShownError, bool]:
        if not isinstance(shown_error.error, (GraphdbgError, OSError)):
            messages.append(shown_error)
        return note(self, shown_error)

    monkeypatch.setattr(Workbench, "note", noting)
    yield messages
    assert not messages, "\n".join(item.text for item in messages)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder holds `myrun` with a joint graph that ran and a forward one that failed."""
    monkeypatch.chdir(tmp_path)
    _, process = new_run(Path("myrun"))
    for stage in ("joint", "forward"):
        process.save_graph(chain(f"0_0/{stage}"))
        process.journal.event("compiling", graph=f"0_0/{stage}")
    process.journal.event("ran", graph="0_0/joint")
    process.journal.event(
        "failed", graph="0_0/forward", seconds=1.25, type="LoweringException", message="no lowering\nfor sin"
    )
    process.save_code("0_0/forward", {"output_code.py": "import torch\n", "cpp_fused_0.cpp": "int a;\n"})
    process.close()
    return tmp_path
