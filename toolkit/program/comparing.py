# pyright: basic
"""Compares what a rung left of a call with what eager left: values, structure, exceptions, and how far rounding alone
may move them.

Eager is the reference; where eager does not repeat itself, a difference is no evidence. Where a value is off by more
than its dtype's tolerance, eager runs again with its inputs and every result of an operation rounded at random
(stochastic arithmetic, see `judging.comparing.noise`): a difference within that spread is rounding. Changes nothing.

For example: `judged("inductor", eager, got, noise).verdict.verdict` gives `'fails'`.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import msgspec
import torch

from ...dumps.torchside import wrappers
from ...dumps.torchside.values import storage_key
from ...dumps.wording import without_excerpt
from .. import torch_private as t
from ..judging.comparing import ALLOWANCE, EXACT, MULTIPLIES, SUMS, TF32
from ..judging.missing import missing
from ..live.eager import EagerMode
from ..live.execution import same_bits
from ..live.torch_state import is_traced
from ..numerics.comparison import EAGERS, Difference, Noise, all_zero, classes, compare, is_float, rms, wide
from ..numerics.tolerance import tolerance
from ..verdicts.signature import inside
from ..verdicts.verdict import KINDS as KIND_OF
from ..verdicts.verdict import OK, Verdict, Where, fails, skipped
from .reach import is_library
from .records import CallRung

UNSTABLE, MOST = 1e-3, 1e30
"""UNSTABLE: where two eager runs are further apart than this (relative to the size), the value proves nothing. MOST:
the largest distance that is reported."""

_UNITS = 1 << 20
_ROUNDED = "differs as rounding alone may move it"
_ALONE = "differs where an operation of eager's alone makes NaN, or leaves the range of float16"
REQUIRES = " requires grad"
SHARES = " shares the memory of "
WRITTEN = ", written"
"""In keys: that a result requires grad, or is a view of what the call was given or holds; that it was written into."""
NOT_EAGER = "; eager does not"

OF_FAKE = re.compile(r"with fake tensors: .*: got (\w+)\(['\"](.*?)['\"]\)")
"""The exception that an operator raised on fake tensors, as Dynamo repeats it."""

Values = dict[str, Any]
NoiseOf = Callable[[int], Mapping[str, Noise]]
"""Number of samples -> by value, the noise that rounding causes in so many samples."""
SAMPLES = 3
Levels = dict[tuple[str, str], tuple[float, float]]
"""(part, value) -> the spread that rounding caused in an earlier call: RMS and largest element, each relative to the
value's size."""


class Left(NamedTuple):
    """What one run left. `values`: by name, in order; `error`: the exception that it raised; `text`: what it printed;
    `strides`: of each result, first those of dimensions longer than one, then all."""

    values: Values
    error: BaseException | None = None
    text: str = ""
    seconds: float = 0.0
    strides: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def restrided(self, eager: Left) -> str:
        """A sentence about the first result whose strides differ from eager's; "" where none differs."""
        for name, (matter, have) in self.strides.items():
            matters, want = eager.strides.get(name, (matter, have))
            if matter != matters:
                return f"the strides of {name} are {have}, eager's are {want}"
        return ""


def kept(value: Any) -> Any:
    """A snapshot of a value that later writes do not change: a clone of a tensor; a float as a float32 tensor; plain
    values and tuples as they are; of anything else a text with its class."""
    if isinstance(value, torch.Tensor):
        with t.look_up("DisableTorchFunction")():  # a class of the program's own may change what its operators do
            return wrappers.whole(value.detach()).clone()
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float32, device="cpu")
    if isinstance(value, (int, str, bytes, bool, type(None), complex, tuple)):
        return value
    if type(value).__module__ == "numpy":
        with contextlib.suppress(TypeError, ValueError, RuntimeError):  # a dtype that torch lacks
            return torch.tensor(value, device="cpu")
    return f"a {type(value).__qualname__}"


def apart(want: Any, have: Any) -> float:
    """The distance of two values: for floats the RMS difference relative to `want`'s RMS, for other dtypes the share of
    elements that differ; 1 where only one of them is NaN or infinite (except where float16 in eager overflows, which a
    fused kernel may avoid)."""
    if not isinstance(want, torch.Tensor) or not isinstance(have, torch.Tensor):
        return 0.0 if type(want) is type(have) and want == have else 1.0
    if want.shape != have.shape:
        return 1.0
    if want.is_meta or have.is_meta:
        return 0.0
    have = have.to(want.device)
    if not want.numel() or same_bits(want, have):
        return 0.0
    if not is_float(want):
        return float((want != have).to(torch.float64).mean())
    exact = torch.float64 if want.dtype == torch.float64 else torch.float32
    exact = torch.promote_types(want.dtype, exact)
    wanted, other = want.to(exact), have.to(exact)
    known = torch.isfinite(wanted) & torch.isfinite(other)
    if not bool(known.all()):
        if not bool(known.any()) or bool((classes(wanted) != classes(other)).any()):
            return 1.0
        wanted, other = wanted[known], other[known]
    scale, off = float(rms(wanted)), float(rms(other - wanted))
    if not math.isfinite(scale + off):  # the squares leave the range of float32
        scale, off = float(rms(wanted.double())), float(rms(other.double() - wanted.double()))
    return off / (scale or 1.0)


def unsteady(eager: Values, again: Values) -> dict[str, float]:
    """The values in which two eager runs differ, with their distance: infinite where a value is missing or has another
    dtype, device or shape."""
    far = {name: min(apart(value, again.get(name)), MOST) for name, value in eager.items()}
    other = [name for name, value in eager.items() if name not in again or not _formed(value, again[name])]
    far |= dict.fromkeys(other, math.inf)
    return {name: distance for name, distance in far.items() if distance > 0.0}


def unrepeated(name: str, far: float, again: Values) -> str:
    """A sentence about a value that eager does not repeat. `far`: its distance, as `unsteady` gives it."""
    shown = name.removesuffix(WRITTEN)
    if not math.isinf(far):
        return f"eager's {shown} differs by {far:.2g} from run to run"
    if name in again:
        return f"eager's {shown} has another form from run to run"
    return f"eager {'leaves' if shown == name else 'changes'} {shown} in one of two runs alone"


def differences(eager: Values, got: Values) -> dict[str, float]:
    """Name -> distance from eager's value, for each float value."""
    return {name: apart(value, got.get(name)) for name, value in eager.items() if is_float(value)}


def judged(
    rung: str,
    key: str,
    part: str,
    eager: Left,
    got: Left,
    loose: Mapping[str, float],
    noise: NoiseOf,
    levels: Levels,
    alone: Callable[[], Values] = dict,
) -> CallRung:
    """Judges one rung and returns its row. `key`: names the rung's layer; `loose`: the values that eager does not
    repeat, with their distance; `noise`: called only for a value beyond its tolerance and beyond the `levels` of
    earlier calls; `alone`: called only where eager's value has NaN or infinities that the rung's lacks, and returns
    eager's values without those that only narrow operations cause (see `Narrow`)."""
    row = CallRung(rung, OK, part, seconds=round(got.seconds, 4))
    if eager.error is not None or got.error is not None:
        row.verdict = _raised(key, eager, got)
        return row
    shared = {name: value for name, value in eager.values.items() if SHARES not in name or name in got.values}
    eager = eager._replace(values=shared)  # eager's dropout at 0 is its input, compiled a copy, which harms nobody
    alias = next((name for name in got.values if SHARES in name and name not in shared), "")  # numbers go before it
    got = got._replace(
        values={name: value for name, value in got.values.items() if SHARES not in name or name in shared}
    )
    if list(eager.values) != list(got.values):
        missing = [name for name in eager.values if name not in got.values]
        extra = [name for name in got.values if name not in eager.values]
        row.value = (missing or extra or [""])[0]
        row.verdict = fails("metadata", key, _left_out(row.value, eager.values, got.values))
        return row
    rounded = ""
    for name, want in eager.values.items():
        have = got.values[name]
        far = apart(want, have)
        if row.error is None or far > row.error:
            row.error, row.value, row.size, row.tolerance = far, name, _size(want), _tolerance(want)
        alike, moves, level = _formed(want, have), loose.get(name, 0.0), levels.get((part, name))
        if (far == 0.0 and alike) or (moves > UNSTABLE and (moves == math.inf or alike)):
            continue
        if level and alike and far <= level[0] and _peak(want, have) <= level[1]:
            rounded = rounded or (f"{name} {_ROUNDED}" if far > (_tolerance(want) or 0.0) else "")
            continue
        difference = _difference(name, want, have, loose, noise, alone)
        if difference is None:
            continue
        if difference.detail != "rounding":
            row.value, row.error, row.size, row.tolerance = name, far, _size(want), _tolerance(want)
            words = _words(name, want, have, difference, row)
            words += all_zero([(value, got.values[other]) for other, value in eager.values.items()], "values")
            words += f"; {_left_out(alias, eager.values, {alias: True})}" if alias.startswith(name + SHARES) else ""
            row.verdict = fails(KIND_OF.get(difference.kind), key, words)
            return row
        rounded = rounded or f"{name} {_ALONE if EAGERS in difference.text else _ROUNDED}"
    if alias:
        row.value, row.verdict = alias, fails("metadata", key, _left_out(alias, eager.values, {alias: True}))
        return row
    if rounded:
        row.verdict = Verdict("rounding", reason=rounded)
        beyond = (row.error or 0.0) > (row.tolerance or 0.0)
        row.rounding = levels[part, row.value][0] if beyond and (part, row.value) in levels else None
    return row


def _left_out(name: str, eager: Values, got: Values) -> str:
    """The sentence about a value that only one of the two runs has."""
    if not name:
        return "what it leaves comes in another order"
    if name.endswith(REQUIRES) or SHARES in name:
        return f"{name}, eager's does not" if name in got else f"{name} with eager alone"
    if name.startswith(("result", "gradient")):
        return f"{name} is missing" if name in eager else f"{name} is there, and not in eager's"
    shown = name.removesuffix(WRITTEN)
    if name in eager:
        does = f"makes it {_short(eager[name])}" if shown == name else "changes it in place"
        return f"{shown} is left as it was, eager {does}"
    becomes = f"becomes {_short(got[name])}" if shown == name else "is changed in place"
    return f"{shown} {becomes}, eager leaves it as it was"


def in_dtypes(eager: Values, got: Values) -> Values:
    """The values of a run that drew other random numbers, with eager's numbers in the dtypes that the run left."""
    both = {name: (eager[name], value) for name, value in got.items() if name in eager}
    cast = {
        name: want.to(have.dtype) if isinstance(want, torch.Tensor) and isinstance(have, torch.Tensor) else want
        for name, (want, have) in both.items()
    }
    return got | cast


def agree(eager: Values, got: Values) -> bool:
    """Whether two runs left the same values, bit for bit."""
    return all(
        name in got and apart(want, got[name]) == 0.0 and _formed(want, got[name]) for name, want in eager.items()
    )


def _peak(want: Any, have: Any) -> float:
    """The largest element-wise difference, relative to the RMS of `want`; infinite where it cannot be measured."""
    if not is_float(want) or not is_float(have) or want.shape != have.shape or not want.numel():
        return math.inf
    far, size = float((have.to(want.dtype) - want).abs().max()), float(rms(want.to(torch.float32)))
    return far / size if size and math.isfinite(far) else math.inf


def _formed(want: Any, have: Any) -> bool:
    if not isinstance(want, torch.Tensor) or not isinstance(have, torch.Tensor):
        return not isinstance(want, torch.Tensor)
    return (want.dtype, want.device, want.shape) == (have.dtype, have.device, have.shape)


def _difference(
    name: str, want: Any, have: Any, loose: Mapping[str, float], noise: NoiseOf, alone: Callable[[], Values]
) -> Difference | None:
    if not isinstance(want, torch.Tensor) or not isinstance(have, torch.Tensor):
        same = type(want) is type(have) and want == have
        return None if same else Difference("accuracy", 0, "", 1.0, "")
    difference = _compared(name, want, have, noise, want)
    if difference is not None and difference.detail in ("no nan", "no inf"):
        difference = _compared(name, want, have, noise, alone().get(name, want))
    allowed = 4.0 * loose.get(name, 0.0)
    if difference is not None and difference.kind == "accuracy" and allowed and apart(want, have) <= allowed:
        return difference._replace(detail="rounding")
    return difference


def _compared(name: str, want: Any, have: Any, noise: NoiseOf, sure: torch.Tensor) -> Difference | None:
    """Compares two tensors. `sure`: eager's value, without NaN and infinities that are no reference: an overflow in
    eager's float16, say, need not occur where operations are fused."""
    truth = wide(want) if is_float(want) else want
    if sure is not want:
        truth = torch.where(truth.isfinite(), truth, wide(sure))
    difference = None
    for samples in (1, SAMPLES):
        difference = compare(
            [truth],
            [want],
            [have],
            noise=lambda _, samples=samples: noise(samples).get(name, Noise()),
            rounding=(0,),
            check=("metadata", "nan", "accuracy"),
        )
        if difference is None or difference.kind != "accuracy" or difference.detail == "rounding":
            break
    return difference


def _words(name: str, want: Any, have: Any, difference: Difference, row: CallRung) -> str:
    if difference.kind == "metadata" and difference.text:
        return f"{name}: {difference.text}"
    if not isinstance(want, torch.Tensor) or not isinstance(have, torch.Tensor):
        return f"{name} is {_short(have)}, eager's is {_short(want)}"
    if want.numel() == 1:
        both = f"{name} is {_short(have)}, eager's is {_short(want)}"
        return f"{both} (tolerance {row.tolerance or 0:.1g}, relative)" if is_float(want) else both
    if difference.kind == "nan" or row.tolerance is None:
        return f"{name}: {difference.text.replace(' and in float64', '')}"  # a call has no float64 run
    return f"{name} is off by {row.error:.2g}, relative to its size (tolerance {row.tolerance:.1g})"


def _short(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        digits = ".7g" if is_float(value) else ""
        return f"{value.item():{digits}}" if value.numel() == 1 else f"a tensor of {_size(value)}"
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."


def _size(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def _tolerance(value: Any) -> float | None:
    return tolerance(value.dtype) if is_float(value) else None


def _raised(key: str, eager: Left, got: Left) -> Verdict:
    full = next((left.error for left in (eager, got) if "CUDA out of memory" in str(left.error)), None)
    if full is not None:  # the copies kept for comparison take memory, too
        return skipped(f"the GPU's memory is not enough for it beside the program's own: {said(full)}")
    if eager.error is None:
        if got.error is not None and (lacking := missing(got.error)):
            return skipped(lacking)
        verdict = fails("crash", key, f"it raises {said(got.error)}{NOT_EAGER}")
        return msgspec.structs.replace(verdict, where=Where(line=line)) if (line := user_line(got.error)) else verdict
    if got.error is None:
        return fails("missing_error", key, f"it raises nothing; eager raises {said(eager.error)}")
    alike = {type(eager.error).__name__, "InternalTorchDynamoError", "TorchRuntimeError", "BackendCompilerFailed"}
    first = str(eager.error).strip().partition("\n")[0]
    own = f"{type(eager.error).__name__}: {first}"  # of a kernel of the program's own, which Inductor compiles itself
    if type(got.error).__name__ in alike or own in str(got.error):
        return OK
    return fails("crash", key, f"it raises {said(got.error)}; eager raises {said(eager.error)}")


def said(error: BaseException | None) -> str:
    """The type of an exception and the first line of its message. For an error in a backend, the line after the one
    that names the backend; for one in an operator's fake function, the error inside Dynamo's explanation."""
    while error is not None and type(error).__name__ == "CompilationError" and (deeper := inside(error)) is not None:
        error = deeper
    text = without_excerpt(str(error))
    lines = [line.strip().rstrip(".") for line in text.splitlines() if line.strip() and not line.endswith(" raised:")]
    inner = OF_FAKE.search(text)
    message = f"{type(error).__name__}: {shorten(lines[0], 160, placeholder=' …')}" if lines else type(error).__name__
    return f"{message} ({inner[1]}: {shorten(inner[2], 160, placeholder=' …')})" if inner else message


def user_line(error: BaseException | None) -> str:
    """The innermost user line that Dynamo was tracing when it raised, as `train.py:19`; "" where there is none."""
    stack = str(error).partition("\nfrom user code:\n")[2].partition("\n\n")[0]
    lines = [at for at in re.findall(r'File "([^"]+)", line (\d+)', stack) if not is_library(at[0])]
    return f"{Path(lines[-1][0]).name}:{lines[-1][1]}" if lines else ""


class Rounding(EagerMode):
    """A mode that perturbs each fresh float result of an operation in place, by as much as rounding could. `products`:
    float32 matrix products by as much as TF32 does, which a GPU uses where the program allows it."""

    def __init__(self, seed: int, products: bool = False) -> None:
        super().__init__()
        self._coarse = MULTIPLIES if products else ()
        drawn = {"generator": torch.Generator().manual_seed(seed), "device": "cpu"}  # whatever the program's default is
        self._units = torch.rand(_UNITS, **drawn).mul_(2).sub_(1)
        self._drawn = lambda below: int(torch.randint(below, (), **drawn))

    def after(self, func: Any, given: Any, output: Any) -> None:
        """Perturbs the results that the operation allocated or wrote into."""
        schema = getattr(func, "_schema", None)  # a higher-order operator has none
        if schema and (func.overloadpacket.__name__ in EXACT or torch.Tag.nondeterministic_seeded in (func.tags or ())):
            return
        mutable = schema and schema.is_mutable
        known = {storage_key(tensor) for tensor in t.tree_leaves(given) if _dense(tensor)}
        for tensor in t.tree_leaves(output):
            if _dense(tensor) and (mutable or storage_key(tensor) not in known):
                coarse = bool(schema) and func.overloadpacket.__name__ in self._coarse
                self.move(tensor, coarse=coarse and tensor.dtype == torch.float32)

    def move(self, tensor: torch.Tensor, given: bool = False, coarse: bool = False) -> None:
        """Perturbs a float tensor in place, invisible to autograd: each element at random (see
        `judging.comparing.noise`), and all together by the error of a sum inside the operation (the mean of a batch
        norm, say). `given`: an input, which was not rounded: halves (kernels compute with them in float32) and whole
        numbers stay."""
        if not _dense(tensor) or (given and tensor.element_size() < 4):
            return
        with t.look_up("DisableTorchFunction")():
            self._move(tensor, given, TF32 if coarse else 0.0)

    def _move(self, tensor: torch.Tensor, given: bool, coarse: float) -> None:
        plain = tensor.detach()
        eps = torch.finfo(plain.dtype).eps
        exact = plain if plain.dtype == torch.float64 else plain.to(torch.float32)
        known = torch.where(torch.isfinite(exact), exact, 0.0)  # an infinity stays one
        size = float(torch.linalg.vector_norm(known)) / math.sqrt(known.numel())
        sums = SUMS * min(eps, torch.finfo(torch.float32).eps) * size if math.isfinite(size) else 0.0
        with torch.no_grad():
            each = sums + (coarse * size if math.isfinite(size) else 0.0)
            by = known.abs().mul_(eps).add_(each).mul_(self._uniform(exact))
            by.add_(known, alpha=coarse * float(self._units[self._drawn(_UNITS)]) if coarse else 0.0)
            by.add_(sums * float(self._units[self._drawn(_UNITS)]))
            tensor.data.copy_(exact + (by.masked_fill_(exact == exact.round(), 0.0) if given else by))

    def _uniform(self, like: torch.Tensor) -> torch.Tensor:
        """Numbers between -1 and 1 in the shape of a tensor, cut from one precomputed store: drawing new ones costs
        more than the operation itself."""
        at = self._drawn(max(1, _UNITS - like.numel()))
        units = self._units[at:] if like.numel() <= _UNITS else self._units.repeat(-(-like.numel() // _UNITS))
        return units[: like.numel()].view(like.shape).to(like.device, like.dtype)


class Narrow(EagerMode):
    """Puts a wider dtype's values for NaN and infinities that an operation would not give there: where it leaves the
    range of float16 (a fused kernel computes in float32) the largest float16, and for a NaN that an operation by itself
    gives (GELU of an infinity in float32)."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wider = t.tree_map(_wider, (args, kwargs or {}))
        output = func(*args, **(kwargs or {}))
        leaves = t.tree_leaves(output)
        exact = getattr(getattr(func, "overloadpacket", None), "__name__", "") in EXACT  # uninitialised memory, say
        dense = [(at, leaf) for at, leaf in enumerate(leaves) if _dense(leaf)]
        narrow = {at: leaf.dtype == torch.float16 for at, leaf in dense if leaf.dtype == torch.float16 or not exact}
        bad = {at: ~leaves[at].isfinite() if half else leaves[at].isnan() for at, half in narrow.items()}
        if any(bool(mask.any()) for mask in bad.values()):
            with contextlib.suppress(Exception), torch.no_grad():  # an operator without a kernel for the wider dtype
                again = t.tree_leaves(func(*wider[0], **wider[1]))
                for at, mask in bad.items():
                    most = torch.finfo(torch.float16).max if narrow[at] else math.inf
                    right = again[at].isfinite() if narrow[at] else ~again[at].isnan()
                    near = again[at].clamp(-most, most).to(leaves[at].dtype)
                    leaves[at].data.copy_(torch.where(mask & right, near, leaves[at].data))
        return output


_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64}


def _wider(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to(_WIDER[value.dtype]) if value.dtype in _WIDER and not is_traced(value) else value
    return _WIDER.get(value, value) if isinstance(value, torch.dtype) else value


def _dense(value: Any) -> bool:
    if not is_float(value) or is_traced(value):
        return False
    plain = not value.is_complex() and value.element_size() > 1 and value.numel() > 0
    return plain and not value.is_meta and not value._is_zerotensor()  # autograd's zero tensors have no memory


def noise_of(eager: Values, samples: list[Values]) -> dict[str, Noise]:
    """Name -> the noise that rounding alone may cause in a value, from the perturbed runs `samples`."""
    by_name: dict[str, Noise] = {}
    for name, want in eager.items():
        if not isinstance(want, torch.Tensor) or want.is_meta:
            continue
        others = [sample[name] for sample in samples if isinstance(sample.get(name), torch.Tensor)]
        others = [sampled for sampled in others if sampled.shape == want.shape]
        if is_float(want):
            far = [(wide(sampled) - wide(want)).abs() for sampled in others]
            flips = max([int((classes(sampled) != classes(want)).sum()) for sampled in others], default=0)
            most = torch.stack(far).amax(0) * ALLOWANCE if far else None
            by_name[name] = Noise(ALLOWANCE * flips, most)
        else:
            by_name[name] = Noise(ALLOWANCE * max([int((sampled != want).sum()) for sampled in others], default=0))
    return by_name


def levels_of(part: str, eager: Values, noise: Mapping[str, Noise]) -> Levels:
    """The noise, relative to the size of each value."""
    levels: Levels = {}
    for name, rounding in noise.items():
        size = float(rms(wide(eager[name]))) if rounding.apart is not None and rounding.apart.numel() else 0.0
        if size and rounding.apart is not None and math.isfinite(far := float(rounding.apart.max())):
            levels[part, name] = float(rms(rounding.apart)) / size, far / size
    return levels


def least(levels: Levels, part: str, name: str) -> float:
    """By how much eager has to differ from run to run in a value to prove nothing, where it is known what rounding does
    to it: kernels that add up in no fixed order move it far less than that."""
    return levels.get((part, name), (0.0, 0.0))[0] / ALLOWANCE / 4
