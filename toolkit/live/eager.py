"""Runs an fx graph eagerly, node by node, as the reference for every other rung; copies inputs (with aliasing, strides,
offsets, requires_grad) and graphs (with metadata, subgraphs).

Differs from calling the module in three ways: Inductor's random prims draw what the compiled kernel draws (CPU), memory
that an `empty` left uninitialised can be poisoned to see whether the result depends on it, and the outputs come as one
flat list. The graph stays as it is; inputs are changed as the graph says, so pass clones.

>>> gm = torch.fx.symbolic_trace(lambda x: x.sin())
>>> run_graph(gm, [torch.zeros(2)])
[tensor([0., 0.])]
>>> x = torch.zeros(4)
>>> a, b = clone_inputs([x, x[1:]])
>>> a[1] = 7.0; b[0].item()
7.0
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from ...dumps.torchside import wrappers
from ...dumps.torchside.history import bases_of, computed
from .. import torch_private as t

_MASK = 0xFFFFFFFF
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_TO_UNIT = 4.6566127342e-10
_ROUNDS = 10


class EagerMode(t.TorchDispatchMode):
    """Base of dispatch modes for eager runs. Loops, branches and flex attention are compiled by torch as usual and
    reach the mode as one operation each, whose `func` has no schema. Under any other mode Dynamo would leave them
    uncompiled from then on."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """True: the mode is off during compiles, and on while compiled code runs."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        self.after(func, (args, kwargs), output)
        return output

    def after(self, func: Any, given: Any, output: Any) -> None:
        """Called with each operation, its arguments and its result."""


def repeatable(device: torch.device | str) -> bool:
    """Whether the functions below give the numbers that kernels for that device draw."""
    kind = torch.device(device).type
    singly = kind == "cuda" and torch.version.hip is None and t.optional("TritonOverrides._can_use_4x_random") is None
    return kind == "cpu" or singly


def seeds(count: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """The seeds that a compiled graph draws from the device's generator at its start."""
    return torch.randint(-(2**63), 2**63 - 1, [count], dtype=torch.int64, device=device)


def rand(size: Sequence[int] | int, seed: torch.Tensor) -> torch.Tensor:
    """Uniform float32 numbers in [0, 1)."""
    return rand_at(_indices(size, seed), seed)


def rand_at(index: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
    """The numbers of `rand` at the given linear indices."""
    return _unit(_words(index, seed)[0], seed)


def randn(size: Sequence[int] | int, seed: torch.Tensor) -> torch.Tensor:
    """Normal float32 numbers, by Box and Muller from the first two words; computed in float64 like the kernel."""
    return randn_at(_indices(size, seed), seed)


def randn_at(index: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
    """The numbers of `randn` at the given linear indices."""
    u1, u2 = (_unit(word, seed) for word in _words(index, seed)[:2])
    if seed.is_cuda:
        return (-2.0 * u1.clamp_min(1.0e-7).log()).sqrt() * (2.0 * math.pi * u2).cos()
    u1, u2 = 1 - u1, 1 - u2
    return ((-2.0 * u1.log().double()).sqrt() * (2.0 * math.pi * u2.double()).cos()).float()


def randint(low: int, high: int, size: Sequence[int], seed: torch.Tensor) -> torch.Tensor:
    """Integers in [low, high): 64 random bits modulo the range."""
    return randint_at(low, high, _indices(size, seed), seed)


def randint_at(low: int, high: int, index: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
    """The numbers of `randint` at the given linear indices."""
    first, second = _words(index, seed)[:2]
    span = high - low
    # (second * 2^32 + first) mod span in pieces that fit int64; exact while span < 2^31
    return ((second % span) * (2**32 % span) + first % span) % span + low


def _indices(size: Sequence[int] | int, seed: torch.Tensor) -> torch.Tensor:
    shape = [size] if isinstance(size, int) else list(size)
    return torch.arange(math.prod(shape), dtype=torch.int64, device=seed.device).reshape(shape)


def _words(index: torch.Tensor, seed: torch.Tensor) -> list[torch.Tensor]:
    counter = [index & _MASK, index >> 32, torch.zeros_like(index), torch.zeros_like(index)]
    number = int(seed)
    key = [number & _MASK, (number >> 32) & _MASK if seed.is_cuda else 0]
    for _ in range(_ROUNDS):
        low0, high0 = _multiply(counter[0], _MULTIPLIERS[0])
        low1, high1 = _multiply(counter[2], _MULTIPLIERS[1])
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [(part + weyl) & _MASK for part, weyl in zip(key, _WEYL, strict=True)]
    return counter


def _multiply(a: torch.Tensor, b: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Low and high 32 bits of a product of two unsigned 32-bit numbers, in int64 without overflow."""
    low_part = a * (b & 0xFFFF)
    high_part = a * (b >> 16) + (low_part >> 16)
    return ((high_part & 0xFFFF) << 16) | (low_part & 0xFFFF), high_part >> 16


def _unit(word: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
    if seed.is_cuda:  # as int32, a negative x being folded to -x - 1
        return torch.where(word > 0x7FFFFFFF, _MASK - word, word).float() * _TO_UNIT
    return (word & 0x7FFFFFFF).float() * _TO_UNIT


_RANDOM_FUNCTIONS = frozenset({
    "rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "bernoulli", "multinomial", "normal",
    "randperm",
    "poisson", "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout",
    "feature_dropout", "native_dropout", "dropout_", "rrelu", "gumbel_softmax", "scaled_dot_product_attention",
    "fractional_max_pool2d", "multi_head_attention_forward", "uniform_", "normal_", "exponential_", "random_",
    "geometric_",
    "cauchy_", "log_normal_", "bernoulli_",
})  # fmt: skip
_UNINITIALISED = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"})
_RESIZING = frozenset({"resize", "resize_", "resize_as", "resize_as_"})
_POISON = 0x7B  # huge as a float of any width, out of range as an index


Hook = Callable[[fx.Node, Any], Any]


class GraphRunError(Exception):
    """An eager run failed: `node` is the node's name, `__cause__` what was raised."""

    def __init__(self, node: str, cause: BaseException) -> None:
        self.node = node
        super().__init__(f"node {node}: {type(cause).__name__}: {cause}")


def run_graph(
    gm: fx.GraphModule, inputs: Sequence[Any], *, poison: bool = False, hook: Hook | None = None
) -> list[Any]:
    """Runs a graph on flat inputs and returns its flat outputs; raises GraphRunError, which names the node.

    `poison` fills what `empty` ops leave uninitialised with a byte pattern. `hook(node, value)` may replace each node's
    value.
    """
    depth = t.transforms()
    try:
        outputs = _Runner(gm, poison, hook).run(*inputs, enable_io_processing=False)
        return t.tree_leaves(outputs, is_leaf=lambda value: value is None)
    finally:
        with contextlib.suppress(RuntimeError):  # torch 2.11 goes on where none is left, and stumbles over that
            t.leave_transforms(depth)  # an error inside a `vmap` of the graph leaves the transform entered


def each_node(gm: fx.GraphModule, inputs: Sequence[Any]) -> Iterator[tuple[fx.Node, Any]]:
    """Runs a graph and yields each node with its value right after it ran; a value is released after its last use.
    Raises GraphRunError, which names the node."""
    runner = _Runner(gm, False, None)
    runner.args_iter = iter(inputs)
    for node in gm.graph.nodes:
        runner.env[node] = runner.run_node(node)
        yield node, runner.env[node]
        for dead in runner.user_to_last_uses.get(node, ()):
            del runner.env[dead]


def is_random(node: fx.Node) -> bool:
    """Whether a node draws random numbers."""
    if node.op == "call_method":
        return str(node.target) in _RANDOM_FUNCTIONS
    if node.op != "call_function":
        return False
    if isinstance(tags := getattr(node.target, "tags", None), (list, set, tuple)):
        return torch.Tag.nondeterministic_seeded in tags
    return getattr(node.target, "__name__", "") in _RANDOM_FUNCTIONS and not _idle(node)


def _idle(node: fx.Node) -> bool:
    """Whether a node could draw random numbers but is set to drop nothing, or everything."""
    name = getattr(node.target, "__name__", "")
    if name == "scaled_dot_product_attention":
        return bool((node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)) == 0.0)
    if "dropout" not in name:
        return False
    given = dict(zip(("p", "training"), node.args[1:3], strict=False)) | node.kwargs
    return given.get("p") in (0.0, 1.0) or given.get("training", given.get("train")) is False


def is_uninitialised(node: fx.Node) -> bool:
    """Whether a node allocates uninitialised memory: `empty` and similar ops."""
    return _calls(node, _UNINITIALISED)


def grows(node: fx.Node) -> bool:
    """Whether a node resizes its argument, which leaves the added elements uninitialised."""
    return _calls(node, _RESIZING)


def _calls(node: fx.Node, names: Collection[str]) -> bool:
    name = getattr(node.target, "__name__", str(node.target)).partition(".")[0]
    return node.op in ("call_function", "call_method") and name in names


def has_random(gm: fx.GraphModule) -> bool:
    """Whether a graph, or a graph inside it, draws random numbers."""
    return any(map(is_random, nodes_in(gm)))


def draws_from_generator(gm: fx.GraphModule) -> bool:
    """Whether a graph draws random numbers with torch's ops, which compiled code imitates only under `fallback_random`;
    not so for Inductor's random prims.
    """
    return has_random(gm) and not any("inductor_" in str(node.target) and is_random(node) for node in nodes_in(gm))


@contextlib.contextmanager
def eager_draws() -> Iterator[None]:
    """Within the block, compiled code draws eager's numbers (`fallback_random`) in eager's order. From 2.13 on torch
    keeps that order itself; before, a pass and the scheduler may exchange a graph's draws."""
    with t.inductor_config.patch(fallback_random=True), contextlib.ExitStack() as stack:
        if t.optional("chain_random_ops") is None:
            sort, reorder = t.look_up("post_grad_sort"), t.look_up("reorder_for_locality")

            def draws_of(graph: fx.Graph) -> list[fx.Node]:
                return [node for node in graph.nodes if is_random(node)]

            def reorder_the_rest(graph: fx.Graph) -> None:
                nodes, draws = list(graph.nodes), draws_of(graph)
                reorder(graph)
                if draws_of(graph) != draws:
                    for node in nodes[:-1]:
                        nodes[-1].prepend(node)

            def sort_chained(graph: fx.Graph) -> None:
                chain = {after: [before] for before, after in itertools.pairwise(draws_of(graph))}
                t.preserve_node_ordering(graph, chain)
                sort(graph)

            stack.enter_context(t.swapped("reorder_for_locality", reorder_the_rest))
            stack.enter_context(t.swapped("post_grad_sort", sort_chained))
        yield


def recomputes_random(gm: fx.GraphModule) -> bool:
    """Whether a checkpointed region draws random numbers: compiled code then draws them in another order than eager."""
    return any(
        "checkpoint" in str(node.target) and isinstance(body, fx.GraphModule) and has_random(body)
        for part in graphs_in(gm)
        for node in part.graph.nodes
        if node.op == "call_function"
        for body in (getattr(part, str(arg.target), None) for arg in node.all_input_nodes if arg.op == "get_attr")
    )


def drawn(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The numbers that a compiled kernel would draw for one of Inductor's random prims; None for other targets, and
    where eager cannot repeat the kernel's numbers."""
    draw = _DRAWS.get(str(target))
    given = () if draw is None else (*args, *kwargs.values())
    there = [argument for argument in given if isinstance(argument, (torch.Tensor, torch.device))]
    devices: list[Any] = [getattr(argument, "device", argument) for argument in there]
    return draw(*args, **kwargs) if draw is not None and all(map(repeatable, devices)) else None


def has_kernel_draws(gm: fx.GraphModule) -> bool:
    """Whether a graph contains Inductor's random prims, whose numbers are drawn by kernels."""
    return any(str(node.target) in _DRAWS for node in gm.graph.nodes if node.op == "call_function")


def draws_unrepeatably(gm: fx.GraphModule) -> bool:
    """Whether a graph contains Inductor's random prims for a device whose kernels' numbers eager cannot repeat."""
    makers = ("prims.inductor_seed.default", "prims.inductor_seeds.default")
    return any(
        not repeatable(device)
        for node in gm.graph.nodes
        if node.op == "call_function" and str(node.target) in makers
        for device in (*node.args, *node.kwargs.values())
        if isinstance(device, torch.device)
    )


def draw_like_kernels(gm: fx.GraphModule) -> None:
    """Replaces Inductor's random prims in a graph by functions that draw what its kernels draw, for rungs that do not
    compile the prims.
    """
    for node in gm.graph.nodes:
        if node.op == "call_function" and str(node.target) in _DRAWS:
            node.target = drawing(node.target)


def drawing(target: Any) -> Callable[..., Any]:
    """A function to call in place of an operator: a random prim of Inductor's then draws what its kernel draws."""

    def draw_like_kernel(*args: Any, **kwargs: Any) -> Any:
        value = drawn(target, args, kwargs)
        return target(*args, **kwargs) if value is None else value

    return draw_like_kernel


class _Runner(fx.Interpreter):
    def __init__(self, gm: fx.GraphModule, poison: bool, hook: Hook | None) -> None:
        super().__init__(gm)
        settings: Any = torch.utils.deterministic
        filled = torch.are_deterministic_algorithms_enabled() and settings.fill_uninitialized_memory
        self.poison = poison and not filled
        self.hook = hook

    def run_node(self, n: fx.Node) -> Any:
        try:
            value = super().run_node(n)
            return value if self.hook is None else self.hook(n, value)
        except GraphRunError:
            raise
        except Exception as error:
            raise GraphRunError(n.name, error) from error

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = getattr(target, "__name__", "").partition(".")[0]
        if (value := drawn(target, args, kwargs)) is not None:
            return value
        if name == "invoke_subgraph":  # torch differentiates it only while tracing; calling its graph is the same
            return args[0](*args[2:])
        return self._poisoned(name, args, lambda: super(_Runner, self).call_function(target, args, kwargs))

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._poisoned(target, args, lambda: super(_Runner, self).call_method(target, args, kwargs))

    def _poisoned(self, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        written = args[0].numel() if name in _RESIZING and isinstance(args[0], torch.Tensor) else 0
        value = call()
        if self.poison and name in _UNINITIALISED | _RESIZING and isinstance(value, torch.Tensor):
            fill(value, written * value.element_size())
        return value


def fill(value: torch.Tensor, start: int = 0, poison: int = _POISON) -> None:
    """Poisons a tensor's storage from a byte on."""
    storage = value.untyped_storage()
    flat = torch.empty(0, dtype=torch.uint8, device=value.device).set_(storage, 0, (storage.nbytes(),), (1,))
    flat[start:].fill_(poison)


_DRAWS: dict[str, Callable[..., Any]] = {
    "prims.inductor_seed.default": lambda device: seeds(1, device)[0],
    "prims.inductor_seeds.default": seeds,
    "prims.inductor_random.default": lambda size, seed, mode, **_: (rand if mode == "rand" else randn)(size, seed),
    "prims.inductor_randint.default": randint,
}


def clone_inputs(inputs: Sequence[Any], change: Callable[[torch.Tensor], torch.Tensor] | None = None) -> list[Any]:
    """Clones the tensors among `inputs`, each storage once, so that views of one storage stay views of one storage.

    `change` maps a whole flat storage (a 1-d tensor of one dtype) to its copy, for instance to another dtype or device.
    What requires grad does so again: a leaf as a leaf, another as the result of an operation; parameters stay
    parameters. Anything that is not a plain strided tensor is cloned alone.
    """
    storages: dict[tuple[Any, torch.dtype], torch.Tensor] = {}
    copies = [
        _clone(value, storages, change or torch.Tensor.clone) if isinstance(value, torch.Tensor) else value
        for value in inputs
    ]
    came = [place for place, given in enumerate(inputs) if isinstance(given, torch.Tensor) and not given.is_leaf]
    bases = {place: base._replace(dtype=copies[place].dtype) for place, base in bases_of(inputs).items()}
    return computed(copies, came, bases) if came or bases else copies


def _clone(
    tensor: torch.Tensor,
    storages: dict[tuple[Any, torch.dtype], torch.Tensor],
    change: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    if wrappers.is_wrapper(tensor):
        return wrappers.like(
            tensor, {name: _clone(part, storages, change) for name, part in wrappers.parts(tensor).items()}
        )
    if tensor.layout != torch.strided or tensor.is_quantized or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    plain = tensor.detach()
    conj, neg = plain.is_conj(), plain.is_neg()  # the view's bits are cleared: the memory is copied as it is
    plain = plain.conj() if conj else plain
    plain = t.neg_view(plain) if neg else plain
    storage = plain.untyped_storage()
    key = (storage.data_ptr() or id(storage), plain.dtype)
    if key not in storages:
        count = storage.nbytes() // plain.element_size()
        storages[key] = change(torch.empty(0, dtype=plain.dtype, device=plain.device).set_(storage, 0, (count,), (1,)))
    out = storages[key].as_strided(plain.shape, plain.stride(), plain.storage_offset())
    out = out.conj() if conj else out
    out = (t.neg_view(out) if neg else out).detach()  # its base is noted below
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(out, requires_grad=tensor.requires_grad)
    out.requires_grad_(tensor.requires_grad)
    return torch.nn.Buffer(out) if isinstance(tensor, torch.nn.Buffer) else out


def copy_graph(gm: fx.GraphModule) -> fx.GraphModule:
    """A copy whose graph (and subgraphs) can be changed freely; parameters, buffers and constants are shared with the
    original.
    """
    graph = copy.deepcopy(gm.graph)
    out = fx.GraphModule(gm, graph, class_name=type(gm).__name__)
    out.meta = dict(gm.meta)
    for node in graph.nodes:
        if node.op == "get_attr" and isinstance(inner := attribute(gm, str(node.target)), fx.GraphModule):
            set_attribute(out, str(node.target), copy_graph(inner))
    if (shape_env := getattr(gm, "shape_env", None)) is not None:
        out.shape_env = shape_env  # type: ignore[assignment]
    return out


def graphs_in(gm: fx.GraphModule) -> list[fx.GraphModule]:
    """The graph and the graphs inside it."""
    return [part for part in gm.modules() if isinstance(part, fx.GraphModule)]


def nodes_in(gm: fx.GraphModule) -> list[fx.Node]:
    """The nodes of a graph and of the graphs inside it."""
    return [node for part in graphs_in(gm) for node in part.graph.nodes]


def attribute(owner: Any, path: str) -> Any:
    """The value at the dotted path of a `get_attr` node, or None."""
    for part in path.split("."):
        owner = getattr(owner, part, None)
    return owner


def set_attribute(owner: Any, path: str, value: Any) -> None:
    """Sets the value at a dotted path."""
    *parents, last = path.split(".")
    for part in parents:
        owner = getattr(owner, part)
    setattr(owner, last, value)
