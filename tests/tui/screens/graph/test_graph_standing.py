"""A node's prompt over the screen, and nodes that become a case, which is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from graphdbg.tui.app import Workbench
from graphdbg.tui.here import Here

from ...stories import ROOMS, key, play, room_of, shown, until


def test_a_prompt_wants_a_terminal(work: Path) -> None:
    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: "sin" in shown(app), "the nodes")
        await key(app, "A", lambda: "cannot be shown over this screen" in shown(app))
        assert "graphdbg replay myrun/0_0/forward --at" in shown(app)

    play(story, ROOMS["graph"]())


@pytest.mark.slow
def test_nodes_become_a_case_that_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    from graphdbg.dumps.live import save_graph

    monkeypatch.chdir(tmp_path)
    given = torch.randn(4, 4)
    save_graph(
        make_fx(lambda x: (torch.relu(x.sin().cos()) * 2,))(given), [given], tmp_path / "case", stage="inference"
    )

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: "relu" in shown(app), "the nodes")
        await key(app, "W", lambda: "save nodes as a case" in shown(app))
        await pilot.press(*["backspace"] * 20, *"cos..relu", "enter")
        await until(app, lambda: app.here.graph == "graphdbg-case-1", "the case", 60)
        await until(app, lambda: "cos" in shown(app) and "mul" not in shown(app), "its nodes")

    play(story, room_of("graph", Here(graph="case")))
