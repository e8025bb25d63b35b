# pyright: basic
"""What a rung left beside what eager left: changed inputs, outputs that share an input's memory, metadata, numbers, roundings.

The first that differs is the verdict. Runs the graph again, in float64, only where that decides something. Must not run the rung.

>>> Comparing(gm, inputs, spec, CHECKS["auto"], set(), execute).difference(truth, eager, got, got, changed, random=False)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from . import roundings
from .eager import Hook, run_graph
from .execution import Execution, same_bits
from .float64 import NoReference
from .nested import leaves
from .numerics import Difference, compare, output_grains, output_lengths
from .spec import FULL_STAGES, ReplaySpec
from .stability import ALLOWANCE, flips


@dataclass
class Comparing:
    """One comparison. `left_out`: places of results that say nothing; `execute(run, inputs, graph)`: one execution."""

    gm: fx.GraphModule
    inputs: Sequence[Any]
    spec: ReplaySpec
    compared: tuple[str, ...]
    left_out: set[int]
    execute: Callable[[Any, list[Any], fx.GraphModule], Execution]

    def difference(
        self, truth: Any, eager: Execution, got: Execution, again: Execution, changed: list[int], *, random: bool
    ) -> Difference | None:
        """What differs, or None. `again` is the run whose random numbers are eager's; metadata is looked at in `got`."""
        wanted = eager.results(changed)
        return (
            self._mutation(got, changed)
            or self._numbers(truth, wanted, self._looked_at(got, wanted, changed), self._looked_at(again, wanted, changed),
                             changed, random)
            or self._aliases(eager, got)
        )  # fmt: skip

    def _mutation(self, got: Execution, changed: list[int]) -> Difference | None:
        """An input that only one of the two changed; donated inputs of a backward may be overwritten."""
        if "metadata" not in self.compared or self.spec.compile_kwargs.get("bw_donated_idxs"):
            return None
        for index, (before, after) in enumerate(zip(self.inputs, got.inputs, strict=True)):
            if not isinstance(before, torch.Tensor) or same_bits(before, after) != (index in changed):
                continue
            if index in changed:
                return Difference("metadata", -1, "no mutation", None, f"input {index} is as it was; eager changes it in place")
            text = f"input {index} is changed in place; eager leaves it as it was"
            return Difference("metadata", -1, "mutation", None, text)
        return None

    def _aliases(self, eager: Execution, got: Execution) -> Difference | None:
        """An output that shares an input's memory where eager's does not; for whole programs the reverse, too; the offset."""
        if "metadata" not in self.compared:
            return None
        visible = self._visible()
        both = zip(eager.aliases, got.aliases, strict=False)
        for index, ((want, at), (have, there)) in enumerate(both):
            if index not in visible:
                continue
            if have >= 0 and want < 0:
                text = f"output {index}: it shares the memory of input {have}; eager's is a tensor of its own"
                return Difference("metadata", index, "alias", None, text)
            if have != want and self.spec.stage in FULL_STAGES:
                text = f"output {index}: eager's is a view of input {want}, this one is not"
                return Difference("metadata", index, "no alias", None, text)
            if have == want >= 0 and at != there:
                text = f"output {index}: storage offset is {there}, eager's is {at}"
                return Difference("metadata", index, "offset", None, text)
        return None

    def _numbers(
        self, truth: Any, wanted: list[Any], got: list[Any], again: list[Any], changed: list[int], random: bool
    ) -> Difference | None:
        known = None if isinstance(truth, NoReference) else truth
        strides = self._visible()
        behind = {"lengths": output_lengths(self.gm), "grains": output_grains(self.gm)}
        counts: list[int] = []

        def decided_by_rounding(output: int) -> int:
            if known is None:
                return 0
            if not counts:
                counts.extend(flips(self.gm, self.inputs, known, lambda *one: self._run(changed, *one)))
            return ALLOWANCE * counts[output]

        if not random:
            found = compare(known, wanted, got, strides=strides, check=self.compared, flips=decided_by_rounding, **behind)
            if found or known is None or "accuracy" not in self.compared:
                return found
            return roundings.left_out(self.gm, self.inputs, lambda *one: self._run(changed, *one), known, wanted, got)
        plain = [name for name in self.compared if name == "metadata"]
        first = compare(known, wanted, got, strides=strides, check=plain) if plain else None
        rest = [name for name in self.compared if name != "metadata"]
        return first or compare(known, wanted, again, check=rest, flips=decided_by_rounding, **behind)

    def _looked_at(self, got: Execution, wanted: list[Any], changed: list[int]) -> list[Any]:
        """A rung's results, eager's in the places that are left out."""
        results = got.results(changed)
        if len(results) != len(wanted):
            return results
        return [wanted[index] if index in self.left_out else value for index, value in enumerate(results)]

    def _run(
        self, changed: list[int], wide: fx.GraphModule, inputs: list[Any], hook: Hook | None = None
    ) -> list[Any]:
        return self.execute(lambda given: run_graph(wide, given, hook=hook), inputs, wide).results(changed)

    def _visible(self) -> range | list[int]:
        """The outputs whose strides are promised: those that the user sees."""
        output = next(node for node in reversed(self.gm.graph.nodes) if node.op == "output")
        if self.spec.stage in FULL_STAGES or self.spec.stage == "inference":
            return range(len(leaves(output.args[0])))
        return list(output.meta.get("user_visible_output_idxs", ()))
