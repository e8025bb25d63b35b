# pyright: basic
"""CPU implementations of operators that torch has for GPUs alone: fused attention and cuDNN's batch norm, from their
definitions.

A graph recorded on a GPU can thus be run, judged and reduced on a machine without one. They are registered as the
operators' CPU kernels, for eager mode and for library calls of compiled code alike, and only in a process that asks for
it. Dropout inside attention drops other elements than the GPU did, but the same ones in every run.

For example:

    register()
    torch.ops.aten._scaled_dot_product_flash_attention(q, k, v)[0]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

import torch
from torch import fx

from ...dumps.allowlist import TRITON_CALLS
from ...dumps.torchside.triton_kernels import name_of_kernel
from ...dumps.torchside.values import fake_of
from .. import torch_private as t
from .eager import nodes_in

_REGISTERED: list[torch.library.Library] = []


def register() -> None:
    """Registers a CPU kernel for each operator in KERNELS that this torch has without one. Later calls do nothing."""
    if _REGISTERED:
        return
    library = torch.library.Library("aten", "IMPL")
    for name, function in KERNELS.items():
        packet = getattr(torch.ops.aten, name, None)
        if packet is not None and not t.has_kernel(f"aten::{name}", "CPU"):
            library.impl(name, _laid_out(packet.default, function), "CPU")
    _REGISTERED.append(library)


def used(gm: fx.GraphModule) -> list[str]:
    """The GPU-only operators that a graph calls."""
    packets = (getattr(node.target, "overloadpacket", None) for node in nodes_in(gm) if node.op == "call_function")
    names = (getattr(packet, "__name__", "") for packet in packets)
    return list(dict.fromkeys(name for name in names if name in KERNELS))


def _laid_out(operator: Any, function: Kernel) -> Callable[..., tuple[Any, ...]]:
    """Wraps a kernel so that its results have the sizes, strides and dtypes that the operator's meta kernel gives;
    zeros for results that it does not compute."""
    arguments = operator._schema.arguments

    def kernel(*given: Any, **named: Any) -> tuple[Any, ...]:
        known = {argument.name: value for argument, value in zip(arguments, given, strict=False)} | named
        values = function({argument.name: known.get(argument.name, argument.default_value) for argument in arguments})
        shapes = operator(*map(_meta, given), **{name: _meta(value) for name, value in named.items()})
        return tuple(_into(*pair) for pair in zip_longest(shapes, values))

    return kernel


def _meta(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _into(shape: Any, value: Any) -> Any:
    if not isinstance(shape, torch.Tensor):
        return shape if value is None else value
    output = torch.empty_strided(shape.shape, shape.stride(), dtype=shape.dtype).zero_()
    if value is not None:
        place = tuple(slice(0, size) for size in value.shape)
        output[place] = value.reshape([*value.shape, *[1] * (output.dim() - value.dim())]).to(output.dtype)
    return output


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _kept(chances: torch.Tensor, dropout: float) -> torch.Tensor | float:
    """Factors for the probabilities: 0 for dropped ones. Drawn with a fixed seed, so they depend on the shape alone."""
    if not dropout:
        return 1.0
    drawn = torch.rand(chances.shape, generator=torch.Generator().manual_seed(0))
    return (drawn >= dropout).to(chances.dtype) / (1 - dropout)


def _scores(
    query: torch.Tensor, key: torch.Tensor, bias: torch.Tensor | None, causal: bool, scale: float | None
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """(probabilities, log-sum-exp of each row, scale), of (batch, heads, queries, width) and (batch, heads, keys,
    width)."""
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = _wide(query) @ _heads(_wide(key), query).transpose(-1, -2) * factor
    if bias is not None:
        scores = scores + _wide(bias)
    if causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    lse = scores.logsumexp(-1)
    return torch.exp(scores - lse.unsqueeze(-1)).nan_to_num(0.0), lse, factor


def _heads(shared: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Keys or values of grouped queries, repeated for each head."""
    count = query.shape[1] // max(shared.shape[1], 1)
    return shared.repeat_interleave(count, 1) if count > 1 else shared


def _attention(given: Mapping[str, Any]) -> tuple[Any, ...]:
    query, key, value, bias = given["query"], given["key"], given["value"], given.get("attn_bias")
    chances, lse, _ = _scores(query, key, bias, given["is_causal"], given["scale"])
    out = (chances * _kept(chances, given["dropout_p"])) @ _heads(_wide(value), query)
    return out, lse if given.get("compute_log_sumexp", True) else None


def _attention_backward(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """Gradients of query, key, value and bias (Dao et al., FlashAttention, 2022, algorithm 4)."""
    query, key, value, bias = given["query"], given["key"], given["value"], given.get("attn_bias")
    chances, _, factor = _scores(query, key, bias, given["is_causal"], given["scale"])
    grad = _wide(given["grad_out"] if "grad_out" in given else given["grad_out_"])
    kept = _kept(chances, given["dropout_p"])
    to_value = (chances * kept).transpose(-1, -2) @ grad
    of_chances = grad @ _heads(_wide(value), query).transpose(-1, -2) * kept
    of_scores = chances * (of_chances - (grad * _wide(given["out"])).sum(-1, keepdim=True))
    to_query = of_scores @ _heads(_wide(key), query) * factor
    to_key = of_scores.transpose(-1, -2) @ _wide(query) * factor
    gradients = to_query, _grouped(to_key, key), _grouped(to_value, value)
    if bias is None or "grad_input_mask" not in given or not given["grad_input_mask"][3]:
        return gradients
    return (*gradients, of_scores.sum_to_size(bias.shape))


def _grouped(gradient: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
    count = gradient.shape[1] // max(shared.shape[1], 1)
    return gradient.unflatten(1, (shared.shape[1], count)).sum(2) if count > 1 else gradient


def _batch_norm(given: Mapping[str, Any]) -> tuple[Any, ...]:
    return torch.ops.aten.native_batch_norm.default(*given.values())


def _batch_norm_backward(given: Mapping[str, Any]) -> tuple[Any, ...]:
    image, grad, *saved, epsilon, _ = given.values()
    return torch.ops.aten.native_batch_norm_backward.default(grad, image, *saved, True, epsilon, [True, True, True])


Kernel = Callable[[Mapping[str, Any]], tuple[Any, ...]]
"""Arguments of an operator by name -> its first results, None for those without a meaning on the CPU."""
KERNELS: dict[str, Kernel] = {
    "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_flash_attention_backward": _attention_backward,
    "_scaled_dot_product_efficient_attention": _attention,
    "_scaled_dot_product_efficient_attention_backward": _attention_backward,
    "_scaled_dot_product_cudnn_attention": _attention,
    "_scaled_dot_product_cudnn_attention_backward": _attention_backward,
    "cudnn_batch_norm": _batch_norm,
    "cudnn_batch_norm_backward": _batch_norm_backward,
}
"""To add an operator: a function and a row."""


NO_REFERENCE = "no independent reference for {}: eager runs on the interpreter too"


def is_tied(gm: fx.GraphModule) -> bool:
    """Whether a graph calls a Triton kernel of the user's: the kernel's grid and numbers belong to the recorded sizes
    and strides, so with others it reads and writes out of bounds."""
    return any(True for _ in _calls(gm))


def _calls(gm: fx.GraphModule) -> Iterator[fx.Node]:
    return (node for node in nodes_in(gm) if f"higher_order.{getattr(node.target, '__name__', '')}" in TRITON_CALLS)


def on_cpu(gm: fx.GraphModule) -> list[str]:
    """Names of the user's Triton kernels that are called with CPU tensors, which only an interpreter can run."""
    names = (name_of_kernel(node.kwargs.get("kernel_idx")) for node in _calls(gm) if _is_on_cpu(node))
    return list(dict.fromkeys(names))


def _is_on_cpu(node: fx.Node) -> bool:
    values = [fake_of(source) for source in node.all_input_nodes]
    devices = {value.device.type for value in values if isinstance(value, torch.Tensor)}
    return devices == {"cpu"} or (not devices and not torch.cuda.is_available())


def notes(gm: fx.GraphModule) -> list[str]:
    """The notes that a verdict on such a graph carries."""
    return [NO_REFERENCE.format(name) for name in on_cpu(gm)]


def refusal(gm: fx.GraphModule) -> str | None:
    """Why Inductor's CPU code cannot run the graph, or None."""
    names: Any = on_cpu(gm)
    if not names:
        return None
    called = f"the Triton kernel{'s' * (len(names) != 1)} {', '.join(names)}"
    return f"Inductor's code for the CPU cannot call {called} of the user's; --rung triton_interpret can"
