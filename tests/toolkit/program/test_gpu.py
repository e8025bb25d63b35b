"""On a CUDA GPU: what a program computes while its calls run beside eager."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import graphdbg
from graphdbg.toolkit.program.reach import CudnnDropout

pytestmark = pytest.mark.gpu


def results(folder: Path | None) -> list[float]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = torch.nn.LSTM(4, 8, 2, dropout=0.5).cuda()

    def train() -> list[float]:
        step, result = torch.compile(lambda x: model(x)[0] + model(x)[0], backend="aot_eager"), []
        for _ in range(4):
            loss = step(torch.ones(3, 2, 4, device="cuda")).square().sum()
            loss.backward()
            result += [
                loss.item(),
                *(parameter.grad.sum().item() for parameter in model.parameters() if parameter.grad is not None),
            ]
        return result

    if folder is None:
        return train()
    with graphdbg.shadow(folder) as result:
        values = train()
    assert result.verdict.verdict == "ok" and len(result.calls) == 3, result.summary
    return values


def test_dropout_between_recurrent_layers_goes_on_as_alone(tmp_path: Path) -> None:
    alone = results(None)
    assert len(set(alone[::9])) == 4  # each call draws
    assert alone == results(None) == results(tmp_path / "found")


def test_a_state_that_the_next_use_makes_anew_is_not_made_by_reading_it() -> None:
    dropout, model = CudnnDropout(torch.device("cuda", 0)), torch.nn.LSTM(4, 8, 2, dropout=0.5).cuda()
    x, result = torch.ones(3, 2, 4, device="cuda"), []
    for reads in (0, 2):
        torch.manual_seed(1)
        states = [dropout.getstate().numel() for _ in range(reads)]
        result.append((model(x)[0], torch.rand(2, device="cuda")))
        assert states == [0] * reads and dropout.getstate().numel() > 0
    assert all(map(torch.equal, *result))
    state, generator = dropout.getstate(), torch.cuda.get_rng_state()
    item = model(x)[0], torch.rand(2, device="cuda")
    torch.cuda.set_rng_state(generator)
    dropout.setstate(state)
    assert all(map(torch.equal, item, (model(x)[0], torch.rand(2, device="cuda"))))


def trained(folder: Path | None) -> list[float]:
    """The losses of a training under CUDA graphs, whose gradients are gone with the next call."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)

    def train() -> list[float]:
        step, losses = torch.compile(model, mode="reduce-overhead"), []
        for _ in range(5):
            loss = step(torch.randn(16, 8, device="cuda")).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    if folder is None:
        return train()
    with graphdbg.shadow(folder) as shadowed:
        losses = train()
    assert shadowed.verdict.verdict in ("ok", "rounding") and not shadowed.notes, (shadowed.summary, shadowed.notes)
    assert [{row.part for row in call.rows} for call in shadowed.calls] == [{"", "backward"}] * 3
    return losses


def test_a_training_under_cuda_graphs_goes_on_as_alone_and_each_backward_is_judged(tmp_path: Path) -> None:
    assert trained(None) == trained(tmp_path / "found")


def test_the_first_step_of_a_compiled_optimizer_counts_where_dynamo_lets_it(tmp_path: Path) -> None:
    torch._dynamo.reset()
    weight = torch.nn.Parameter(torch.ones(4, 4, device="cuda"))
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.NAdam([weight], 1e-3)
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(lambda: optimizer.step())()
    assert shadowed.verdict.verdict in ("ok", "rounding"), shadowed.summary


def test_a_step_counter_that_dynamo_moves_to_the_gpu_departs_from_nothing(tmp_path: Path) -> None:
    torch._dynamo.reset()
    weight = torch.nn.Parameter(torch.ones(4, 4, device="cuda"))
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.Adagrad([weight], 1e-2)
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        step = torch.compile(lambda: optimizer.step())
        for _ in range(2):
            step()
    assert shadowed.verdict.verdict in ("ok", "rounding"), shadowed.summary
    assert optimizer.state[weight]["step"].item() == 2


def test_a_replica_of_which_dynamo_makes_no_graph_is_so_told(tmp_path: Path) -> None:
    torch._dynamo.reset()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).cuda()  # torch does not compile its own
        replica = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
        with graphdbg.shadow(tmp_path / "found") as shadowed:
            torch.compile(replica, backend="aot_eager")(torch.ones(2, 4, device="cuda")).sum().backward()
    finally:
        torch.distributed.destroy_process_group()
    assert [note for note in shadowed.calls[0].notes if note.startswith("Dynamo makes no graph")], shadowed.calls[
        0
    ].notes


def test_a_call_that_the_program_captures_runs_alone(tmp_path: Path) -> None:
    torch._dynamo.reset()
    model, x, graph = torch.nn.Linear(8, 8).cuda(), torch.ones(4, 8, device="cuda"), torch.cuda.CUDAGraph()
    with torch.no_grad(), graphdbg.shadow(tmp_path / "found") as shadowed:
        step = torch.compile(model)
        step(x)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            y = step(x)
        x.fill_(2)
        graph.replay()
    assert torch.allclose(y, model(x)) and shadowed.verdict.verdict == "ok", shadowed.summary
    assert len(shadowed.calls) == 1 and [note for note in shadowed.notes if "captures a CUDA graph" in note]
