"""Torch's CUDA graph trees: recordings that share memory along the paths that calls take. The choice of `triton.cudagraph_trees`.

They warm up at the first call and record at the second, and record again when a static input has moved. All of that is
torch's; here it is called, and told that a backward runs although it is not recorded.

>>> compiled.current_callable = deferred(call, recorder(call, facts, device_index=0, is_backward=False, is_inference=True))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _torch as t
from .partitions import Facts

Call = Callable[[list[Any]], Any]


def recorder(
    call: Call, facts: Facts, *, device_index: int, is_backward: bool, is_inference: bool
) -> Callable[..., Call]:
    """What makes a tree's function of real inputs. The compile that it belongs to is the one that runs now."""
    compile_id = t.CompileContext.current_compile_id()

    def make(inputs: list[Any]) -> Call:
        return t.tree_of_cudagraphs(
            call, inputs, facts.static, device_index=device_index, stack_traces=list(facts.stacks),
            is_backward=is_backward, is_inference=is_inference, constants=tuple((facts.constants or {}).values()),
            placeholders=facts.placeholders, mutated_input_idxs=facts.mutated, compile_id=compile_id,
        )  # fmt: skip

    return make


def telling_backward(call: Call, device_index: int) -> Call:
    """A backward that is not recorded, of a forward that is: the tree must know that the path goes back from here."""
    manager = t.tree_manager(device_index)
    assert manager is not None, "the forward was recorded in a tree, which has a manager"

    def run(inputs: list[Any]) -> Any:
        manager.set_to_running_backward()
        return call(inputs)

    return run
