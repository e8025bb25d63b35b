"""Aten calls as a person writes them: the function of torch, or the method of a tensor, that results in exactly the
same aten call.

Only tables and their lookup; imports no torch, so that it serves graphs and their records alike. A name is listed only
if tracing its plain form gives the call itself (after Inductor's decompositions where noted); `plain_calls` checks that
with values, since arguments may matter. Arguments are only left out or reordered.

>>> plain_call("aten._softmax.default", ["x", -1, False], {})
PlainCall(call='torch.softmax', args=['x', -1], kwargs={})
>>> plain_call("aten.view.default", ["x", [2, 3]], {})
PlainCall(call='.view', args=['x', [2, 3]], kwargs={})
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, cast

from .. import syntax

INDEX = "[]"
"""The `call` of a Plain that indexes its first argument by the others."""


class Slice(NamedTuple):
    """A slice among the arguments of INDEX: a Python slice in a graph, `start:stop:step` in a text."""

    start: Any = None
    stop: Any = None
    step: Any = None


class PlainCall(NamedTuple):
    """`call` is a dotted function ("torch.relu"), a method of the first argument (".view"), or INDEX."""

    call: str
    args: list[Any]
    kwargs: dict[str, Any]


_HOMES = {
    "torch": """
        abs acos acosh add.Tensor addbmm addcdiv addcmul addmm addmv addr all all.dim all.dims amax amin aminmax angle
        any any.dim any.dims arange arange.start arange.start_step argmax argmin as_strided as_strided_scatter asin
        asinh atan atan2 atanh baddbmm bernoulli bernoulli.p bincount bitwise_and.Tensor bitwise_left_shift.Tensor
        bitwise_not bitwise_or.Tensor bitwise_right_shift.Tensor bitwise_xor.Tensor bmm bucketize.Tensor cat ceil celu
        clamp clamp.Tensor clamp_max clamp_max.Tensor clamp_min clamp_min.Tensor clone complex constant_pad_nd
        copysign.Tensor cos cosh count_nonzero count_nonzero.dim_IntList cummax cummin cumprod cumsum deg2rad detach
        diag_embed diagonal diagonal_scatter digamma dist div.Tensor div.Tensor_mode dot embedding empty.memory_format
        empty_like empty_strided eq.Scalar eq.Tensor erf erfc erfinv exp exp2 expm1 eye eye.m fill.Scalar flip floor
        floor_divide fmax fmin fmod.Tensor frac frexp.Tensor full full_like gather gcd ge.Scalar ge.Tensor gt.Scalar
        gt.Tensor hardshrink heaviside histc hypot i0 igamma igammac index_add index_copy index_fill.int_Scalar
        index_fill.int_Tensor index_put index_reduce index_select isin.Tensor_Tensor isinf isnan isneginf isposinf
        kthvalue lcm ldexp.Tensor le.Scalar le.Tensor lerp.Scalar lerp.Tensor lgamma linspace log log10 log1p log2
        logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit logspace logsumexp
        lt.Scalar lt.Tensor masked_fill.Scalar masked_fill.Tensor masked_scatter masked_select max max.dim maximum mean
        mean.dim median median.dim min min.dim minimum mm mode mul.Tensor mv mvlgamma nan_to_num nanmedian
        nanmedian.dim nansum native_batch_norm native_dropout native_group_norm native_layer_norm ne.Scalar ne.Tensor
        neg nextafter nonzero nonzero_static ones ones_like permute pixel_shuffle pixel_unshuffle polar polygamma
        pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor prod prod.dim_int rad2deg rand rand_like randint randint.low
        randint_like randint_like.low_dtype randn randn_like reciprocal relu remainder.Scalar remainder.Tensor renorm
        repeat_interleave.Tensor roll rot90 round round.decimals rsqrt rsub.Scalar rsub.Tensor scalar_tensor
        scatter.reduce scatter.src scatter.value scatter_add scatter_reduce.two searchsorted.Tensor select.int
        select_scatter sgn sigmoid sign signbit sin sinc sinh slice_scatter sort sort.stable split.Tensor
        split_with_sizes sqrt squeeze squeeze.dim squeeze.dims stack std.correction std_mean.correction sub.Tensor sum
        sum.dim_IntList t take tan tanh threshold topk trace transpose.int tril tril_indices triu triu_indices trunc
        unbind.int unsafe_split.Tensor unsqueeze var.correction var_mean.correction vdot view_as_complex view_as_real
        where.self xlogy.Tensor zeros zeros_like""",
    "torch.nn.functional": """
        avg_pool2d avg_pool3d gelu glu hardsigmoid hardswish hardtanh leaky_relu mish silu softplus softshrink""",
    "torch.special": """
        special_entr special_erfcx special_i0e special_i1 special_i1e special_log_ndtr special_ndtri special_xlog1py
        special_zeta""",
    "torch.linalg": """
        linalg_cholesky_ex linalg_cross linalg_eig linalg_inv_ex linalg_lu linalg_lu_factor_ex linalg_lu_solve
        linalg_matrix_exp linalg_qr linalg_solve_triangular linalg_vector_norm""",
    "": """
        add_.Tensor clamp_ copy_ div_.Tensor exp_ expand fill_.Scalar fill_.Tensor index_put_ masked_fill_.Scalar
        mul_.Tensor new_empty new_full new_ones new_zeros relu_ repeat scatter_.src scatter_.value scatter_add_ sqrt_
        sub_.Tensor unfold view zero_""",
}
"""The home of a function (empty: a method) -> the aten operators that take the same arguments; without an overload, the
default one."""

_FORMS = """
aten._adaptive_avg_pool2d.default(x, output_size) -> torch.nn.functional.adaptive_avg_pool2d(x, output_size)
aten._log_softmax.default(x, dim, half_to_float=False) -> torch.log_softmax(x, dim)
aten._softmax.default(x, dim, half_to_float=False) -> torch.softmax(x, dim)
aten._to_copy.default(x, *, dtype) -> .to(x, dtype)
aten._to_copy.default(x, *, device) -> .to(x, device)
aten._to_copy.default(x, *, dtype, device) -> .to(x, device, dtype)
aten.elu.default(x, alpha) -> torch.nn.functional.elu(x, alpha)
aten.elu.default(x, alpha, scale=1, input_scale=1) -> torch.nn.functional.elu(x, alpha)
aten.max_pool2d_with_indices.default(x, size, stride, padding, dilation, ceil_mode) -> \
torch.nn.functional.max_pool2d(x, size, stride, padding, dilation, ceil_mode, return_indices=True)
aten.max_pool3d_with_indices.default(x, size, stride, padding, dilation, ceil_mode) -> \
torch.nn.functional.max_pool3d(x, size, stride, padding, dilation, ceil_mode, return_indices=True)
aten.mse_loss.default(x, target) -> torch.nn.functional.mse_loss(x, target)
aten.mse_loss.default(x, target, reduction=1) -> torch.nn.functional.mse_loss(x, target)
aten.reflection_pad1d.default(x, pad) -> torch.nn.functional.pad(x, pad, mode='reflect')
aten.reflection_pad2d.default(x, pad) -> torch.nn.functional.pad(x, pad, mode='reflect')
aten.replication_pad1d.default(x, pad) -> torch.nn.functional.pad(x, pad, mode='replicate')
aten.replication_pad2d.default(x, pad) -> torch.nn.functional.pad(x, pad, mode='replicate')
aten.sym_numel.default(x) -> .numel(x)
aten.sym_size.int(x, dim) -> .size(x, dim)
aten.sym_storage_offset.default(x) -> .storage_offset(x)
aten.sym_stride.int(x, dim) -> .stride(x, dim)
prims.convert_element_type.default(x, dtype) -> .to(x, dtype)
prims.iota.default(length, *, start=0, step=1, dtype, device, requires_grad=False) -> \
torch.arange(length, dtype=dtype, device=device)
"""
"""Calls with other arguments. A name stands for a given argument; `name=value` must be given with that value; all named
arguments must be given, except the last ones. The first form that fits is used. Forms of prims give the same call only
after Inductor's decompositions."""

_INDEXED = ("aten.slice.Tensor", "aten.index.Tensor")
_CONVOLUTION = "aten.convolution.default"
_WHOLE = 9223372036854775807
_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "pin_memory": (None, False),
    "layout": (None, "torch.strided", {"layout": "strided"}),
    "dtype": (None,),
    "device": (None,),
    "memory_format": (None,),
}
"""Keyword arguments that can be left out -> their default values."""


def plain_call(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> PlainCall | None:
    """The plain form of a call of the operator `target` ("aten.relu.default"); None where there is none.

    Arguments are those of a graph, or of a record (encoded, see dumps.schema); the result contains them unchanged.
    """
    said = {name: value for name, value in kwargs.items() if not _says_nothing(name, value)}
    if target in _INDEXED:
        return _indexed(target, args, said)
    if target == _CONVOLUTION:
        return _convolution(args) if not said else None
    if (call := names().get(target)) is not None:
        return PlainCall(call, list(args), said) if args or not call.startswith(".") else None
    for form in _forms().get(target, ()):
        if (plain := form.of(args, said)) is not None:
            return plain
    return None


@cache
def names() -> dict[str, str]:
    """Operator -> the plain call that takes the same arguments."""
    by_operator: dict[str, str] = {}
    for home, words in _HOMES.items():
        for word in words.split():
            name, _, overload = word.partition(".")
            prefix = f"{home.removeprefix('torch.')}_" if home in ("torch.special", "torch.linalg") else ""
            by_operator[f"aten.{name}.{overload or 'default'}"] = f"{home}.{name.removeprefix(prefix)}"
    return by_operator


def operators() -> list[str]:
    """All operators that have a plain form."""
    return [*names(), *_forms(), *_INDEXED, _CONVOLUTION]


class _CallForm(NamedTuple):
    """One line of _FORMS. `must`: the values that arguments must have; `out`: (keyword or "", name or constant)."""

    places: tuple[str, ...]
    named: tuple[str, ...]
    must: dict[str, Any]
    call: str
    out: tuple[tuple[str, str], ...]

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> PlainCall | None:
        known = dict(zip(self.places, args, strict=False))
        if len(args) > len(self.places) or set(kwargs) - {*self.places, *self.named} or set(known) & set(kwargs):
            return None
        known.update(kwargs)
        if any(name not in known for name in (*self.must, *self.named)):
            return None
        if any(known[name] != value or type(known[name]) is not type(value) for name, value in self.must.items()):
            return None
        plain, named, missing = list[Any](), dict[str, Any](), False
        for keyword, name in self.out:
            if not name.isidentifier() or name in ("True", "False"):
                named[keyword] = syntax.literal(name)
            elif name not in known:
                missing = True
            elif keyword:
                named[keyword] = known[name]
            elif missing:
                return None
            else:
                plain.append(known[name])
        return PlainCall(self.call, plain, named) if plain else None


@cache
def _forms() -> dict[str, list[_CallForm]]:
    by_target: dict[str, list[_CallForm]] = {}
    for line in _FORMS.strip().splitlines():
        target, given, call, wanted = re.fullmatch(r"([\w.]+)\((.*)\) -> ([\w.]+)\((.*)\)", line).groups()  # type: ignore[union-attr]
        before, _, behind = given.partition("*, ")
        must = {name: syntax.literal(value) for name, value in re.findall(r"(\w+)=([^,]+)", given)}
        places, named = (tuple(re.findall(r"(\w+)(?:=[^,]+)?(?:, |$)", part)) for part in (before, behind))
        out = tuple((left, right) for left, right in re.findall(r"(?:(\w+)=)?([^,]+)(?:, |$)", wanted))
        by_target.setdefault(target, []).append(_CallForm(places, named, must, call, out))
    return by_target


def _indexed(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> PlainCall | None:
    """The indexing form of a slice or index: `x[:, 1:3]` or `x[index]`."""
    if target == "aten.index.Tensor":
        if kwargs or len(args) != 2 or not isinstance(args[1], Sequence) or isinstance(args[1], str):
            return None
        indices = cast("Sequence[Any]", args[1])
        return PlainCall(INDEX, [args[0], *(Slice() if index is None else index for index in indices)], {})
    given = dict(zip(("x", "dim", "start", "end", "step"), args, strict=False)) | dict(kwargs)
    dim = given.get("dim", 0)
    if type(dim) is not int or dim < 0 or "x" not in given:
        return None
    bounds = ((given.get("start"), 0), (given.get("end"), _WHOLE), (given.get("step", 1), 1))
    part = Slice(*(None if type(bound) is int and bound == usual else bound for bound, usual in bounds))
    return PlainCall(INDEX, [given["x"], *[Slice()] * dim, part], {})


def _convolution(args: Sequence[Any]) -> PlainCall | None:
    """The form of a convolution: `torch.conv2d` and the like; a transposed one, or one with symbolic sizes, keeps all
    its arguments."""
    if len(args) != 9:
        return None
    x, weight, bias, stride, padding, dilation, transposed, output_padding, groups = args
    plain = transposed is False and all(
        isinstance(given, list) for given in (stride, padding, dilation, output_padding)
    )
    if not plain or len(stride) not in (1, 2, 3) or any(given != 0 for given in output_padding):
        return PlainCall("torch.convolution", list(args), {})
    some: list[tuple[Any, list[Any]]] = [(bias, [None]), (stride, [1]), (padding, [0]), (dilation, [1]), (groups, [1])]
    while some and all(given in some[-1][1] for given in _listed(some[-1][0])):
        some.pop()
    return PlainCall(f"torch.conv{len(stride)}d", [x, weight, *(given for given, _ in some)], {})


def _listed(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _says_nothing(name: str, value: Any) -> bool:
    return name in _DEFAULTS and any(
        str(value) == default if isinstance(default, str) else type(value) is type(default) and value == default
        for default in _DEFAULTS[name]
    )
