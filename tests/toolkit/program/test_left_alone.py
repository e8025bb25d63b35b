"""What a program sees while its calls run beside eager: the same as alone, whatever it does around them."""

from __future__ import annotations

from pathlib import Path

import torch

import graphdbg


def test_hooks_on_leaves_are_called_as_often_as_alone(tmp_path: Path) -> None:
    model, seen = torch.nn.Linear(3, 3), []
    model.weight.register_hook(seen.append)
    with graphdbg.shadow(tmp_path / "found") as found:
        torch.compile(model, backend="aot_eager")(torch.ones(2, 3)).sum().backward()
    assert found.verdict.verdict == "ok" and [row for row in found.calls[0].rows if row.part], found.summary
    assert len(seen) == 1


def test_a_result_that_the_loss_does_not_use(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 3)
    with graphdbg.shadow(tmp_path / "found") as found:
        unused, used = torch.compile(lambda x: (model(x), model(x).sum()), backend="aot_eager")(torch.ones(2, 3))
        used.backward()
    assert unused.requires_grad
    assert found.verdict.verdict == "ok" and [row for row in found.calls[0].rows if row.part], found.summary
