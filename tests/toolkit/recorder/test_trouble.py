"""The rules by which a step went wrong, without processes; the NaN test; a held copy against what `observe` says."""

from __future__ import annotations

import pytest
import torch

from graphdbg.dumps import held
from graphdbg.dumps.errors import UnreadableError
from graphdbg.dumps.live import observe
from graphdbg.dumps.schema import FORMAT, GraphBody, GraphRecord, InputsRecord, NodeRecord
from graphdbg.dumps.store import open_run
from graphdbg.dumps.tensors import TensorStore
from graphdbg.toolkit.recorder.held import Copy, CopyBudget, OverLimit
from graphdbg.toolkit.recorder.hold import MOST_FINDINGS, Member, NanTest, Trouble
from graphdbg.toolkit.recorder.options import Options, parts, size_of
from graphdbg.toolkit.recorder.session import Session

from ...dumps.graphs import MemoryTensors

CLEAN: set[int] = set()


class Steps:
    """A training loop of one forward and one backward; each execution is given the places of its NaN."""

    def __init__(self):
        self.trouble, self.forward, self.backward = Trouble(), Member("forward"), Member("backward", backward=True)

    def run(self, member, inputs=CLEAN, outputs=CLEAN):
        return self.trouble.begins(member), self.trouble.judged(member, set(inputs), set(outputs))

    def step(self, count=1):
        for _ in range(count):
            self.run(self.forward)
            self.run(self.backward)


def test_a_backward_takes_its_forward_along_and_nothing_follows_from_it():
    loop = Steps()
    loop.step(36)
    loop.run(loop.forward)
    finding = loop.run(loop.backward, outputs={3})[1]
    assert finding.outputs == [3] and finding.members == [loop.forward, loop.backward]
    assert loop.run(loop.forward, inputs={1}, outputs={0, 1}) == (None, None)  # parameters are NaN now
    assert loop.run(loop.backward, inputs={0}, outputs={0, 1, 2, 3}) == (None, None)


def test_a_forward_waits_for_its_backward():
    loop = Steps()
    loop.step(3)
    finding = loop.run(loop.forward, outputs={0})[1]
    assert finding.members == [loop.forward]
    assert loop.run(loop.backward, inputs={0}, outputs={0})[0] is finding
    assert loop.run(loop.forward)[0] is None


def test_gradient_accumulation_keeps_the_pair_that_went_wrong():
    loop = Steps()
    loop.step(2)  # two pairs, no optimizer step between
    finding = loop.run(loop.forward, outputs={0})[1]
    assert finding.members == [loop.forward]  # not the backward of the pair before


def test_gradients_that_were_nan_explain_parameters_that_are():
    loop = Steps()
    for number in range(4):
        bad = {0} if number == 2 else CLEAN
        for micro in range(2):  # gradients of two pairs are added up; the second pair is fine
            loop.run(loop.forward)
            done = loop.run(loop.backward, outputs=bad if micro == 0 else CLEAN)[1]
            assert (done is not None) == (number == 2 and micro == 0)
        loop.trouble.step_ended()
    assert loop.run(loop.forward, inputs={1}, outputs={0})[1] is not None  # a step later: that is another one's fault
    loop = Steps()
    loop.step(2)
    loop.trouble.step_ended()
    for micro in range(2):
        loop.run(loop.forward)
        loop.run(loop.backward, outputs={0} if micro == 0 else CLEAN)
    loop.trouble.step_ended()
    assert loop.run(loop.forward, inputs={1}, outputs={0})[1] is None


def test_usual_nan_does_not_hide_new_nan_and_is_told_once():
    loop = Steps()
    assert loop.run(loop.forward, outputs={2})[1] is not None
    loop.run(loop.backward, inputs={5})
    for _ in range(30):
        assert loop.run(loop.forward, outputs={2})[1] is None
        assert loop.run(loop.backward, inputs={5})[1] is None
    assert loop.run(loop.forward, outputs={2})[1] is None
    assert loop.run(loop.backward, inputs={5}, outputs={1})[1].outputs == [1]


def test_nan_from_the_optimizer_is_a_finding_even_after_usual_nan():
    loop = Steps()
    loop.run(loop.forward, outputs={2})
    loop.step()
    for _ in range(5):
        loop.run(loop.forward, outputs={2})
        loop.run(loop.backward)
    assert loop.run(loop.forward, inputs={1}, outputs={0, 2})[1].inputs == [1]


def test_nan_that_comes_and_goes_is_bounded():
    loop = Steps()
    value = 0
    for _ in range(20):
        value += loop.run(loop.forward, outputs={0})[1] is not None
        loop.run(loop.backward)
        loop.step()
    assert 1 < value <= MOST_FINDINGS


def test_one_exception_is_told_once_however_many_graphs_it_passes():
    loop = Steps()
    outer, error = Member("dynamo"), ValueError()
    loop.trouble.begins(outer)
    loop.trouble.begins(loop.forward)
    assert loop.trouble.raised(loop.forward, error).members == [outer, loop.forward]
    assert loop.trouble.raised(outer, error) is None
    assert loop.trouble.raised(None, error) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64])
def test_nan_is_found_and_infinities_are_not_nan(dtype):
    inf, nan = torch.tensor([float("-inf"), 1.0]).to(dtype), torch.tensor([1.0, float("nan")]).to(dtype)
    both = torch.tensor([float("inf"), float("-inf")]).to(dtype)
    test = NanTest()
    test.add([inf, 3, None, both, nan, torch.tensor([1]), torch.empty(0, dtype=dtype), nan[:1]])
    test.add([nan.expand(3, 2)], first=10)
    assert test.places() == {4, 10}


def test_a_held_copy_says_what_observe_says(tmp_path):
    base = torch.arange(20.0)
    inputs = [
        base[2:8],
        base.view(4, 5).t(),
        3,
        torch.nn.Parameter(torch.randn(2)),
        torch.empty(0, 3),
        float("nan"),
        torch.randn(3, dtype=torch.complex64).conj(),
    ]
    names = [f"a{index}" for index in range(len(inputs))]
    nodes = [NodeRecord(name=name, op="placeholder", target=name) for name in names]
    graph, sink = GraphRecord(format=FORMAT, id="0_0/forward", stage="forward", graph=GraphBody(nodes)), MemoryTensors()
    wanted = observe(graph, inputs, "last", sink)
    for path in (None, tmp_path / "held" / "0_0" / "forward"):
        copy = Copy(CopyBudget(1 << 20), names, [], [path] if path else [])
        for execution in (1, 2):
            copy.take(inputs, execution)
        base += 0  # what comes later must not matter
        got = copy.inputs(sink.put)
        for item, other in zip(wanted.inputs, got.inputs, strict=True):
            item.statistics = None
            assert item == other
        assert (got.execution, got.policy) == (2, "last") and "cpu:" in got.ambient.rng_state
        if path is not None:
            file = held.settled(held.read(path), sink.put)
            assert file == got
            store = TensorStore(tmp_path / "tensors")
            lent, damage = held.of_graph(path, tmp_path, "alive", store)
            assert (
                (lent, damage) == (got, "") and store.get(lent.inputs[0].stored.storage) and not store.folder.exists()
            )
    copy.drop()
    assert not path.exists()


def test_a_torn_copy_is_refused_with_a_sentence(tmp_path):
    path = tmp_path / "held" / "0_0" / "forward"
    file = held.HeldFile([path, path.with_name("inference")])
    file.tear(7)
    with pytest.raises(UnreadableError, match="incomplete: the process died while it copied the inputs of execution 7"):
        held.read(path)
    file.finish(7, held.DATA_AT, 10)
    with pytest.raises(UnreadableError):
        held.read(path)
    path.write_bytes(b"")
    with pytest.raises(UnreadableError):
        held.read(path)


def test_the_budget_is_kept():
    budget = CopyBudget(10_000)
    copy = Copy(budget, ["x"], [])
    with pytest.raises(OverLimit):
        copy.take([torch.ones(10_000)], 1)
    copy.drop()
    assert (budget.used, copy.whole) == (0, False)


def test_graphs_that_rest_make_room_for_others(tmp_path):
    """Recompiles: each graph runs a while and never again."""
    session = Session(Options(run=str(tmp_path / "run"), inputs="last", held_limit=60_000), join=True)
    names = [f"{number}_0/forward" for number in range(8)]
    for name in names:
        output = NodeRecord(name="output", op="output", target="output", args=[[{"node": "x"}]])
        nodes = [NodeRecord(name="x", op="placeholder", target="x"), output]
        record = GraphRecord(format=FORMAT, id=name, stage="forward", graph=GraphBody(nodes))
        session.writer().save_graph(record)
        hold = session.hold([(name, "forward")], record)
        assert hold is not None
        for number in range(1, 300):
            hold.before(number, [torch.ones(1000) * number])
    holder = session.holder
    assert holder is not None and holder.refused == 0 and holder.budget.used <= 60_000
    session.close(programs=True)
    run = open_run(tmp_path / "run")
    assert [float(run.graph(name).inputs()[0][0]) for name in names] == [299.0] * 8


def test_words_of_the_options():
    assert parts("nan, error,") == ["nan", "error"]
    assert [size_of(text) for text in ("12", "4K", "1.5GiB", "2tb")] == [12, 4096, 3 << 29, 2 << 40]
    assert InputsRecord(format=FORMAT, inputs=[]).execution == 0
