"""Values under a rung on small graphs: eager beside float64, compiled ones by extra outputs, what is said of the
difference."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.inductor_prims  # registers the operators
from click.testing import CliRunner
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps.errors import UsageError
from graphdbg.dumps.live import encode, save_graph
from graphdbg.dumps.schema import Ambient
from graphdbg.dumps.store import SavedGraph, load_graph
from graphdbg.toolkit.commands import replay as replay_command
from graphdbg.toolkit.commands import triage as triage_command
from graphdbg.toolkit.isolation import ForkServer
from graphdbg.toolkit.live.how import How
from graphdbg.toolkit.node_values import at_node
from graphdbg.toolkit.node_values.seen import ValuesSeen, relation
from graphdbg.toolkit.verdicts.signature import Signature

X, W = torch.linspace(-2, 2, 32).reshape(4, 8), torch.linspace(-1, 1, 64).reshape(8, 8)

RELU_BUG = {"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}


def saved(path: Path, function: Callable[..., Any], *inputs: torch.Tensor, **inductor: Any) -> SavedGraph:
    gm = make_fx(function, tracing_mode="fake")(*inputs)
    like = encode(gm, id="0_0/inference", stage="inference", ambient=Ambient(grad=False), config={"inductor": inductor})
    return load_graph(save_graph(gm, list(inputs), path, like=like))


def net(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    h = (x @ w).relu()
    return [h * 2 + torch.topk(h, 2).values.sum()]


def rows_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == "value"]


def read(
    graph: SavedGraph, rung: str, server: ForkServer, imports: Sequence[str] = (), **more: Any
) -> tuple[list[dict[str, Any]], ValuesSeen]:
    seen = ValuesSeen()
    events = list(at_node.node_values(graph, rung, How(limit_s=120.0, imports=imports), server=server, **more))
    for event in json.loads(json.dumps(events)):
        seen.take(event)
    return events, seen


def test_eagers_values_come_in_graph_order_beside_float64(tmp_path: Path, server: ForkServer) -> None:
    graph = saved(tmp_path / "case", net, X, W)
    events, seen = read(graph, "eager", server)
    assert [event["event"] for event in events if event["event"] != "value"] == ["start", "stage", "stage", "end"]
    names = [node.name for node in graph.record.graph.nodes if node.op != "output"]
    rows = rows_of(events)
    assert [row["name"] for row in rows] == names == [row.name for row in seen.rows]
    assert [row["index"] for row in rows] == list(range(len(names)))
    mm = rows[names.index("mm")]
    assert (mm["min"], mm["max"]) == (pytest.approx((X @ W).min().item()), pytest.approx((X @ W).max().item()))
    assert 0 < mm["error"] == mm["eager_error"] < 1e-6
    topk = rows[names.index("topk")]  # two tensors: one row for both, the worse error
    assert len(topk["shape"]) == 2
    assert "error" not in rows[0]  # an input has none
    assert (seen.end["first_bad"], seen.end["failed"]) == (None, False)
    assert seen.columns()["mm"] == (mm["min"], mm["max"], 0, 0, mm["error"], mm["eager_error"])


def test_an_overflow_of_eagers_own_is_the_first_bad_node(tmp_path: Path, server: ForkServer) -> None:
    graph = saved(tmp_path / "case", lambda x: [(x * 40000) / 40000], X.half())
    _, seen = read(graph, "eager", server)
    assert seen.end["first_bad"]["name"] == "mul"
    assert seen.end["first_bad"]["kind"] == "overflow"
    assert "Inf that float64 does not have (float16)" in seen.sentence()
    assert seen.mark(1) == "FIRST BAD"


def test_random_numbers_are_those_of_the_kernels(tmp_path: Path, server: ForkServer) -> None:
    def drops(x: torch.Tensor) -> list[torch.Tensor]:
        seeds = torch.ops.prims.inductor_seeds(1, torch.device("cpu"))
        drawn = torch.ops.prims.inductor_random([4, 8], torch.ops.prims.inductor_lookup_seed(seeds, 0), "rand")
        return [x * (drawn > 0.5) * 2.5]

    events, _ = read(saved(tmp_path / "case", drops, X), "eager", server)
    errors = {row["name"]: row["error"] for row in rows_of(events) if "error" in row}
    assert max(errors.values()) < 1e-6, errors


@pytest.mark.long
def test_a_wrong_kernel_is_the_first_bad_node_and_the_failure_is_the_same(tmp_path: Path, server: ForkServer) -> None:
    graph = saved(tmp_path / "case", net, X, W, **RELU_BUG)
    events, seen = read(graph, "inductor", server)
    plain = next(event for event in events if event["event"] == "plain")
    assert (plain["ok"], plain["signature"]["kind"]) == (False, "accuracy")
    assert (seen.end["relation"], seen.end["first_bad"]["name"], seen.end["failed"]) == ("same", "relu", True)
    relu = next(row for row in rows_of(events) if row["name"] == "relu")
    assert relu["error"] > 0.1 > 1e-5 > relu["eager_error"]
    assert next(row for row in rows_of(events) if row["name"] == "topk")["reason"] == "its parts are read one by one"
    assert seen.end["largest"]["error"] >= relu["error"]
    assert "extra outputs, which change the compiled program; with them the graph fails the same way" in seen.sentence()
    assert seen.bad[0] == seen.first_bad == [row.name for row in seen.rows].index("relu")


def test_a_failure_that_goes_away_with_the_outputs_marks_no_node(tmp_path: Path, server: ForkServer) -> None:
    def pair(x: torch.Tensor) -> list[torch.Tensor]:
        return [(x * torch.sigmoid(x)).exp()]

    _, seen = read(saved(tmp_path / "case", pair, X), "inductor", server, imports=["planted_pair"])
    assert (seen.end["relation"], seen.end["first_bad"], seen.end["wrong"], seen.bad) == ("gone", None, [], [])
    assert not seen.marked
    assert seen.end["next"][0].startswith("graphdbg bisect ")
    assert seen.end["next"][0].endswith(" --by node --import planted_pair")
    assert "with them the graph does not fail" in seen.sentence()


def test_a_program_that_does_not_compile_has_no_values(tmp_path: Path, server: ForkServer) -> None:
    graph = saved(tmp_path / "case", net, X, W, **{"cpp.inject_relu_bug_TESTING_ONLY": "compile_error"})
    _, seen = read(graph, "inductor", server)
    assert (seen.rows, seen.end["failed"]) == ([], True)
    assert "there is no program whose values could be read" in seen.end["stopped"]


def test_batches_give_the_rows_of_one_program(tmp_path: Path, server: ForkServer) -> None:
    graph = saved(tmp_path / "case", net, X, W)
    whole, _ = read(graph, "nop", server)
    events, parts = read(graph, "nop", server, batch_bytes=300)
    assert sum(event["event"] == "batch" for event in events) > 2
    assert rows_of(events) == rows_of(whole)
    assert (parts.end["relation"], parts.end["failed"]) == ("right", False)


def test_the_rows_before_a_kill_stay(tmp_path: Path, server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_node, "VALUES_TASK", "planted_values_death:task")
    _, seen = read(saved(tmp_path / "case", net, X, W), "eager", server)
    assert [row.name for row in seen.rows] == ["x_1", "w_1"]
    assert "the process that read the values ended: signal: SIGKILL" in seen.end["stopped"]
    assert seen.end["failed"]


def test_how_two_failures_compare() -> None:
    wrong, crash, eager = (
        Signature("accuracy", "compare", size=0.1),
        Signature("crash", "run"),
        Signature("error", "eager"),
    )
    pairs = [(None, None), (None, wrong), (wrong, None), (wrong, wrong), (wrong, crash), (eager, None)]
    assert [relation(*pair) for pair in pairs] == ["right", "new", "gone", "same", "other", "unknown"]


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_commands_print_an_object_a_line(
    tmp_path: Path, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for asking in ("node_values.at_node", "triage.ladder"):
        monkeypatch.setattr(f"graphdbg.toolkit.{asking}.opened", lambda *given: contextlib.nullcontext(server))
    graph = saved(tmp_path / "case", net, X, W)
    path = str(graph.path)
    done = CliRunner().invoke(triage_command.triage, [path, "--json-lines", "--rungs", "nop,torchscript,eager"])
    assert done.exit_code == 0, done.output
    lines = objects(done.stdout)
    assert [line["event"] for line in lines] == ["start", *["running", "rung"] * 3, "end"]
    rungs = [line["rung"] for line in lines if line["event"] == "rung"]
    assert rungs == ["eager", "nop", "torchscript"]  # in the ladder's order
    assert (lines[-2]["verdict"], lines[-2]["reason"], lines[-1]["first_failing"]) == ("ok", "", None)
    wrong = CliRunner().invoke(triage_command.triage, [path, "--rungs", "egaer"])
    assert isinstance(wrong.exception, UsageError)
    assert "did you mean 'eager'?" in str(wrong.exception).lower()

    text = CliRunner().invoke(replay_command.replay, [path, "--values", "--rung", "eager"])
    assert text.exit_code == 0, text.output
    assert text.stdout.splitlines()[0].split() == [
        "node",
        "dtype",
        "min",
        "max",
        "mean",
        "nan",
        "inf",
        "error",
        "eager's",
    ]
    assert "No value is bad by itself. Largest error to float64" in text.stdout
    document = json.loads(
        CliRunner().invoke(replay_command.replay, [path, "--values", "--rung", "eager", "--json"]).stdout
    )
    streamed = objects(
        CliRunner().invoke(replay_command.replay, [path, "--values", "--rung", "eager", "--json-lines"]).stdout
    )
    assert [row["name"] for row in document["rows"]] == [line["name"] for line in streamed if line["event"] == "value"]
