"""A drop-in for functorch.compile.minifier: same parameters, same result, fewer calls of the predicate.

The predicate is called in this process, one call after the other; True means that the case fails. Nodes, inputs and
outputs are reduced, nothing else: node targets and constants stay as they are. The small case holds no more input bytes
than the original needed for the same nodes (`spared`).

"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ..dumps.errors import UsageError
from ..dumps.output import say
from ..dumps.wording import counted
from ..toolkit.live.case import Live
from ..toolkit.live.values import input_bytes
from .engine import Engine
from .events import Best, Happening
from .inprocess import FxProblem, search
from .passes import inputs as stand_ins

if TYPE_CHECKING:
    from torch import fx


def dump_state(fx_g: fx.GraphModule, inps: Sequence[Any]) -> None:
    """Says on stderr how small the failing case is now."""

    size = f"{counted(len(fx_g.graph.nodes), 'node')}, {counted(len(inps), 'input')}, {input_bytes(inps)} input bytes"
    say(f"still failing: {size}")


def minifier(
    fail_f: fx.GraphModule,
    inps: Sequence[Any],
    module_fails: Callable[[fx.GraphModule, Sequence[Any]], Any],
    dump_state: Callable[[fx.GraphModule, Sequence[Any]], None] = dump_state,
    *,
    save_dir: str | None = None,
    offload_to_disk: bool = False,
    skip_offload: bool = False,
    skip_sanity: bool = False,
    max_granularity: int | None = None,
) -> tuple[fx.GraphModule, list[Any]]:
    """The smallest module and inputs found for which `module_fails(module, inputs)` is still true.

    `fail_f` is a traced graph, `inps` its inputs in order; what comes back is a pair (module, list of inputs).
    `dump_state` is called with the first case and with each smaller one. `offload_to_disk` keeps recorded values in
    files under `save_dir` (`skip_offload`: in memory after all). `skip_sanity` does not check the original.
    `max_granularity`, a power of two, bounds how many nodes one step may drop. Raises UsageError where the original
    does not fail; exceptions of the predicate propagate.

    >>> module, small = minifier(gm, inputs, lambda gm, inputs: "erf" in gm.code)
    >>> [node.name for node in module.graph.nodes if node.op == "call_function"]
    ['erf']
    """
    if max_granularity is not None and (max_granularity < 1 or max_granularity & (max_granularity - 1)):
        raise UsageError(f"max_granularity is {max_granularity}", "it must be a power of two")
    if offload_to_disk and save_dir is None:
        raise UsageError("offload_to_disk needs a save_dir")
    with TemporaryDirectory(prefix="values-", dir=_folder(save_dir) if offload_to_disk else None) as folder:
        spill = Path(folder) if offload_to_disk and not skip_offload else None
        problem = FxProblem.of(fail_f, list(inps), module_fails, spill)
        whole, given = problem.original()
        if not skip_sanity and not module_fails(whole, given):
            raise UsageError(
                "the graph does not fail", "the predicate is false for it", "check the predicate and the inputs"
            )
        say(f"minifying {counted(len(whole.graph.nodes), 'node')} in {counted(problem.size, 'atom')}")
        dump_state(*problem.original())

        def show(event: Happening) -> None:
            if isinstance(event, Best) and engine.best is not None:
                dump_state(*problem.build(engine.best))

        engine = Engine(problem, queries=0 if skip_sanity else 1, tell=show)
        result = search(engine, problem, max_granularity)
        if result.best is None:
            return problem.original()
        module, left = problem.build(result.best)
        smaller, fewer, asked = spared(whole, given, module, left, module_fails)
        if smaller is not module:
            dump_state(smaller, fewer)
    size = f"{counted(len(smaller.graph.nodes), 'node')}, {input_bytes(fewer)} input bytes"
    say(f"{size} left after {counted(engine.queries + asked, 'query')}")
    for note in result.notes:
        say(note)
    return smaller, fewer


def _folder(save_dir: str | None) -> Path:
    folder = Path(save_dir or ".")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


__all__ = ["dump_state", "minifier"]


Fails = Callable[[Any, Sequence[Any]], Any]


def spared(
    whole: fx.GraphModule, given: Sequence[Any], module: fx.GraphModule, left: list[Any], fails: Fails
) -> tuple[fx.GraphModule, list[Any], int]:
    """The failing case with fewer input bytes where that is needed and possible, and how often `fails` was asked.

    Cutting a graph between nodes makes an input of each edge that was cut, and these may be larger than what the
    original computed them from. While they are, one input stands in for others that are alike (`passes/inputs.py`). All
    stand-ins are tried at once, then one by one, the last input first, until the case holds no more than the original
    needed.
    """
    enough = needed_bytes(whole, given, module)
    case, asked = Live(module, left), 0
    if input_bytes(left) <= enough:
        return module, left, asked
    edits = [edit for group in stand_ins.propose(case) for edit in group]
    for some in ([edits] if len(edits) > 1 else []) + [[edit] for edit in reversed(edits)]:
        smaller = case
        for edit in reversed(some):
            smaller = stand_ins.apply(smaller, edit)
        asked += 1
        if fails(smaller.gm, smaller.inputs):
            case = smaller
            if len(some) > 1 or input_bytes(case.inputs) <= enough:
                break
    return case.gm, case.inputs, asked


def needed_bytes(whole: fx.GraphModule, given: Sequence[Any], module: fx.GraphModule) -> int:
    """Bytes of the original's inputs that the nodes left depend on."""
    names = {node.name for node in module.graph.nodes if node.op not in ("placeholder", "output")}
    wanted = {node for node in whole.graph.nodes if node.name in names}
    for node in reversed(whole.graph.nodes):
        if node in wanted:
            wanted.update(node.all_input_nodes)
    places = whole.graph.find_nodes(op="placeholder")
    return input_bytes([value for node, value in zip(places, given, strict=True) if node in wanted])
