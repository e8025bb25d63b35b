"""Which fake values a compile is given: the recorded ones where they are true of the inputs, memory that is shared
included."""

from __future__ import annotations

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from graphdbg.toolkit.live.entries import shared_fakes


def views(key: str = "val") -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """Two placeholders whose recorded values are views of one memory, and such inputs."""
    base = torch.arange(6.0)
    inputs = [base, base[2:5]]
    graph, mode = fx.Graph(), FakeTensorMode()
    for name, value in zip("ab", inputs, strict=True):
        graph.placeholder(name).meta[key] = mode.from_tensor(value)
    graph.output(())
    return fx.GraphModule(torch.nn.Module(), graph), inputs


def test_recorded_values_serve_inputs_that_share_memory_as_they_do() -> None:
    gm, inputs = views()
    fakes, mode = shared_fakes(gm, inputs, False)
    assert fakes[0] is next(iter(gm.graph.nodes)).meta["val"]
    assert mode is fakes[0].fake_mode


def test_a_traced_graph_is_given_a_base_and_its_view() -> None:
    gm, inputs = views("example_value")
    base, part = gm.graph.find_nodes(op="placeholder")
    part.meta["example_value"] = part.meta["example_value"].detach()
    base.meta["example_value"] = base.meta["example_value"].detach()
    assert part.meta["example_value"]._base is None
    fakes, _ = shared_fakes(gm, inputs, False)
    assert fakes[0]._base is None
    assert fakes[1]._base is fakes[0]


def test_a_recorded_view_of_another_base_is_not_taken() -> None:
    gm, inputs = views("example_value")
    base, part = gm.graph.find_nodes(op="placeholder")
    base.meta["example_value"] = base.meta["example_value"].detach()
    assert part.meta["example_value"]._base is not None
    fakes, _ = shared_fakes(gm, inputs, False)
    assert fakes[0]._base is None
    assert fakes[1]._base is fakes[0]


def test_they_do_not_where_the_inputs_lie_apart() -> None:
    gm, inputs = views()
    fakes, _ = shared_fakes(gm, [value.clone() for value in inputs], False)
    assert fakes[0] is not next(iter(gm.graph.nodes)).meta["val"]
    assert fakes[0].untyped_storage()._cdata != fakes[1].untyped_storage()._cdata


def test_a_traced_graph_whose_inputs_share_what_was_apart_is_given_their_views() -> None:
    gm, inputs = views()
    base, part = gm.graph.find_nodes(op="placeholder")
    for node in (base, part):
        node.meta["example_value"] = node.meta.pop("val").clone()
    fakes, _ = shared_fakes(gm, inputs, False)
    assert fakes[1]._base is fakes[0]


def test_a_mode_of_fresh_fakes_takes_a_loop_that_counts() -> None:
    gm, inputs = views()
    fakes, mode = shared_fakes(gm, [value.clone() for value in inputs], False)
    with mode:
        at, _ = torch.while_loop(lambda at, x: at < 3, lambda at, x: (at + 1, x.sin()), (0, fakes[0]))
    assert isinstance(at, torch.SymInt)
