# pyright: basic
"""The child's part of comparing stages: runs both graphs in eager and in float64 on the same inputs, and compares them
as a rung is compared with eager.

A difference counts only if both the float64 runs and eager show it; where the second graph computes in a narrower dtype
than the first, eager alone decides. Both sides use the same random numbers; a pair where that is impossible is skipped,
as is one that cannot be run. Compiles nothing.

For example:

    task({"before": "myrun/0_0/forward", "after": "myrun/0_0/post_grad_forward", "seed": 0, ...})
    # {'kind': 'wrong_numbers', 'reason': 'relative error 0.4 ...', 'node': 'tanh', 'line': 'model.py:3', 'became':
    # '...', ...}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ...dumps.errors import GraphdbgError
from ...dumps.torchside.values import fake_of
from ...dumps.walk import user_frame
from .. import torch_private as t
from ..isolation.child import mark
from ..judging.baseline import WIDE, NoReference, reference
from ..judging.comparing import noise, output_grains, output_lengths
from ..live.case import Case, Live
from ..live.eager import GraphRunError, Hook, clone_inputs, copy_graph, draws_unrepeatably, is_random, nodes_in
from ..live.entries import compiling, joint_passes, mode_of, partition, shared_fakes
from ..live.execution import Attributes, Execution, changed_inputs, execute, result_names, tensors_in
from ..live.spec import FULL_STAGES, in_force, settings
from ..numerics.comparison import Difference, Noise, compare, is_float, testable
from ..rungs.decomposed import RUNG as DECOMPOSED
from ..rungs.inductor import CUSTOM_PASSES
from ..verdicts.verdict import KINDS
from .tracing import CLOSE, Parted, Seen, StageRun, Traced, Unmatched, joined, parting, traced_apart

Places = dict[int, dict[str, tuple[int, str]]]
"""Id of a graph module -> name of a drawing node to be replaced -> its number and kind."""
_DRAWS = {
    "aten.rand.default": "rand",
    "aten.rand_like.default": "rand",
    "aten.randn.default": "randn",
    "aten.randn_like.default": "randn",
}


def alike(before: fx.GraphModule, after: fx.GraphModule) -> Places | None:
    """The draws to replace in both graphs: {} where both draw the same numbers by themselves; None where the draws
    cannot be matched."""
    both = (before, after)
    drawn = [[node for node in nodes_in(gm) if _draws(node)] for gm in both]
    if [str(node.target) for node in drawn[0]] == [str(node.target) for node in drawn[1]]:
        return {}
    makers = [[str(node.target) for node in nodes_in(gm) if is_random(node)] for gm in both]
    if makers[0] == makers[1] and not any(map(draws_unrepeatably, both)):
        return {}  # the same seeds give the same numbers
    kinds = [[_kind(node) for node in nodes] for nodes in drawn]
    inside = any(node.graph not in (before.graph, after.graph) for nodes in drawn for node in nodes)
    if kinds[0] != kinds[1] or "" in kinds[0] or inside:
        return None
    numbers = [{node.name: (place, _kind(node)) for place, node in enumerate(nodes)} for nodes in drawn]
    return {id(before): numbers[0], id(after): numbers[1]}


def drawing(places: dict[str, tuple[int, str]]) -> Hook | None:
    """A hook that replaces each draw by numbers that depend only on its place, so that both graphs draw the same; None
    without draws."""
    if not places:
        return None

    def draw(node: fx.Node, value: Any) -> Any:
        if node.name not in places:
            return value
        place, kind = places[node.name]
        generator = torch.Generator().manual_seed(place)
        make = torch.rand if kind == "rand" else torch.randn
        return make(value.shape, generator=generator, dtype=torch.float32).to(value)

    return draw


def _draws(node: fx.Node) -> bool:
    name = str(node.target)
    return name.startswith("prims.inductor_rand") or (is_random(node) and "_seed" not in name)


def _kind(node: fx.Node) -> str:
    if str(node.target) == "prims.inductor_random.default":
        return str(node.args[2])
    return _DRAWS.get(str(node.target), "")


_CLOSE_IN_EAGER = 1e-2


def task(payload: dict[str, Any]) -> dict[str, Any] | None:
    """The body of the query: how the second of two stages differs from the first; None where it does not, or where they
    cannot be compared."""
    mark("load")
    cases = [Case.at(payload[name]) for name in ("before", "forward", "after") if payload[name]]
    seed, device = payload["seed"], payload["device"]
    try:
        before, *rest = (case.live(seed=seed, device=device) for case in cases)
        if cases[0].saved.inputs_record is None and cases[-1].saved.inputs_record is not None:
            before.inputs = rest[-1].inputs
        with in_force(before.spec), settings(before.spec.config):
            return _Comparison(before, rest, seed).difference(payload["custom"])
    except (GraphdbgError, GraphRunError, NoReference, Unmatched, RuntimeError, TypeError, ValueError):
        return None  # a pair that cannot be run proves nothing


class _Comparison:
    """Compares a graph, on its inputs, with what was made from it: one graph, or a forward and a backward."""

    def __init__(self, live: Live, derived: list[Live], seed: int) -> None:
        self.live, self.seed, self.made = live, seed, derived
        self.before = StageRun(live.gm, live.spec)
        after, spec = derived[-1].gm, derived[-1].spec
        if len(derived) > 1:
            after, spec = joined(live.gm, derived[0].gm, after, live.spec.compile_kwargs["num_fwd_outputs"]), live.spec
        self.traced = live.spec.stage in FULL_STAGES and spec.stage not in FULL_STAGES
        self.after = Traced(after, spec, self.before, live.inputs) if self.traced else StageRun(after, live.spec)
        if not self.traced and _parameters(live.gm).keys() != _parameters(after).keys():
            self.before.backward = self.after.backward = False
        self.changed: list[int] = []
        self.truth: list[Any] = []
        self.hooks: dict[int, dict[str, tuple[int, str]]] = {}

    def difference(self, custom: bool) -> dict[str, Any] | None:
        """The difference as a dictionary, with the node at which the two part; None without one. `custom`: whether a
        pass of the user's ran between them."""
        drawn = alike(self.before.gm, self.after.gm)
        if drawn is None:
            return None
        self.hooks = drawn
        mark("eager")
        first = self._run(self.before)
        self.changed = changed_inputs(self.live.inputs, first.inputs)
        eager = first.results(self.changed)
        seen = self._run(self.after).results(self.changed)
        if self.traced and [type(value) for value in eager] != [type(value) for value in seen]:
            return None  # a zero gradient is None in one of them
        mark("compare")
        if compare([_widened(value) for value in eager], eager, seen) is None:
            return None
        difference = self._difference(self.after, eager, seen)
        # uninitialised memory may make the first graph differ from itself
        if difference is None or compare(None, eager, self._run(self.before, poison=True).results(self.changed)):
            return None
        names = result_names(self.before.gm, self.live.inputs, len(first.gradients), self.changed)
        parted = self._parted()
        node = parted.node if parted else None
        return {
            "kind": KINDS[difference.kind],
            "reason": difference.text,
            "error": difference.size,
            "name": names[difference.output] if 0 <= difference.output < len(names) else "",
            "node": node.name if node else "",
            "became": parted.text if parted else "",
            "op": parted.op if parted else "",
            "line": user_frame(node.meta.get("stack_trace") or "")[0] if node else "",
            "forward": self._in_forward(parted, difference.output),
            "built_in": self._built_in(eager, custom),
        }

    def _in_forward(self, parted: Parted | None, output: int) -> bool:
        """Where a joint graph was cut in two: whether the forward, not the backward, is the wrong half."""
        if len(self.made) < 2:
            return False
        if parted is None:
            return output < self.live.spec.compile_kwargs["num_fwd_outputs"]
        return any(node.name == parted.at for node in self.made[0].gm.graph.nodes)

    def _run(self, side: StageRun, hook: Hook | None = None, poison: bool = False) -> Execution:
        with Attributes(side.gm):
            return side.run(side.gm, clone_inputs(self.live.inputs), self.seed, _both(self._hook(side), hook), poison)

    def _runner(self, side: StageRun, hook: Hook | None = None) -> Callable[..., list[Any]]:
        """A function that runs another form of a graph with the same random draws."""

        def run(wide: fx.GraphModule, inputs: list[Any], inner: Hook | None = None) -> list[Any]:
            ran = side.run(wide, inputs, self.seed, _both(self._hook(side), _both(inner, hook)))
            return ran.results(self.changed)

        return run

    def _wide(self, side: StageRun, hook: Hook | None = None) -> list[Any]:
        """A side's results in float64; raises NoReference."""
        with Attributes(side.gm):
            exact = reference(side.gm, self.live.inputs, self._runner(side, hook))
        if isinstance(exact, NoReference):
            raise exact
        return exact

    def _hook(self, side: StageRun) -> Hook | None:
        return drawing(self.hooks.get(id(side.gm), {}))

    def _difference(self, side: StageRun, eager: list[Any], seen: list[Any]) -> Difference | None:
        """The difference that eager and float64 both show; None where either does not."""
        if [type(value) for value in eager] != [type(value) for value in seen]:
            return compare(None, eager, seen, check=("metadata",))
        if not self.truth:
            mark("reference")
            self.truth = self._wide(self.before)
        mark("compare")
        behind = {"lengths": output_lengths(self.before.gm), "grains": output_grains(self.before.gm)}
        noises: list[Noise] = []

        def by_rounding(output: int) -> Noise:
            if not noises:
                noises.extend(noise(self.before.gm, self.live.inputs, self.truth, self._runner(self.before)))
            return noises[output]

        of_eager = compare(self.truth, eager, seen, check=("metadata", "nan", "accuracy"), noise=by_rounding, **behind)
        if of_eager is None or of_eager.kind == "metadata":
            return of_eager
        if of_eager.kind == "nan" and any(_not_finite(value) for value in self.truth):
            return None
        if not self.traced and _narrowest(side.gm) < _narrowest(self.before.gm):
            return of_eager
        wide = [_like(value, want) for value, want in zip(self._wide(side), eager, strict=True)]
        return compare(self.truth, eager, wide, check=("nan", "accuracy"), noise=by_rounding, **behind)

    def _parted(self) -> Parted | None:
        seen = Seen(gradients=self.traced), Seen()
        for side, values in zip((self.before, self.after), seen, strict=True):
            self._wide(side, values)
        if self.traced:
            return traced_apart(self.before.gm, self.after.gm, seen)
        if (parted := parting(self.before.gm, self.after.gm, seen, CLOSE)) is not None:
            return parted
        seen = Seen(), Seen()
        for side, values in zip((self.before, self.after), seen, strict=True):
            self._run(side, values)
        both = (self.before.gm, self.after.gm, seen)
        return parting(*both, CLOSE, rewritten=True) or parting(*both, _CLOSE_IN_EAGER)

    def _built_in(self, eager: list[Any], custom: bool) -> bool | None:
        """Whether the compiler's own passes go wrong without the user's; None where that is not asked or cannot be
        run."""
        if not custom and not self.traced:
            return None
        mark("passes")
        try:
            with t.inductor_config.patch(dict.fromkeys([*CUSTOM_PASSES, "custom_partitioner_fn"])):
                side = self._redone()
                drawn = None if side is None else alike(self.before.gm, side.gm)
                if side is None or drawn is None:
                    return None
                self.hooks = drawn
                seen = self._run(side).results(self.changed)
                if isinstance(side, _Rebuilt):
                    return compare(self.truth, eager, seen, check=("nan", "accuracy")) is not None
                return self._difference(side, eager, seen) is not None
        except Exception:  # noqa: BLE001  the answer is then unknown
            return None

    def _redone(self) -> StageRun | None:
        """The later graph as torch's own decompositions, passes or partition make it from the earlier one; None where
        they cannot be run alone."""
        spec = self.live.spec
        gm = copy_graph(self.before.gm)
        fakes, mode = shared_fakes(gm, self.live.inputs, spec.dynamic)
        mode = mode or mode_of(gm, fakes)
        if self.traced:
            return _Rebuilt(self.before, DECOMPOSED.build(gm, fakes, spec))
        if len(self.made) > 1:
            halves = partition(gm, fakes, mode, spec.compile_kwargs, passes=False)
            return StageRun(joined(self.before.gm, *halves, spec.compile_kwargs["num_fwd_outputs"]), spec)
        if spec.stage in ("joint", "inference"):
            return StageRun(joint_passes(gm, fakes, mode), spec)
        if spec.stage in FULL_STAGES:
            return None
        with compiling(mode):
            t.recursive_post_grad_passes(gm, spec.stage not in ("forward", "backward"))
        return StageRun(gm, spec)


class _Rebuilt(StageRun):
    """Runs a program compiled with torch's own decompositions only."""

    def __init__(self, program: StageRun, run: Callable[[list[Any]], Any]) -> None:
        super().__init__(program.gm, program.spec)
        self.function = run

    def run(
        self, gm: fx.GraphModule, inputs: list[Any], seed: int, hook: Hook | None = None, poison: bool = False
    ) -> Execution:
        parameters = list(_parameters(self.gm).values()) if self.backward else []
        return execute(self.function, inputs, seed=seed, backward=self.backward, parameters=parameters)


def _parameters(gm: fx.GraphModule) -> dict[str, torch.nn.Parameter]:
    return {name: parameter for name, parameter in gm.named_parameters() if parameter.requires_grad}


def _narrowest(gm: fx.GraphModule) -> int:
    """Bytes of the narrowest float dtype in the graph."""
    given = [arg for node in nodes_in(gm) for arg in (*node.args, *node.kwargs.values())]
    computed = [tensor.dtype for node in nodes_in(gm) for tensor in tensors_in(fake_of(node))]
    dtypes = [*computed, *(arg for arg in given if isinstance(arg, torch.dtype))]
    return min([8, *(dtype.itemsize for dtype in dtypes if dtype.is_floating_point)])


def _like(value: Any, want: Any) -> Any:
    """A float64 result, cast to the dtype of eager's."""
    return value.to(want.dtype) if is_float(value) and isinstance(want, torch.Tensor) else value


def _widened(value: Any) -> Any:
    return value.to(WIDE.get(value.dtype, value.dtype)) if isinstance(value, torch.Tensor) else value


def _not_finite(value: Any) -> bool:
    return is_float(value) and not bool(torch.isfinite(testable(value)).all())


def _both(first: Hook | None, second: Hook | None) -> Hook | None:
    if first is None or second is None:
        return first or second
    return lambda node, value: second(node, first(node, value))
