"""Why graphs exist, recorded from one real program: read as a view model, as text and as JSON."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import graphdbg
from graphdbg.cli import run as command
from graphdbg.dumps import why
from graphdbg.toolkit.recorder import why_hooks

pytestmark = pytest.mark.long  # all share one recording

SCRIPT = Path(__file__).parent / "scripts" / "why.py"


@pytest.fixture(scope="module")
def recorded(runner):
    done = runner.dump("why", "--", str(SCRIPT))
    assert done.code == 0, done.stderr
    assert "not recorded" not in done.stderr, done.stderr
    return done


@pytest.fixture(scope="module")
def parent(recorded):
    """What the first process told."""
    processes = why.of_run(graphdbg.open_run(recorded.run)).processes
    return max(processes, key=lambda process: len(process.functions))


def _function(parent, name):
    return next(function for function in parent.functions if function.name.rpartition(".")[2] == name)


def _line(text):
    return next(number for number, line in enumerate(SCRIPT.read_text().splitlines(), 1) if text in line)


def test_output_is_the_programs_own(recorded):
    assert recorded.stdout.split() == [b"spoken"] * 3 + [b"refused", b"looping", b"looping"]


def test_a_graph_break_has_its_reason_its_line_and_the_way_to_it(parent):
    forward = _function(parent, "forward")
    first = forward.compiles[0]
    assert (first.id, first.kind) == ("0_0", "first")
    assert [line.local for line in first.graphs] == ["0_0_a1/dynamo"]
    broken = first.breaks[0]
    assert (broken.title, broken.then) == ("Failed to trace builtin operator", "resumed")
    assert "`print`" in broken.explanation
    assert [(place.line, place.function) for place in broken.stack] == [
        (_line("x = self.speak(x)"), "forward"),
        (_line('print("spoken")'), "speak"),
    ]
    assert broken.stack[-1].code == 'print("spoken")'


def test_what_follows_a_break_belongs_to_its_function(parent):
    forward = _function(parent, "forward")
    resumed = [item for item in forward.compiles if item.kind == "resumed"]
    assert [item.resumed_at for item in resumed] == [_line("x = self.speak(x)"), _line("if x.sum() > 100")]
    assert resumed[0].breaks[0].title == "Data-dependent branching"


def test_a_function_that_broke_its_caller_is_compiled_by_itself(parent):
    speak = _function(parent, "speak")
    assert speak.compiles[0].called_from is not None
    assert speak.compiles[0].called_from.line == _line("x = self.speak(x)")


def test_a_changed_int_and_a_changed_shape_recompile_and_become_dynamic(parent):
    forward = _function(parent, "forward")
    recompiles = [item for item in forward.compiles if item.kind == "recompile"]
    number = next(item for item in recompiles if item.guards[0].text == "n == 1")
    assert number.guards[0].now == {"n": 2}
    assert number.guards[0].place is not None and number.guards[0].place.line == _line("return x * n")
    assert [symbol.source for symbol in number.became_dynamic] == ["n"]
    shape = next(item for item in recompiles if item.id == "0_1")
    assert shape.guards[0].of == "0_0"
    assert "size mismatch at index 0. expected 2, actual 3" in shape.guards[0].text
    assert [(item.source, item.hint) for item in shape.became_dynamic] == [("x.size()[0]", 3)]


def test_the_recompile_limit_is_told_once(parent):
    texts = _function(parent, "texts")
    limited = [item for item in texts.compiles if item.limit]
    assert [(item.kind, item.limit) for item in limited] == [("limit", "recompile_limit = 8")]
    assert sum(item.kind == "recompile" for item in texts.compiles) == 7


def test_what_could_not_be_compiled_says_why(parent):
    assert _function(parent, "whole").compiles[0].error == "Unsupported"
    failure = _function(parent, "whole").compiles[0].failure
    assert failure is not None and failure.stack[-1].line == _line('print("never")')
    assert [broken.then for broken in _function(parent, "looping").compiles[0].breaks] == ["frame skipped"]
    if any("_handle_skip" in text for text in parent.lacking):  # before torch 2.13
        return
    assert _function(parent, "nothing").compiles[0].nothing.startswith("No ops traced")
    if sys.version_info >= (3, 11):  # before, Dynamo is not asked about generators
        assert ("generator", "generator functions cannot be compiled") in [
            (item.name, item.reason) for item in parent.skipped
        ]


def test_threads_nested_compiles_and_resets_are_told_apart(parent):
    worker = _function(parent, "worker")
    assert [(item.kind, item.thread) for item in worker.compiles] == [("first", "worker-a"), ("reset", "")]
    outer = _function(parent, "outer")
    assert [item.kind for item in outer.compiles] == ["first", "resumed"]
    assert not [function for function in parent.functions if function.name == "inner"], (
        "inlined into the outer function"
    )


def test_ranges_and_conditions_of_dynamic_shapes(parent):
    small, large = _function(parent, "open_shape").compiles
    assert [(symbol.source, symbol.hint, symbol.lower, symbol.upper) for symbol in small.symbols] == [
        ("x.size()[0]", 3, 2, 9)
    ]
    assert (large.symbols[0].lower, large.symbols[0].upper) == (10, None)
    assert small.conditions and large.guards[0].now == {"x.size()[0]": 20}


def test_every_graph_has_a_reason(recorded, parent):
    run = graphdbg.open_run(recorded.run)
    messages = [line.id for function in parent.functions for item in function.compiles for line in item.graphs]
    assert sorted(messages) == sorted(row.id for row in run.rows if row.process == parent.name)
    assert parent.others == [] and parent.known


def test_a_child_process_tells_its_own(recorded):
    processes = why.of_run(graphdbg.open_run(recorded.run)).processes
    assert len(processes) == 2
    assert [function.name for function in min(processes, key=lambda process: len(process.functions)).functions] == [
        "worker"
    ]


def test_the_text_fits_80_columns_and_says_the_most_frequent_first(recorded, parent, capsys):
    assert command(["ls", str(recorded.run), "--why"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = [line for line in out.splitlines() if "https://" not in line and "==" not in line]
    assert max(map(len, lines)) <= 80
    assert "7 x  recompile of texts: text == …" in out
    assert "7 recompiles at one guard: guard text == '' failed, text is now 'a'" in out
    assert re.search(r"GIVEN UP at \d+_8: torch._dynamo.config.recompile_limit = 8", out)
    called, broke = _line("x = self.speak(x)"), _line('print("spoken")')
    assert f'line {called}, in speak (line {broke}): print("spoken")' in out
    assert "x.size()[0] was 2, is now 3" in out


def test_plain_ls_points_to_it(recorded, capsys):
    assert command(["ls", str(recorded.run)]) == 0
    out, err = capsys.readouterr()
    rows = [line for line in out.splitlines()[1:] if not line.startswith("  ")]
    assert len(rows) == len({row.id.partition("/")[0] for row in graphdbg.open_run(recorded.run).rows})
    assert re.search(r"^\S*0_0\w* +ran +\S+ +\d+ +\d+\.\d\d  \S+, \S+\.py:\d+$", out, re.M)
    assert max(map(len, out.splitlines())) <= 80
    assert re.search(r"\d+ graph breaks, \d+ recompiles, 1 recompile limit reached: graphdbg ls \S+ --why", err)


def test_json_has_the_fixed_keys_and_why(recorded, parent, capsys):
    assert command(["ls", str(recorded.run), "--why", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"run", "graphs", "why"} <= document.keys()
    assert set(document["graphs"][0]) == {"id", "process", "rank", "stage", "nodes", "status", "error", "seconds"}
    causes = next(item["causes"] for item in document["why"] if item["name"] == parent.name)
    assert causes[0]["count"] == 7 and causes[0]["kind"] == "recompile"


def test_one_graph_tells_its_own_compile(recorded, parent, capsys):
    graph = _function(parent, "forward").compiles[0].graphs[0].id
    assert command(["ls", f"{recorded.run}/{graph}", "--why"]) == 0
    out = capsys.readouterr().out
    assert "Failed to trace builtin operator" in out and "texts" not in out


def test_values_behind_a_guard_are_read_without_running_anything():
    class Trap:
        @property
        def size(self):
            raise AssertionError("a property ran")

    scope = {"n": 4, "xs": [1, 2], "m": SimpleNamespace(step=3, part=Trap()), "c": "text"}
    frame = SimpleNamespace(f_locals=scope, f_globals={"STEP": 7})

    def found(guard):
        return why_hooks.failing_values(frame, [f"0/0: {guard}      # code  # a.py:1 in f"])

    assert found("n == 3") == {"n": 4}
    assert found("len(xs) == 3") == {"len(xs)": 2}
    assert found("m.step == 2 and m.part.size == 1") == {"m.step": 3}
    assert found("G['STEP'] == 6") == {"G['STEP']": 7}
    assert found("c == 'n c'") == {"c": "text"}
    assert found("xs is None") == {"xs": "<list>"}
    assert found("tensor 'n' size mismatch at index 0. expected 2, actual 3") == {}
    assert why_hooks.failing_values(None, ["0/0: n == 3"]) == {}


@pytest.mark.slow
def test_ddp_tells_the_parts_it_cut(runner):
    script = runner.folder / "ddp.py"
    script.write_text(DDP)
    done = runner.dump("ddp", "--", str(script), MASTER_PORT=str(20000 + os.getpid() % 20000))
    assert done.code == 0, done.stderr
    process = why.of_run(graphdbg.open_run(done.run)).processes[0]
    parts = _function(process, "forward").compiles[0].parts
    assert [(part.number, part.of, part.parameters) for part in parts] == [(1, 2, 4), (2, 2, 2)]
    assert [name.partition("/")[2] for name in parts[1].graphs][:2] == ["joint.1", "forward.1"]
    assert "DDP part 2 of 2 (2 parameters" in why.render(why.of_run(graphdbg.open_run(done.run)))


DDP = """
import os, torch, torch.distributed as dist
from torch import nn

os.environ.update(MASTER_ADDR="127.0.0.1", RANK="0", WORLD_SIZE="1")
dist.init_process_group("gloo")
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(600, 600) for _ in range(3))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x
model = torch.compile(nn.parallel.DistributedDataParallel(Net(), bucket_cap_mb=2), backend="aot_eager")
model(torch.randn(2, 600)).sum().backward()
dist.destroy_process_group()
"""


def test_every_plain_guard_that_fails_is_journalled_not_only_the_first() -> None:
    parts = [
        "L['self'].step == 1",
        "L['self'].size == 3",
        "L['keep'] == 1.0",
        "___check_type_id(L['x'], 7)",
        "L['n'] == x",
        "len(L['seen']) == 2",
    ]
    entry = SimpleNamespace(guard_manager=SimpleNamespace(code_parts=parts))
    frame = SimpleNamespace(
        f_locals={"self": SimpleNamespace(step=2, size=3), "keep": 0.5, "n": 4, "x": 1, "seen": [1]}, f_globals={}
    )
    failing = [("self.step == 1", 2), ("keep == 1.0", 0.5), ("len(seen) == 2", 1)]
    assert (
        why_hooks.also_failing(entry, frame, "0/0: tensor 'x' size mismatch at index 0. expected 2, actual 3")
        == failing
    )
    assert why_hooks.also_failing(entry, frame, "0/0: self.step == 1") == failing[1:]
    assert why_hooks.also_failing(None, frame, "0/0: self.step == 1") == []
