"""How a custom pass is named."""

from __future__ import annotations

import pytest

from graphdbg.dumps import trust
from graphdbg.dumps.torchside import definitions
from graphdbg.toolkit.blame.switching import described


def test_a_pass_from_recorded_source_is_named_by_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "given", lambda: True)
    module = definitions.run("train", "class Mine: ...", "a pass", "it")
    assert described(module.Mine()) == "train.Mine"
