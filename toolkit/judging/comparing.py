# pyright: basic
"""Compares a rung's results with eager's: changed inputs, outputs that share an input's memory, metadata, numbers,
roundings.

The first difference is the verdict. Runs the graph again, in float64, only where that decides something; never runs the
rung.

For example:

    comparing = Comparing(gm, returned(gm), inputs, spec, CHECKS["auto"], set(), [], run)
    comparing.difference(truth, eager, got, wanted, seen, None)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ...dumps.allowlist import words
from ...dumps.names import of_module
from ...dumps.torchside.values import fake_of
from ..debug_nop.plan import is_view
from ..live.eager import GraphRunError, clone_inputs, is_random, run_graph
from ..live.execution import PACKED, Attributes, Execution, held, leaves, same_bits, tensors_in
from ..live.spec import FULL_STAGES, ReplaySpec
from ..numerics.comparison import (
    PACKED_EPS,
    QUIET,
    ROUNDING,
    STRIDE,
    Difference,
    Noise,
    classes,
    compare,
    is_float,
    rms,
    significant_strides,
    wide,
)
from ..numerics.tolerance import LAMBDA
from ..verdicts.verdict_words import AS_TRACED
from .baseline import NoReference, Run, left_out, reference


@dataclass
class Comparing:
    """One comparison. `nodes`: the results as nodes, numbers and None; `left_out`: places of results that cannot be
    compared; `before`: the inputs and the graph's tensors before a run; `changed`: places in it that eager writes to;
    `run`: runs another form of the graph in eager and returns its results; `lowered`: place -> output as AOTAutograd
    traced it."""

    gm: fx.GraphModule
    nodes: Sequence[Any]
    inputs: Sequence[Any]
    spec: ReplaySpec
    compared: tuple[str, ...]
    left_out: set[int]
    changed: list[int]
    run: Run
    before: Sequence[Any]
    lowered: Callable[[], Mapping[int, Any]] = dict

    def difference(
        self, truth: Any, eager: Execution, got: Execution, wanted: list[Any], seen: list[Any], drawn: list[Any] | None
    ) -> Difference | None:
        """Returns the first difference, or None. `wanted`: eager's results; `seen`: the rung's; `drawn`: for a graph
        with random ops, the rung's with eager's random numbers: of `seen` only the metadata is compared then."""
        return self._mutation(got) or self._numbers(truth, wanted, seen, drawn) or self._aliases(eager, got)

    def _mutation(self, got: Execution) -> Difference | None:
        """The first input or tensor of the graph that only one of the two runs changed; a backward's donated inputs may
        be overwritten."""
        if "metadata" not in self.compared or self.spec.compile_kwargs.get("bw_donated_idxs"):
            return None
        inputs = [*of_module(self.gm).inputs.values(), *(name for name, _ in held(self.gm))]
        for index, (before, after) in enumerate(zip(self.before, got.inputs, strict=True)):
            if not isinstance(before, torch.Tensor) or same_bits(before, after) != (index in self.changed):
                continue
            kind, text = "mutation", "is changed in place; eager leaves it as it was"
            if index in self.changed:
                kind, text = "no mutation", "is as it was; eager changes it in place"
            return Difference("metadata", -1, kind, None, f"{inputs[index]} {text}")
        return None

    def _aliases(self, eager: Execution, got: Execution) -> Difference | None:
        """The first visible output that shares an input's memory where eager's does not (donated inputs aside), or
        shares it at another offset; for whole programs also one that does not share where eager's does."""
        if "metadata" not in self.compared:
            return None
        visible, donated = self._visible(), self.spec.compile_kwargs.get("bw_donated_idxs") or ()
        inputs = list(of_module(self.gm).inputs.values())
        both = zip(eager.aliases, got.aliases, strict=False)
        for index, ((want, at), (have, there)) in enumerate(both):
            if index not in visible:
                continue
            if have >= 0 and want < 0 and have not in donated and not self._writes_back(index, have):
                kind, text = "alias", f"it shares the memory of {inputs[have]}; eager's is a tensor of its own"
            elif have != want and self.spec.stage in FULL_STAGES:
                kind, text = "no alias", f"eager's is a view of {inputs[want]}, this one is not"
            elif have == want >= 0 and at != there:
                kind, text = "offset", f"storage offset is {there}, eager's is {at}"
            else:
                continue
            return Difference("metadata", index, kind, None, text)
        return None

    def _writes_back(self, output: int, place: int) -> bool:
        """Whether a functionalised graph writes into that input what the output is, or is a view of: to the program it
        is a view of the input."""
        node, given = self.nodes[output], list(self.gm.graph.find_nodes(op="placeholder"))[place]
        while isinstance(node, fx.Node) and is_view(node):
            node = node.args[0]
        copies = self.gm.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
        return any(copy.args[:2] == (given, node) for copy in copies)

    def _numbers(self, truth: Any, wanted: list[Any], seen: list[Any], drawn: list[Any] | None) -> Difference | None:
        got = self._looked_at(seen, wanted)
        known = None if isinstance(truth, NoReference) else truth
        strides = self._promised(seen)
        behind = {
            "lengths": output_lengths(self.gm),
            "grains": output_grains(self.gm),
            "signed": self._signed(),
            "rounding": self._judged(wanted),
        }
        noises: list[Noise] = []

        def by_rounding(output: int) -> Noise:
            if known is None:
                return QUIET
            if not noises:
                noises.extend(noise(self.gm, self.inputs, known, self.run))
            return noises[output]

        if drawn is None:
            alone = self.compared == ("metadata",)
            difference = compare(
                known, wanted, got, strides=strides, check=self.compared, noise=by_rounding, every_size=alone, **behind
            )
            if (difference and difference.detail != ROUNDING) or known is None or "accuracy" not in self.compared:
                return difference
            return left_out(self.gm, self.inputs, self.run, known, wanted, got) or difference
        plain = [name for name in self.compared if name == "metadata"]
        first = compare(known, wanted, got, strides=strides, check=plain) if plain else None
        rest = [name for name in self.compared if name != "metadata"]
        again = self._looked_at(drawn, wanted)
        if first is not None and first.detail != STRIDE:
            return first
        of_values = compare(known, wanted, again, check=rest, noise=by_rounding, **behind)
        return first if first is not None and (of_values is None or of_values.detail == ROUNDING) else of_values

    def _looked_at(self, results: list[Any], wanted: list[Any]) -> list[Any]:
        """The rung's results, with eager's in the places in `left_out`."""
        if len(results) != len(wanted):
            return results
        return [wanted[index] if index in self.left_out else value for index, value in enumerate(results)]

    def _promised(self, seen: list[Any]) -> set[int]:
        """Places of the outputs whose strides must equal eager's. An output with the strides of the traced metadata (of
        this graph, or of AOTAutograd's graph of it) is exempt, since a compiler promises only these; where metadata
        alone is compared, none is."""
        if self.compared == ("metadata",):
            return set(self._visible())
        traced = [_traced(node) for node in self.nodes]
        others = {at for at in self._visible() if at >= len(seen) or not _as_traced(traced[at], seen[at])}
        lowered = self.lowered() if others else {}
        return {at for at in others if at not in lowered or not _as_traced(lowered[at], seen[at])}

    def restrided(self, wanted: list[Any], seen: list[Any], names: Sequence[str]) -> list[str]:
        """Notes about results whose strides differ from eager's but equal the traced ones, as a compiler promises."""
        promised = self._promised(seen)
        return [
            f"strides of {names[at]} are {seen[at].stride()}, eager's are {wanted[at].stride()}; {AS_TRACED}"
            for at in self._visible()
            if at < min(len(seen), len(names))
            and at not in promised
            and isinstance(wanted[at], torch.Tensor)
            and wanted[at].layout == torch.strided
            and significant_strides(wanted[at]) != significant_strides(seen[at])
        ]

    def _judged(self, wanted: Sequence[Any]) -> set[int]:
        """Places of the results whose rounding differences count: all but masks and indices that only a backward sees,
        and cancelled gradients."""
        visible, cancelled = set(self._visible()), self.cancelled(wanted)
        return {at for at, value in enumerate(wanted) if (at in visible or is_float(value)) and at not in cancelled}

    def cancelled(self, wanted: Sequence[Any]) -> set[int]:
        """Places of gradients that are so much smaller than others that they are zero up to rounding, such as a key
        bias's, whose terms cancel."""
        gradients = range(self._signed(), len(wanted) - len(self.changed))
        sizes = {at: float(rms(wide(wanted[at]))) for at in gradients if is_float(wanted[at]) and wanted[at].numel()}
        least = NOTHING * max(filter(math.isfinite, sizes.values()), default=0.0)
        return {at for at, size in sizes.items() if size < least}

    def _signed(self) -> int:
        """How many results, counted from the first, are not gradients: in a gradient the sign of a zero is left to
        chance."""
        if self.spec.stage.endswith("backward"):
            return 0
        count = len(self.nodes)
        return int(self.spec.compile_kwargs.get("num_fwd_outputs", count)) if self.spec.training_joint else count

    def _visible(self) -> range | list[int]:
        """Places of the outputs that the user sees."""
        if self.spec.stage in FULL_STAGES or self.spec.stage == "inference":
            return range(len(self.nodes))
        return list(self.gm.graph.output_node().meta.get("user_visible_output_idxs", ()))


def _traced(node: Any) -> Any:
    return fake_of(node) if isinstance(node, fx.Node) else None


def _as_traced(traced: Any, value: Any) -> bool:
    """Whether a result has the strides that were recorded for it, where those are numbers."""
    if not isinstance(traced, torch.Tensor) or not isinstance(value, torch.Tensor) or traced.layout != value.layout:
        return False
    shape, stride = ([number(size) for size in sizes] for sizes in (traced.shape, traced.stride()))
    significant = tuple(step for size, step in zip(shape, stride, strict=True) if size > 1) if 0 not in shape else ()
    return shape == list(value.shape) and significant == significant_strides(value)


NOTHING = 16 * torch.finfo(torch.float32).eps
"""A gradient smaller than the largest one by this factor counts as what cancellation left of equally large terms."""


SAMPLES = 3
ALLOWANCE = 4
"""A rung may flip this many times more elements than the samples do: its rounding is one more sample of the same
noise."""

SUMS = 16.0
CHANNELWISE = ("batch_norm", "native_batch", "_native_batch", "group_norm", "native_group", "instance_norm")
"""Name prefixes of normalisations whose mean is shared within a channel."""

EXACT = frozenset({
    "where", "nan_to_num", "maximum", "minimum", "max", "min", "amax", "amin", "relu", "abs", "neg", "clone",
    "contiguous", "cat",
    "stack", "gather", "index", "index_select", "embedding", "take", "roll", "flip", "sort", "topk", "constant_pad_nd",
    "full",
    "full_like", "zeros", "zeros_like", "ones", "ones_like", "scalar_tensor", "masked_fill", "scatter", "copy", "fill",
    "sign",
    "floor", "ceil", "round", "trunc", "max_pool2d", "adaptive_max_pool2d", "clamp", "clamp_min", "clamp_max", "fmax",
    "fmin",
    "empty", "empty_like", "masked_fill_", "copy_", "fill_", "zero_", "relu_", "neg_", "repeat", "tril", "triu",
    "copysign",
})  # fmt: skip
"""Ops whose float results are elements of their arguments (or whole numbers): exact in every dtype."""


TF32 = 2.0**-9
"""By how much cutting two float32 factors to TF32 may move their product, relative to its size. A Triton kernel
truncates them, which moves all products in one direction; cuBLAS rounds."""
MULTIPLIES = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "einsum", "scaled_dot_product_attention")
_ATTENTION = "_scaled_dot_product_efficient_attention"
MULTIPLIES = (*MULTIPLIES, _ATTENTION, f"{_ATTENTION}_backward")


def noise(gm: fx.GraphModule, inputs: Sequence[Any], truth: Sequence[Any], run: Run) -> list[Noise]:
    """Returns what rounding alone may do to each result; zero noise where the perturbed run is not possible. A mask `x
    <= 0` of rounded numbers may differ from eager's where x is close to 0 without any bug, and so may all that depends
    on it; a wrong kernel does more.

    Stochastic arithmetic (J. Vignes, A stochastic arithmetic for reliable scientific computation, Math. Comput. Simul.
    35, 1993): the float64 graph runs SAMPLES times with every fresh float value v (and in a backward its gradient)
    replaced by v * (1 + eps * u) + SUMS * eps32 * RMS(v) * u, with u uniform in [-1, 1] and eps that of eager's dtype
    (the rounding of the result); the second term stands for sums that nearly cancel, which are added up in float32 in
    any order. ALLOWANCE times the largest change is noise: a rung's rounding is one more sample of it. Random draws are
    not perturbed, nor are results that an op only moves or selects (a copy, a `where`, a maximum), since nothing is
    rounded there.
    """
    eps = eps_of_nodes(gm, inputs)
    counts = [0] * len(truth)
    apart: list[torch.Tensor | None] = [None] * len(truth)
    for sample in range(SAMPLES):
        generator = torch.Generator().manual_seed(sample)

        def perturb(node: fx.Node, value: Any, generator: torch.Generator = generator) -> Any:
            return perturbed(node, value, eps.get(node.name, ()), generator)

        moved = reference(gm, inputs, lambda wide, given, hook=perturb: run(wide, given, hook))
        if isinstance(moved, NoReference):
            break
        counts = [max(count, _changed(exact, other)) for count, exact, other in zip(counts, truth, moved, strict=True)]
        apart = [_furthest(*three) for three in zip(apart, truth, moved, strict=True)]
    both = zip(counts, apart, strict=True)
    return [Noise(ALLOWANCE * count, None if far is None else ALLOWANCE * far) for count, far in both]


def _furthest(so_far: torch.Tensor | None, truth: Any, perturbed: Any) -> torch.Tensor | None:
    if not is_float(truth) or not isinstance(perturbed, torch.Tensor) or perturbed.shape != truth.shape:
        return so_far
    apart = (wide(perturbed) - wide(truth)).abs()
    return apart if so_far is None else torch.maximum(so_far, apart)


def eps_of_nodes(gm: fx.GraphModule, inputs: Sequence[Any]) -> dict[str, tuple[float, ...]]:
    """Name of a node -> eps of each of its outputs: 0 for one that is no float or shares memory with an argument (a
    view), TF32 for a product that a GPU may compute so."""
    coarse = torch.get_float32_matmul_precision() != "highest"
    eps: dict[str, tuple[float, ...]] = {}
    storages: dict[str, set[int]] = {}

    def look(node: fx.Node, value: Any) -> Any:
        tensors = tensors_in(value)
        given = set[int]().union(*(storages.get(arg.name, set()) for arg in node.all_input_nodes))
        strided = [tensor for tensor in tensors if tensor.layout == torch.strided]
        storages[node.name] = {tensor.untyped_storage().data_ptr() for tensor in strided}
        computes = node.op not in ("placeholder", "get_attr", "output") and not is_random(node)
        if computes and base_name(node) not in EXACT:
            cut = coarse and base_name(node) in MULTIPLIES
            eps[node.name] = tuple(_eps(tensor, given, cut) for tensor in tensors)
        return value

    try:
        with torch.no_grad(), Attributes(gm):
            run_graph(gm, clone_inputs(inputs), hook=look)
    except (GraphRunError, RuntimeError):
        return {}
    return eps


def _eps(tensor: torch.Tensor, given: Collection[int], cut: bool) -> float:
    plain = tensor.is_floating_point() and is_float(tensor)
    if not plain or tensor.untyped_storage().data_ptr() in given:
        return 0.0
    return TF32 if cut and tensor.is_cuda and tensor.dtype == torch.float32 else torch.finfo(tensor.dtype).eps


def perturbed(node: fx.Node, value: Any, eps: Sequence[float], generator: torch.Generator) -> Any:
    """Perturbs a node's value in a float64 run in place, by as much as rounding could; the error of a sum grows with
    the number of its terms (see `rounding_bound`). A hook perturbs its gradient: that of a broadcast value is a sum,
    too; that of a normalised value is also shifted as a whole, by the sums inside the normalisation's backward."""
    shapes = [shape for user in node.users for shape in shapes_of(user)]
    normalised = [name for user in node.users if (name := base_name(user)) in NORMALISING]
    for tensor, width in zip(tensors_in(value), eps, strict=False):
        if width and tensor.dtype == torch.float64:
            plain = tensor.data  # hides the change from autograd's version check
            if width == TF32:
                plain.mul_(1 + width * _units(plain.new_empty(()), generator))
            plain.add_(_rounding(plain, width, generator, terms(node)))
            if tensor.requires_grad:
                broadcast = max(map(math.prod, shapes), default=1) // max(1, tensor.numel())
                names = normalised if tensor.dim() > 1 else []

                def hook(grad: torch.Tensor, width: float = width, terms: int = broadcast, names: Any = names) -> Any:
                    return grad + _rounding(grad, width, generator, terms) + _shifts(grad, width, generator, names)

                tensor.register_hook(hook)
    return value


def _rounding(values: torch.Tensor, width: float, generator: torch.Generator, terms: int = 1) -> torch.Tensor:
    sums = _size(values) * _of_a_sum(width, terms)
    known = torch.isfinite(values)
    return values.abs().mul_(width).add_(sums).mul_(_units(values, generator)).masked_fill_(~known, 0.0)


def _shifts(grad: torch.Tensor, width: float, generator: torch.Generator, names: Sequence[str]) -> torch.Tensor | float:
    """The shift of a gradient by the errors of sums inside a normalisation's backward: one number per channel for a
    batch or group norm, one per row for others."""
    shift: torch.Tensor | float = 0.0
    for name in names:
        shared = [at for at in range(grad.dim()) if at != 1] if name.startswith(CHANNELWISE) else [grad.dim() - 1]
        one_each = grad.mean(shared, keepdim=True)
        terms = max(1, grad.numel() // max(1, one_each.numel()))
        shift = shift + _size(grad) * _of_a_sum(width, terms) * _units(one_each, generator)
    return shift


def _units(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(like.shape, generator=generator, dtype=torch.float64).mul_(2).sub_(1).to(like.device)


def _size(values: torch.Tensor) -> float:
    finite = values[torch.isfinite(values)]
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0


def _of_a_sum(width: float, terms: int) -> float:
    """The possible error of a sum of so many terms, relative to the size of the values. `width`: eps of the dtype."""
    return min(width, torch.finfo(torch.float32).eps) * max(SUMS, LAMBDA / 2 * math.sqrt(terms))


def _changed(exact: Any, perturbed: Any) -> int:
    if not isinstance(exact, torch.Tensor) or exact.layout != torch.strided:
        return 0
    if not isinstance(perturbed, torch.Tensor) or perturbed.shape != exact.shape:
        return exact.numel()
    if exact.is_floating_point() or exact.is_complex():
        exact, perturbed = classes(exact), classes(perturbed)
    return int((exact != perturbed).sum())


_CUMULATIVE = frozenset({"cumsum", "cumprod", "logcumsumexp"})

_REDUCING = _CUMULATIVE | frozenset({
    "sum", "mean", "var", "std", "var_mean", "std_mean", "prod", "logsumexp", "norm", "linalg_vector_norm", "nansum",
    "nanmean", "trace",
})  # fmt: skip

NORMALISING = words("""
    softmax _softmax log_softmax _log_softmax native_layer_norm layer_norm native_group_norm
    _native_batch_norm_legit native_batch_norm batch_norm group_norm instance_norm rms_norm
    _softmax_backward_data _log_softmax_backward_data native_layer_norm_backward""")

_PRODUCT = words("""
    mm bmm matmul linear addmm baddbmm addmv mv dot vdot einsum _addmm_activation""")

_CONVOLUTION = words("""
    convolution conv1d conv2d conv3d _convolution convolution_backward conv_transpose2d""")


def reduction_length(node: fx.Node) -> int:
    """How many terms are reduced into one element of a node's value: 1 where nothing is reduced, or the length is
    unknown."""
    name = base_name(node)
    shapes = [shape for arg in node.all_input_nodes for shape in shapes_of(arg)]
    if not shapes:
        return 1
    if name in _PRODUCT:
        return _inner(node, name)
    if name in _CONVOLUTION:
        return max((_product(shape[1:]) for shape in shapes if len(shape) > 2), default=1)
    if "scaled_dot_product" in name:
        return max((max(shape[-2:]) for shape in shapes if len(shape) >= 2), default=1)
    if name in NORMALISING or name in _CUMULATIVE:
        return max(max(shape, default=1) for shape in shapes)
    if name not in _REDUCING:
        return 1
    out = max((_product(shape) for shape in shapes_of(node)), default=1)
    return max(1, max(map(_product, shapes)) // max(1, out))


def terms(node: fx.Node) -> int:
    """How many terms a sum, a mean or the like adds up for one element; 1 for any other operation."""
    return reduction_length(node) if base_name(node) in _REDUCING else 1


def output_lengths(gm: fx.GraphModule) -> list[int]:
    """For each flat output, the longest reduction among its ancestors."""
    return _on_the_way(gm, lambda node: reduction_length(node) if node.op in ("call_function", "call_method") else 1, 1)


def output_grains(gm: fx.GraphModule) -> list[float]:
    """For each flat output, the largest eps among the floating-point values that it is computed from; 0 where nothing
    is known.

    A float32 result behind a region in bfloat16 is as good as bfloat16.
    """
    return _on_the_way(gm, lambda node: 0.0 if node.op in ("placeholder", "get_attr") else _grain(node), 0.0)


def _on_the_way(gm: fx.GraphModule, own: Callable[[fx.Node], Any], least: Any) -> list[Any]:
    """For each flat output, the largest value of `own` among its ancestors; `least` where nothing is known."""
    largest: dict[str, Any] = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            return [largest.get(getattr(leaf, "name", ""), least) for leaf in leaves(node.args[0])]
        largest[node.name] = max([own(node), *(largest.get(arg.name, least) for arg in node.all_input_nodes)])
    return []


def _grain(node: fx.Node) -> float:
    dtypes = [tensor.dtype for tensor in _tensors(node) if tensor.is_floating_point() or tensor.is_complex()]
    return max((PACKED_EPS if dtype == PACKED else torch.finfo(dtype).eps for dtype in dtypes), default=0.0)


def _inner(node: fx.Node, name: str) -> int:
    """The inner dimension of a product: the last dimension of the first factor."""
    factors = [shape for arg in node.args if isinstance(arg, fx.Node) for shape in shapes_of(arg)]
    if name in ("addmm", "baddbmm", "addmv", "_addmm_activation"):
        factors = factors[1:]
    return max(1, factors[0][-1]) if factors and factors[0] else 1


def base_name(node: fx.Node) -> str:
    """The name of the operation without namespace and overload."""
    if node.op == "call_method":
        return str(node.target)
    name = getattr(node.target, "__name__", str(node.target))
    return name.partition(".")[0]


def shapes_of(node: fx.Node) -> list[tuple[int, ...]]:
    """The shapes of a node's results, with symbolic sizes at their hints."""
    return [tuple(number(size) for size in tensor.shape) for tensor in _tensors(node)]


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    value = _traced(node)
    parts = value if isinstance(value, (list, tuple)) else [value]
    return [part for part in parts if isinstance(part, torch.Tensor)]


def number(size: Any) -> int:
    """A size as a number, a symbolic one at its hint; 1 where it has none."""
    if isinstance(size, int):
        return size
    hint = getattr(size.node, "hint", None)  # int(size) would guard on it
    return hint if isinstance(hint, int) else 1


def _product(sizes: tuple[int, ...]) -> int:
    return math.prod(max(1, size) for size in sizes)
