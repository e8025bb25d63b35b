# pyright: basic
"""What a child does for `reading`: runs the graph eagerly and under a rung, reports a row for each node as it goes.

For example: `ask("graphdbg.toolkit.node_values.child:task", {"path": "case", "rung": "eager", ...}, server=server)`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import fx

from ...dumps.errors import GraphdbgError
from ..cutting.eager_values import record_values
from ..isolation.child import mark, report
from ..judging.departures import departures
from ..judging.judge import judge
from ..live.case import Case, Live
from ..live.eager import (
    GraphRunError,
    copy_graph,
    draw_like_kernels,
    draws_from_generator,
    draws_unrepeatably,
    recomputes_random,
)
from ..live.execution import returned
from ..live.rung import Around, Compiled
from ..live.spec import ReplaySpec, in_force, settings
from ..live.values import Values
from ..replaying.own_nan import with_own_nan
from ..rungs import Rung
from ..rungs import rung as rung_named
from .measuring import measure, tappable


class Tapped(Around):
    """A rung that also returns the values of nodes: more outputs are added to the graph before the rung inside compiles
    it.

    What that compiles is another program: a value that is returned is neither fused away nor rewritten. `judge` sees
    the results of the graph alone, so its verdict says whether the failure is still the same one. `got`: the values of
    the last run by node name, copied when the program returned.
    """

    def __init__(self, rung: Rung, names: Sequence[str]) -> None:
        super().__init__(rung)
        self.names = list(names)
        self.got: dict[str, torch.Tensor] = {}

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        _stage("compile")
        places, count = add_outputs(gm, self.names)
        compiled = self.inner.build(gm, fake_inputs, spec)

        def run(inputs: list[Any]) -> list[Any]:
            _stage("run")
            outputs = list(compiled(inputs))
            values = {name: outputs[place] for name, place in places.items()}
            self.got = {
                name: value.detach().clone() for name, value in values.items() if isinstance(value, torch.Tensor)
            }
            return outputs[:count]

        return run


def add_outputs(gm: fx.GraphModule, names: Sequence[str]) -> tuple[dict[str, int], int]:
    """Makes a graph return these nodes, too; changes it. Returns the place of each among the flat outputs, and how many
    outputs there were before. Not for a joint graph that is to be partitioned.
    """
    own = returned(gm)
    nodes = {node.name: node for node in gm.graph.nodes}
    there = {leaf.name for leaf in own if isinstance(leaf, fx.Node)}
    leaves = [*own, *(nodes[name] for name in names if name not in there)]
    gm.graph.output_node().args = (tuple(leaves),)
    gm.recompile()
    where = {leaf.name: place for place, leaf in reversed(list(enumerate(leaves))) if isinstance(leaf, fx.Node)}
    return {name: where[name] for name in names}, len(own)


IN_MEMORY_BYTES = 1 << 30
"""Above this eager's values wait in files."""


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """The body of the query: rows for the nodes `names` (None: all), read under `rung`; `signature`: how the graph
    fails with the extra outputs."""
    mark("load")
    saved = Case.at(payload["path"])
    case = saved.live(seed=payload["seed"], device=payload["device"])
    wanted = None if payload["names"] is None else set(payload["names"])
    seed, rung = payload["seed"], payload["rung"]
    mark("eager")
    _stage("eager")
    spill = Path(payload["work"]) if payload["bytes"] > IN_MEMORY_BYTES else None
    try:
        eager, lost = recorded(case, seed, spill)
    except GraphdbgError as error:
        return {"refused": str(error)}
    except Exception as error:  # noqa: BLE001  whatever eager raises is why there are no values
        return {"refused": f"eager itself fails: {type(error).__name__}: {error}".splitlines()[0]}
    answer: dict[str, Any] = {"notes": [*case.notes, *lost]}
    got: dict[str, torch.Tensor] | None = None
    if rung != "eager":
        names = [name for name in tappable(case.gm, eager) if wanted is None or name in wanted]
        answer |= {"signature": None, "outputs": len(names)}
        tapped = Tapped(rung_named(rung), names)
        if names:
            shared = Path(payload["shared"]) if payload.get("shared") else None
            outcome = judge(case, tapped, seed=seed, shared=shared)
            outcome = with_own_nan(outcome, case, saved.saved, asked=False, seed=seed)
            answer |= {"signature": msgspec.to_builtins(outcome.signature)}
            if not tapped.got:
                return answer
        got = tapped.got
    mark("compare")
    _stage("compare")
    with surroundings(case.spec):
        answer["no_reference"] = measure(case, eager, got, wanted, seed=seed, report=report)
        if got and (wrong := wrong_on_right_inputs(case, rung, got, seed)) is not None:
            answer["wrong"] = wrong
    return answer


def recorded(case: Live, seed: int, spill: Path | None = None) -> tuple[Values, list[str]]:
    """Eager's values of every node, with random numbers drawn as kernels do; and which settings are not in force."""
    with surroundings(case.spec) as lost:
        like_kernels = copy_graph(case.gm)
        draw_like_kernels(like_kernels)
        torch.manual_seed(seed)
        return record_values(like_kernels, case.inputs, spill), list(lost)


def _stage(name: str) -> None:
    """Reports that a step begins."""
    report({"event": "stage", "stage": name})


def wrong_on_right_inputs(
    case: Live, rung: str, got: dict[str, torch.Tensor], seed: int
) -> list[dict[str, Any]] | None:
    """Which values are wrong on the compiled values before them; None where the random numbers of a program are its
    own."""
    gm = case.gm
    own = rung_named(rung).compiles_draws and draws_unrepeatably(gm)
    if own or (draws_from_generator(gm) and recomputes_random(gm)):
        return None
    mark("local test")
    with contextlib.suppress(GraphRunError):
        return [departure._asdict() for departure in departures(copy_graph(gm), case.inputs, got, seed=seed)]
    return None


@contextlib.contextmanager
def surroundings(spec: ReplaySpec):
    """The recorded settings, without gradients: values are looked into, gradients have graphs of their own. Yields what
    `settings` does."""
    with settings(spec.config) as lost, in_force(spec.forward_only), torch.no_grad():
        yield lost
