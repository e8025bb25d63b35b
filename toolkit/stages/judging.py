# pyright: basic
"""What a child does with a pair of stages: both in eager and in float64 on the same inputs, compared as a rung is with eager.

Two witnesses have to agree before anything is said: the float64 runs, and eager; only where the second graph computes in a
narrower dtype than the first does eager alone count. Random numbers are the same ones on both sides, or the pair is left out,
as is one that cannot be run. Must not compile.

>>> task({"before": "myrun/0_0/forward", "after": "myrun/0_0/post_grad_forward", "seed": 0, "custom": True})
{'kind': 'wrong_numbers', 'reason': 'relative error 0.4 ...', 'node': 'tanh', 'line': 'model.py:3', 'became': '...', ...}
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import fx

from ...dumps.errors import GraphdbgError
from ...dumps.walk import user_frame
from .. import torch_private as t
from ..baseline import NoReference, reference
from ..case import Case, Live
from ..comparing import ALLOWANCE, flips
from ..eager import GraphRunError, Hook, clone_inputs, copy_graph, is_random, nodes_in, run_graph
from ..execution import Attributes, changed_inputs, execute, result_names
from ..isolation.child import mark
from ..numerics import Difference, compare, output_grains, output_lengths
from ..numerics.measures import is_float
from ..numerics.statistics import tensors_in
from ..rungs.entries import compiling, joint_passes, mode_of, shared_fakes
from ..spec import FULL_STAGES, in_force, settings
from ..verdict import KINDS
from .parting import CLOSE, Parted, Seen, parting

_CLOSE_IN_EAGER = 1e-2
_DRAWS = {
    "aten.rand.default": "rand", "aten.rand_like.default": "rand",
    "aten.randn.default": "randn", "aten.randn_like.default": "randn",
}  # fmt: skip


def task(payload: dict[str, Any]) -> dict[str, Any] | None:
    """What the second of two stages does wrong; None where it is right, or the two cannot be compared."""
    mark("load")
    one, other = Case.at(payload["before"]), Case.at(payload["after"])
    seed, device = payload["seed"], payload["device"]
    try:
        before, after = (case.live(seed=seed, device=device) for case in (one, other))
        if one.saved.inputs_record is None and other.saved.inputs_record is not None:
            before.inputs = after.inputs
        with in_force(before.spec):
            return _Comparison(before, after.gm, seed).found(payload["custom"])
    except (GraphdbgError, GraphRunError, NoReference, RuntimeError, TypeError, ValueError, NotImplementedError):
        return None  # a pair that cannot be run says nothing of what ran between


class _Comparison:
    """A graph with its inputs, and the one that was made of it."""

    def __init__(self, live: Live, after: fx.GraphModule, seed: int) -> None:
        self.live, self.before, self.after, self.seed = live, live.gm, after, seed
        self.changed: list[int] = []
        self.truth: list[Any] = []
        self.hooks: dict[int, dict[str, tuple[int, str]]] = {}
        spec = live.spec
        with_gradients = spec.stage in FULL_STAGES and spec.ambient.grad and not spec.ambient.inference_mode
        self.backward = with_gradients and _parameters(live.gm).keys() == _parameters(after).keys()

    def found(self, custom: bool) -> dict[str, Any] | None:
        """What differs, with the node where the two part; `custom`: whether a pass of the user's ran between them."""
        drawn = _draws_alike(self.before, self.after)
        if drawn is None:
            return None
        self.hooks = drawn
        mark("eager")
        first = self._run(self.before)
        self.changed = changed_inputs(self.live.inputs, first.inputs)
        eager = first.results(self.changed)
        mark("reference")
        self.truth = self._wide(self.before)
        mark("compare")
        difference = self._difference(self.after, eager)
        if difference is None or self._unsteady(eager):
            return None
        names = result_names(self.before, self.live.inputs, len(first.gradients), self.changed)
        parted = self._parted()
        node = parted.node if parted else None
        return {
            "kind": KINDS[difference.kind], "reason": difference.text, "error": difference.size,
            "name": names[difference.output] if 0 <= difference.output < len(names) else "",
            "node": node.name if node else "", "became": parted.text if parted else "",
            "line": user_frame(node.meta.get("stack_trace") or "")[0] if node else "",
            "built_in": custom and self._built_in(eager),
        }  # fmt: skip

    def _run(self, gm: fx.GraphModule, hook: Hook | None = None, poison: bool = False) -> Any:
        parameters = list(_parameters(gm).values()) if self.backward else []
        attributes = Attributes(gm)
        try:
            run = partial(run_graph, gm, poison=poison, hook=hook or self._hook(gm))
            return execute(run, clone_inputs(self.live.inputs), seed=self.seed, backward=self.backward, parameters=parameters)
        finally:
            attributes.restore()

    def _runner(self, gm: fx.GraphModule, hook: Hook | None = None) -> Callable[..., list[Any]]:
        """Runs another form of a graph, with the same draws."""

        def run(wide: fx.GraphModule, inputs: list[Any], inner: Hook | None = None) -> list[Any]:
            parameters = list(_parameters(wide).values()) if self.backward else []
            running = partial(run_graph, wide, hook=_both(self._hook(gm), _both(inner, hook)))
            ran = execute(running, inputs, seed=self.seed, backward=self.backward, parameters=parameters)
            return ran.results(self.changed)

        return run

    def _wide(self, gm: fx.GraphModule, hook: Hook | None = None) -> list[Any]:
        """The results in float64; raises NoReference."""
        attributes = Attributes(gm)
        try:
            made = reference(gm, self.live.inputs, self._runner(gm, hook))
        finally:
            attributes.restore()
        if isinstance(made, NoReference):
            raise made
        return made

    def _hook(self, gm: fx.GraphModule) -> Hook | None:
        return _drawing(self.hooks.get(id(gm), {}))

    def _difference(self, gm: fx.GraphModule, eager: list[Any]) -> Difference | None:
        """What both witnesses see."""
        seen = self._run(gm).results(self.changed)
        if [type(one) for one in eager] != [type(one) for one in seen]:
            return compare(None, eager, seen, check=("metadata",))
        behind = {"lengths": output_lengths(self.before), "grains": output_grains(self.before)}
        counts: list[int] = []

        def by_rounding(output: int) -> int:
            if not counts:
                counts.extend(flips(self.before, self.live.inputs, self.truth, self._runner(self.before)))
            return ALLOWANCE * counts[output]

        of_eager = compare(self.truth, eager, seen, check=("metadata", "nan", "accuracy"), flips=by_rounding, **behind)
        if of_eager is None or of_eager.kind == "metadata":
            return of_eager
        if of_eager.kind == "nan" and any(_not_finite(one) for one in self.truth):
            return None
        if _narrowest(gm) < _narrowest(self.before):
            return of_eager
        wide = [_like(one, want) for one, want in zip(self._wide(gm), eager, strict=True)]
        return compare(self.truth, eager, wide, check=("nan", "accuracy"), flips=by_rounding, **behind)

    def _unsteady(self, eager: list[Any]) -> bool:
        """Whether the first graph differs from itself where memory is left uninitialised."""
        again = self._run(self.before, poison=True).results(self.changed)
        return compare(None, eager, again) is not None

    def _parted(self) -> Parted | None:
        seen = Seen(), Seen()
        for gm, one in zip((self.before, self.after), seen, strict=True):
            self._wide(gm, one)
        if (found := parting(self.before, self.after, seen, CLOSE)) is not None:
            return found
        seen = Seen(), Seen()
        for gm, one in zip((self.before, self.after), seen, strict=True):
            self._run(gm, _both(self._hook(gm), one))
        return parting(self.before, self.after, seen, _CLOSE_IN_EAGER)

    def _built_in(self, eager: list[Any]) -> bool:
        """Whether the compiler's own passes, without the user's, go wrong by themselves. False where they cannot be run."""
        spec = self.live.spec
        gm = copy_graph(self.before)
        mark("passes")
        try:
            with settings(spec.config), t.inductor_config.patch(dict.fromkeys(CUSTOM)):
                fakes, mode = shared_fakes(gm, self.live.inputs, spec.dynamic)
                mode = mode or mode_of(gm, fakes)
                if spec.stage in ("joint", "inference"):
                    gm = joint_passes(gm, fakes, mode)
                elif spec.stage in FULL_STAGES:
                    return False
                else:
                    with compiling(mode):
                        t.recursive_post_grad_passes(gm, spec.stage not in ("forward", "backward"))
            drawn = _draws_alike(self.before, gm)
            if drawn is None:
                return False
            self.hooks = drawn
            return self._difference(gm, eager) is not None
        except Exception:  # noqa: BLE001  then nothing speaks against the user's
            return False


CUSTOM = (
    "pre_grad_custom_pass", "joint_custom_pre_pass", "joint_custom_post_pass", "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass",
)  # fmt: skip


def _parameters(gm: fx.GraphModule) -> dict[str, torch.nn.Parameter]:
    return {name: one for name, one in gm.named_parameters() if one.requires_grad}


def _narrowest(gm: fx.GraphModule) -> int:
    """Bytes of the narrowest float that the graph makes."""
    values = [node.meta.get("val", node.meta.get("example_value")) for node in nodes_in(gm)]
    sizes = [one.dtype.itemsize for value in values for one in tensors_in(value) if one.dtype.is_floating_point]
    return min([8, *sizes, *(arg.itemsize for arg in _dtypes(gm) if arg.is_floating_point)])


def _dtypes(gm: fx.GraphModule) -> list[torch.dtype]:
    given = [arg for node in nodes_in(gm) for arg in (*node.args, *node.kwargs.values())]
    return [arg for arg in given if isinstance(arg, torch.dtype)]


def _like(value: Any, want: Any) -> Any:
    """A float64 result as what eager's is."""
    return value.to(want.dtype) if is_float(value) and isinstance(want, torch.Tensor) else value


def _not_finite(value: Any) -> bool:
    return is_float(value) and not bool(torch.isfinite(value).all())


def _draws_alike(before: fx.GraphModule, after: fx.GraphModule) -> dict[int, dict[str, tuple[int, str]]] | None:
    """For each graph (by `id`) the number and kind of its draws that are to be replaced: none where both draw the same by
    themselves; None where what they draw cannot be matched."""
    drawn = [[node for node in nodes_in(gm) if _draws(node)] for gm in (before, after)]
    if [str(node.target) for node in drawn[0]] == [str(node.target) for node in drawn[1]]:
        return {}
    kinds = [[_kind(node) for node in nodes] for nodes in drawn]
    inside = any(node.graph not in (before.graph, after.graph) for nodes in drawn for node in nodes)
    if kinds[0] != kinds[1] or "" in kinds[0] or inside:
        return None
    numbers = [{node.name: (place, _kind(node)) for place, node in enumerate(nodes)} for nodes in drawn]
    return {id(before): numbers[0], id(after): numbers[1]}


def _draws(node: fx.Node) -> bool:
    name = str(node.target)
    return name.startswith("prims.inductor_rand") or (is_random(node) and "_seed" not in name)


def _kind(node: fx.Node) -> str:
    if str(node.target) == "prims.inductor_random.default":
        return str(node.args[2])
    return _DRAWS.get(str(node.target), "")


def _drawing(places: dict[str, tuple[int, str]]) -> Hook | None:
    """A hook that puts the same random numbers in the places of both graphs' draws."""
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


def _both(one: Hook | None, other: Hook | None) -> Hook | None:
    if one is None or other is None:
        return one or other
    return lambda node, value: other(node, one(node, value))
