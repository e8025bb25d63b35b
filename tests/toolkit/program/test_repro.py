"""A call that departs outside its graphs gets a program that shows it, run in fresh processes."""

from __future__ import annotations

import contextlib
import importlib
import os
import pathlib
import re
import runpy
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._dynamo.external_utils import wrap_inline
from torch._dynamo.guards import GuardBuilder
from torch.nn.attention.flex_attention import create_block_mask
from torch.nn.utils import parametrizations

import graphdbg
from graphdbg.dumps.torchside import wrappers
from graphdbg.toolkit.program.comparing import Rounding, kept
from graphdbg.toolkit.program.concluding import shown
from graphdbg.toolkit.program.reach import reach
from graphdbg.toolkit.program.records import ALONE
from graphdbg.toolkit.program.repro import PROGRAM, Rungs
from graphdbg.toolkit.program.run import triage_program
from graphdbg.toolkit.program.source import CannotSayError, Source
from graphdbg.toolkit.program.start import StartState
from tests.toolkit.capture.scaled import Scaled

GUARD = """
import torch
from torch._dynamo import guards
real = guards.GuardBuilder.EQUALS_MATCH
def none(self, guard, *rest, **named):
    return None if "scale" in guard.name else real(self, guard, *rest, **named)
guards.GuardBuilder.EQUALS_MATCH = guards.GuardBuilder.CONSTANT_MATCH = none
scale, T = 2, torch.zeros(8)
def whole(x):  # a name that the repro has, too
    return x * scale + T
@torch.compile(backend="eager")
def step(x):
    return whole(x).sin() + 1
x = torch.ones(8, 8)
for scale in (2, 3):
    step(x)
"""


def made_again(source: Source, text: str, space: dict[str, Any]) -> Any:
    """The value of an expression of a source, as a repro makes it in its globals."""
    helpers = PROGRAM[PROGRAM.index("def rebuilt") : PROGRAM.index("def leaves")].format()
    space |= {"torch": torch, "T": source.tensors, "pathlib": pathlib}
    first = "from __future__ import annotations"
    exec("\n".join([first, *sorted(source.imports), helpers, *source.definitions.values(), *source.lines]), space)
    return eval(text, space)


def test_values_become_text_that_makes_them_again() -> None:
    shared = torch.arange(20.0)
    value = {"a": [1.5, shared, shared[2:7]], "kind": torch.float32, "of": (float("inf"), None)}
    source = Source({})
    source.begin(StartState(reach(lambda value: value, (value,), {})), set())
    name = source.text(value, "value")
    space = {"torch": torch, "T": source.tensors}
    exec("\n".join(source.lines), space)
    result = space[name]
    assert result["kind"] is torch.float32 and result["of"] == (float("inf"), None) and result["a"][0] == 1.5
    result["a"][1][3] = -1
    assert result["a"][2][1] == -1 and shared[3] == 3  # a view stays one, and the user's is another


def test_a_class_of_a_function_s_keeps_what_its_methods_hold() -> None:
    held: list[int] = []

    class Helper:
        def touch(self) -> None:
            held.append(1)

    source = Source({})
    source.begin(StartState(reach(lambda value: value, (Helper,), {})), set())
    name, space = source.text(Helper, "Helper"), {"T": source.tensors}
    exec("\n".join([*source.definitions.values(), *source.lines]), space)
    space[name]().touch()
    assert space["held"] == [1] and not held


def test_what_a_definition_reads_where_it_stands_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_a_user.py").write_text(
        "SIZE, FACTORS = 4, (2.0, 3)\nclass Net:\n    factors = FACTORS\n"
        "    def __init__(self, size=SIZE, *, kind, other=SIZE):\n"
        "        self.size = size\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    net = importlib.import_module("of_a_user").Net
    source, space = Source({}), dict[str, Any]()
    source.begin(StartState(reach(lambda value: value, (net,), {})), set())
    name = source.text(net, "Net")
    exec("\n".join(source.definitions.values()), space)
    assert space[name](kind=1).size == 4 and space[name].factors == (2.0, 3)


class _Backend:
    """A backend with options, as a mode of torch.compile makes one."""

    def __init__(self) -> None:
        self.config, self.asked = {"triton.cudagraphs": True, "max_autotune": True}, list[dict[str, bool]]()

    def __call__(self, gm: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.asked.append(self.config)
        return gm.forward


def test_a_rung_has_no_cuda_graphs_though_the_programs_mode_asks_for_them() -> None:
    backend = _Backend()
    rungs = Rungs(lambda x: x.sin(), SimpleNamespace(callback=backend))
    rungs.fresh("_Backend")(torch.ones(2))
    assert backend.asked == [{"triton.cudagraphs": False, "max_autotune": True}]
    assert backend.config["triton.cudagraphs"]


def test_whole_numbers_are_compared_by_the_share_that_differs() -> None:
    space: dict[str, Any] = {"torch": torch, "TOLERANCE": 0.02, "STRIDES": False}
    exec(PROGRAM[PROGRAM.index("def differs") : PROGRAM.index("def main")].format(), space)
    pixels = torch.full((100,), 200, dtype=torch.uint8)
    other = pixels.clone()
    other[:15] += 1  # by half a percent each: of floats that would be within the tolerance
    assert space["differs"]({"result": pixels}, {"result": other}) == (
        "values",
        "result differs in 0.15 of its elements",
    )
    assert space["differs"]({"result": pixels.float()}, {"result": other.float()}) is None
    other[1:] = pixels[1:]
    assert space["differs"]({"result": pixels}, {"result": other}) is None


class Schedule:
    at, rate = 0, 0.5
    started = time.monotonic()
    shape: tuple[int, int] = (1, 2)


def test_what_a_class_was_given_since_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(globals())
    source.begin(StartState(reach(len, (), {})), set())
    source.text(Schedule, "schedule")
    source.assign_classes()
    assert source.lines == []
    for key, value in {"rate": 0.25, "shape": (3, 4), "named": "x", "started": 0.0}.items():
        monkeypatch.setattr(Schedule, key, value, raising=False)
    source.assign_classes()
    assert source.lines == ["Schedule.shape = (3, 4)", "Schedule.named = 'x'"]
    assert source.of_classes == {"Schedule.shape": "(1, 2)", "Schedule.named": "'x'"}


def test_what_has_no_text_is_named() -> None:
    source = Source({})
    with pytest.raises(CannotSayError, match="numbers_it, a builtins"):
        source.text({"it": iter([1])}, "numbers")


def test_an_attribute_without_a_text_is_left_out_and_named() -> None:
    model = torch.nn.GRU(2, 3)
    model.feed = SimpleNamespace(batches=iter([1]), sizes=[4, 5])
    source = Source({})
    source.begin(StartState(reach(model, (), {})), set())
    text = source.text(model, "model")
    assert source.left_out == "model_feed_batches, a builtins.list_iterator"
    rebuilt = made_again(source, text, {})
    assert vars(rebuilt.feed) == {"sizes": [4, 5]} and {"import weakref", "import types"} <= source.imports
    assert torch.equal(rebuilt(torch.ones(4, 2))[0], model(torch.ones(4, 2))[0])


OF_A_CONFIG = """from collections import Counter, namedtuple
from enum import Flag
from dataclasses import dataclass, field
MISSING = object()
Pair = namedtuple("Pair", "first second", defaults=[None])
class Attributes(dict):
    def __getattr__(self, name):
        return self[name]
def scaled(x, by=MISSING):
    return Pair(x if by is MISSING else x * by)
@dataclass(slots=True)
class Slots:
    width: int = 8
class Kind(Flag):
    SUM, MEAN = 1, 2
@dataclass(frozen=True)
class Config:
    sizes: list = field(default_factory=lambda: [1])
    kind: Kind = Kind.SUM | Kind.MEAN
    counts: Counter = None
    given: Attributes = None
    slots: Slots = None
    def run(self, x):
        return scaled(x * self.given.factor)
"""


def test_what_configurations_are_made_of_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_a_config.py").write_text(OF_A_CONFIG)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("of_a_config")
    config = module.Config([2, 3], counts=Counter("aab"), given=module.Attributes(factor=4), slots=module.Slots(5))
    source = Source({})
    source.begin(StartState(reach(config.run, (), {})), set())
    text = source.text(config, "config")
    rebuilt = made_again(source, text, space := {})
    assert (rebuilt.sizes, rebuilt.slots.width, rebuilt.run(2)) == ([2, 3], 5, (8, None))
    assert (rebuilt.kind.value, rebuilt.counts) == (3, Counter("aab"))
    assert not {"MISSING", "of_a_config"} & (source.spaces.keys() | source.homes)
    config.slots.width, config.given["factor"] = 6, 7
    source.begin(StartState(reach(config.run, (), {})), set())
    again = made_again(source, source.text(config, "config"), space)
    assert again is rebuilt and (rebuilt.slots.width, rebuilt.run(2)) == (6, (14, None))


OF_LAYERS = """from __future__ import annotations
import functools
import logging
import pathlib
import re
from typing import TYPE_CHECKING, Generic, Literal, Optional, TypeVar
import torch
from torch.utils.checkpoint import checkpoint
if TYPE_CHECKING:
    from nowhere import Something
T, LOG, HOME, LINES = TypeVar("T"), logging.getLogger("of"), pathlib.Path("a"), iter([1])
def make_norm():
    by = 1
    def norm(x):
        return x * by
    return norm
Mode = Literal["a", "b"]
TABLE: dict[str, type] = {}
def register(name):
    def wrap(cls):
        TABLE[name] = cls
        return cls
    return wrap
def timed(fn):
    @functools.wraps(fn)
    def inner(*args):
        return fn(*args)
    return inner
@register("layer")
class Layer(torch.nn.Module, Generic[T]):
    mode: Optional[Mode] = "a"
    def __init__(self):
        super().__init__()
        self.log, self.norm = LOG, make_norm()
    def more(self):
        return next(LINES)
    @timed
    def forward(self, x: torch.Tensor, s: Optional[Something] = None) -> Optional[torch.Tensor]:
        kind: Something = 2 if HOME.name == "a" else 3
        return checkpoint(self.norm, x, use_reentrant=False) * kind
"""
OF_TRAINING = """import logging
import torch
from of_layers import TABLE, Layer as Other
LOG, HOME = logging.getLogger("training"), -3
class Layer(torch.nn.Module):
    def forward(self, x):
        return x + 1 if LOG.name == "training" else x ** HOME
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.other = TABLE["layer"](), Layer()
    def forward(self, x):
        return self.layer(x) if isinstance(self.layer, Other) else self.other(x)
"""


def test_annotations_registries_and_decorators_need_nothing_of_the_program_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_layers.py").write_text(OF_LAYERS)
    (tmp_path / "of_training.py").write_text(OF_TRAINING)
    monkeypatch.syspath_prepend(str(tmp_path))
    model = importlib.import_module("of_training").Model()
    source = Source({})
    source.begin(StartState(reach(model, (), {})), set())
    text = source.text(model, "model")
    assert set(source.spaces) == {"TABLE", "HOME", "LINES"} and not source.homes
    for name, (space, key) in list(source.spaces.items()):
        source.assign(name, space[key])
    assert "LINES" not in source.spaces and source.left_out == "LINES, a builtins.list_iterator"
    rebuilt = made_again(source, text, {})
    assert torch.equal(rebuilt(torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(rebuilt.other(torch.ones(2)), torch.full((2,), 2.0)) and rebuilt.layer.log.name == "of"


OF_LAMBDAS = """import torch
by = 3
class Norm:
    def __init__(self, count):
        self.count, self.acts = count, {"up": lambda x: x + by, "down": lambda x: x.clamp(max=0)}
    def update(self, x):
        self.count += 1
def made(by):
    return lambda x: x * by
norm, double = Norm(1), made(2)
alike = [lambda x: x + 1, lambda x: x + 2]
"""


def test_a_parametrized_module_is_written() -> None:
    model = parametrizations.weight_norm(torch.nn.Linear(2, 2))
    source = Source({})
    source.begin(StartState(reach(model, (), {})), set())
    rebuilt = made_again(source, source.text(model, "model"), {})
    x = torch.ones(3, 2)
    torch.testing.assert_close(rebuilt(x), model(x))
    with torch.no_grad():
        rebuilt.parametrizations["weight"].original0.mul_(2)
    assert not torch.equal(rebuilt(x), model(x))


def test_lambdas_have_names_and_an_object_with_update_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_lambdas.py").write_text(OF_LAMBDAS)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("of_lambdas")
    source, both, space = Source({}), {"norm": module.norm, "double": module.double}, dict[str, Any]()
    source.begin(StartState(reach(lambda both: both, (both,), {})), set())
    rebuilt = made_again(source, source.text(both, "both"), space)
    space["by"] = 3
    assert (
        rebuilt["norm"].acts["up"](1),
        rebuilt["norm"].acts["down"](torch.ones(1)).item(),
        rebuilt["double"](4),
    ) == (4, 0, 8)
    module.norm.update(1)
    source.begin(StartState(reach(lambda both: both, (both,), {})), set())
    held = rebuilt["norm"]
    assert made_again(source, source.text(both, "both"), space)["norm"] is held and held.count == 2
    with pytest.raises(CannotSayError, match="<lambda>, which has no def of its own"):
        source.text(module.alike, "alike")


class Doubled(torch.Tensor):
    """A tensor whose additions are doubled."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result * 2 if func in (torch.Tensor.add, torch.add) else result


def test_a_tensor_of_a_class_of_the_programs_is_written_and_its_operators_do_not_count_as_rounding() -> None:
    tensor = torch.ones(3).as_subclass(Doubled)
    source = Source({"Doubled": Doubled})
    source.begin(StartState(reach(tensor, (), {})), set())
    name = source.text(tensor, "x")
    space: dict[str, Any] = {"torch": torch, "Doubled": Doubled}
    exec("\n".join(source.lines), space)
    assert type(space[name]) is Doubled and (space[name] + 1).tolist() == [4.0] * 3
    assert type(kept(tensor)) is torch.Tensor
    Rounding(0).move(tensor)
    assert 0 < float((kept(tensor) - 1).abs().max()) < 1e-5


class Layer(torch.nn.Module):
    """Knows the module that it is of, which hooks its calls."""

    def __init__(self, owner: Any) -> None:
        super().__init__()
        self.owners = [owner]
        self.register_forward_hook(owner.hook)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.owners[0].scale


class Net(torch.nn.Module):
    """Keeps a method of its own, compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.calls = 3.0, 0
        self.layer = Layer(self)
        self.inner = torch.compile(self.half, backend="eager")

    def hook(self, *_: Any) -> None:
        self.calls += 1

    def half(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.layer(x))


OF_TRITON = """import triton, triton.language as tl
@triton.jit
def doubled(v):
    return v * 2
@triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def twice(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, doubled(tl.load(x + at)))
def step(x, out):
    twice[(1,)](x, out, x.numel())
"""


def test_a_kernel_is_written_with_its_decorators_and_what_it_keeps_is_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    (tmp_path / "of_triton.py").write_text(OF_TRITON)
    monkeypatch.syspath_prepend(str(tmp_path))
    step, source = importlib.import_module("of_triton").step, Source({})
    reached = reach(step, (), {})
    assert {box.name for box in reached.boxes} == {"twice"}  # the global, and nothing in it
    source.begin(StartState(reached), set())
    assert source.text(step, "step") == "step" and not source.spaces
    heads = [text.partition("(x")[0].rpartition("\n")[2] for text in source.definitions.values()]
    assert heads[-2:] == ["def twice", "def step"] and "@triton.jit\ndef twice" in source.definitions["twice"]
    assert source.definitions["doubled"].startswith("@triton.jit\ndef doubled(v)")


def test_what_holds_itself_is_written() -> None:
    net, source, space = Net(), Source({}), {"HERE": None}
    for calls in (0, 1):
        source.begin(StartState(reach(net, (), {})), set())
        rebuilt = made_again(source, source.text(net, "net"), space)
        assert rebuilt.calls == calls and rebuilt(torch.ones(1)) == 1.5 and rebuilt.calls == calls + 1
        assert rebuilt.layer.owners == [rebuilt] and not source.left_out
        net.calls += 1


def test_a_tensor_that_holds_others_is_written_by_its_parts() -> None:
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.zeros(1)], layout=torch.jagged)
    value = {"eight": torch.nn.Parameter(Scaled.of(torch.randn(30)), False), "jagged": jagged}
    value |= {"rows": torch.eye(4).to_sparse_csr(), "sparse": torch.eye(4).to_sparse_coo()}
    source = Source({})
    source.begin(StartState(reach(lambda value: value, (value,), {})), set())
    rebuilt = made_again(source, source.text(value, "it"), space := {"HERE": None, "torch": torch})
    assert isinstance(rebuilt["eight"], torch.nn.Parameter) and rebuilt["jagged"].offsets().tolist() == [0, 2, 3]
    exec(PROGRAM[PROGRAM.index("def whole") : PROGRAM.index("def left(")].format(), space)
    assert all(space["whole"](rebuilt[name]).equal(space["whole"](value[name])) for name in value)
    assert kept(rebuilt["eight"]).equal(kept(value["eight"])) and kept(value["eight"]).numel() == 31
    jagged._get_max_seqlen()  # torch keeps it on the CPU, wherever the numbers are
    held = {name: part.to("meta") if part.numel() else part for name, part in wrappers.parts(jagged).items()}
    elsewhere = wrappers.like(jagged, held)
    assert len({part.device for part in held.values()}) == 2
    assert all(whole(elsewhere).is_meta for whole in (wrappers.whole, space["whole"]))


def test_a_zero_without_memory_is_not_moved_by_rounding() -> None:
    cubes = torch.func.hessian(lambda x: (x**3).sum())
    with Rounding(0):
        moved = cubes(torch.ones(3))
    assert (moved - 6 * torch.eye(3)).abs().max() < 1e-4


class _Scheduled:
    """An optimizer's step as a scheduler leaves it."""

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.5)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=2)


def test_a_method_that_a_library_wrapped_is_called_on_its_object() -> None:
    (weight,) = _Scheduled.optimizer.param_groups[0]["params"]
    weight.grad = torch.ones(2)
    source = Source({})
    source.begin(StartState(reach(_Scheduled.optimizer.step, (), {})), set())
    text = source.text(_Scheduled.optimizer.step, "step")
    assert text.endswith(".step") and source.text(torch.optim.SGD.step, "step") == "torch.optim.SGD.step"
    assert source.text(wrap_inline(_Scheduled.optimizer.step), "step") == text  # as Dynamo has it
    rebuilt = made_again(source, text, {"HERE": None})
    rebuilt()
    assert (rebuilt.__self__.param_groups[0]["params"][0] < 1).all() and (weight == 1).all()


@torch.compiler.disable
def left_to_python(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@torch.compile(backend="eager")
def compiled_alone(x: torch.Tensor) -> torch.Tensor:
    return left_to_python(x)


def test_a_decorator_of_the_compiler_stays_and_one_that_compiles_goes() -> None:
    source = Source({})
    source.text(compiled_alone, "it")
    written = "\n".join(source.definitions.values())
    assert "@torch.compiler.disable\ndef left_to_python" in written and "torch.compile(" not in written


def cubed(x: torch.Tensor) -> torch.Tensor:
    return x**3


@torch.vmap
def rows(x: torch.Tensor) -> torch.Tensor:
    return x.sum()


slope = torch.func.grad(torch.func.grad(cubed), argnums=(0,))
region = torch.compiler.nested_compile_region(cubed)


@torch.compiler.nested_compile_region
def decorated(x: torch.Tensor) -> torch.Tensor:
    return x


def of_transforms(x: torch.Tensor) -> Any:
    return slope(x)[0] + rows(x.reshape(1, 1))[0] + region(x) - decorated(x) ** 3


def test_a_call_is_judged_where_what_it_uses_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> str:
        raise ValueError("Cell is empty")

    monkeypatch.setattr(Source, "_content", fails)
    held = [1.0]
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(lambda x, by: x.sin() * by[0], backend="eager")(torch.ones(3), held)
    assert shadowed.verdict.verdict == "ok" and not any("could not be run" in note for note in shadowed.notes)


def test_what_compiling_leaves_on_a_module_is_no_difference() -> None:
    space, model = {"torch": torch, "sys": sys}, torch.nn.Sequential(torch.nn.ReLU())
    exec(PROGRAM[PROGRAM.index("def leaves") : PROGRAM.index("def left")].format(), space)
    before = [name for name, _ in space["leaves"](model, "it")]
    torch.compile(model, backend="eager")
    vars(model).setdefault("_is_torch_compile", True)  # torch 2.11 leaves nothing
    assert [name for name, _ in space["leaves"](model, "it")] == before


def causal(_batch: Any, _head: Any, query: Any, key: Any) -> Any:
    return query >= key


def test_arrays_contexts_and_distributions_are_written() -> None:
    numpy = pytest.importorskip("numpy")
    value = {"mean": numpy.arange(3.0), "by": numpy.float64(0.5), "of": torch.distributions.Normal(1.0, 2.0)}
    value |= {"low": torch.autocast("cpu", torch.bfloat16), "no": contextlib.nullcontext()}
    value["mask"] = create_block_mask(causal, None, None, 128, 128, device="cpu")
    value |= {
        "drawn": torch.Generator().manual_seed(3),
        "spelt": re.compile("a", re.IGNORECASE),
        "half": Fraction("0.5"),
    }
    value["scaler"] = torch.amp.GradScaler("cpu", init_scale=8.0)
    source, space = Source({}), {"HERE": None}
    source.begin(StartState(reach(lambda value: value, (value,), {})), set())
    rebuilt = made_again(source, source.text(value, "it"), space)
    assert rebuilt["mask"].to_dense().equal(value["mask"].to_dense())
    assert rebuilt["mean"].tolist() == [0, 1, 2] and type(rebuilt["by"]) is numpy.float64 and rebuilt["of"].stddev == 2
    assert (
        rebuilt["spelt"] == value["spelt"] and rebuilt["half"] == value["half"] and rebuilt["scaler"].get_scale() == 8
    )
    assert all(
        torch.rand(2, generator=rebuilt["drawn"]).equal(torch.rand(2, generator=value["drawn"])) for _ in range(2)
    )
    with rebuilt["low"], rebuilt["no"]:
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    value["mean"][1] = 7
    source.begin(StartState(reach(lambda value: value, (value,), {})), set())
    assert made_again(source, source.text(value, "it"), space)["mean"] is rebuilt["mean"]
    assert rebuilt["mean"].tolist() == [0, 7, 2]
    assert torch.rand(2, generator=rebuilt["drawn"]).equal(torch.rand(2, generator=value["drawn"]))


def test_globals_of_one_name_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_first.py").write_text("table = ['first']\ndef here():\n    return [*table]\n")
    again = "from of_first import here as before\ntable = ['second']\ndef both():\n    return before() + table\n"
    (tmp_path / "of_second.py").write_text(again)
    monkeypatch.syspath_prepend(str(tmp_path))
    both, source = importlib.import_module("of_second").both, Source({})
    source.begin(StartState(reach(both, (), {})), set())
    text = source.text(both, "both")
    for name, (space, key) in source.spaces.items():
        source.assign(name, space[key])
    assert made_again(source, text, {})() == ["first", "second"]


def test_a_function_that_a_transform_made_of_another_is_made_so_again() -> None:
    source, space = Source({}), dict[str, Any]()
    source.begin(StartState(reach(of_transforms, (), {})), set())
    text = source.text(of_transforms, "it")
    for name, (held, key) in source.spaces.items():
        source.assign(name, held[key])
    assert source.text(wrap_inline(of_transforms), "it") == text
    assert made_again(source, text, space)(torch.tensor(2.0)) == 14  # 6 x, and x
    built = [line for line in source.lines if "torch.func.grad" in line]
    assert built == ["func = torch.func.grad(cubed)", "slope = torch.func.grad(func, argnums=(0,))"]
    written = "\n".join(source.definitions.values())
    assert "region = torch.compiler.nested_compile_region(cubed)" in written and "region\ndef decorated" in written


@pytest.mark.own_server  # the program itself becomes one, which is not lent
@pytest.mark.slow
def test_a_missing_guard_is_shown_by_the_calls_in_order(tmp_path: Path) -> None:
    program = tmp_path / "prog.py"
    program.write_text(GUARD)
    triage = triage_program([sys.executable, str(program)], output=tmp_path / "out", quiet=True)
    assert triage.verdict.failed and triage.verdict.layer == "dynamo"
    assert (triage.repro.says, triage.repro.rate, triage.repro.without) == ("shows", "3 of 3", 0)
    assert Path(triage.repro.path).read_text().count("yield step") == 2


def test_a_missing_guard_between_functions_of_one_def_is_shown_by_the_calls_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = GuardBuilder.EQUALS_MATCH

    def none(self: GuardBuilder, guard: Any, *rest: Any, **named: Any) -> Any:
        return None if "scale" in guard.name else real(self, guard, *rest, **named)

    def scaled_by(scale: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def step(x: torch.Tensor) -> torch.Tensor:
            return (x * scale).sin()

        return step

    monkeypatch.setattr(GuardBuilder, "EQUALS_MATCH", none)
    monkeypatch.setattr(GuardBuilder, "CONSTANT_MATCH", none)
    monkeypatch.setattr(torch._dynamo.config, "capture_scalar_outputs", True)  # as a `patch` in a function does
    with graphdbg.shadow(tmp_path / "found") as shadowed:
        for scale in (2, 3):
            torch.compile(scaled_by(scale), backend="eager")(torch.ones(8, 8))
    assert shadowed.at is not None and shadowed.verdict.layer == "dynamo" and shadowed.at.repro, (
        shadowed.summary,
        shadowed.notes,
    )
    assert (
        "only in the program's own call" in shadowed.verdict.reason and "a guard is missing" in shadowed.verdict.reason
    )
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")  # what the repro sets lasts as long as the test
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(sys, "argv", ["repro.py"])
    monkeypatch.setattr(torch._dynamo.config, "capture_scalar_outputs", False)
    torch._dynamo.reset()
    space = runpy.run_path(str(Path(shadowed.at.repro) / ALONE))
    assert torch._dynamo.config.capture_scalar_outputs, "the repro sets what was in force where it was seen"
    assert space["main"]() == 1 and len(list(space["calls"]())) == 2
    monkeypatch.setattr(sys, "argv", ["repro.py", "--without-fault"])
    assert space["main"]() == 0


def test_what_a_class_of_a_function_closes_over_is_compared_where_the_call_changes_it(tmp_path: Path) -> None:
    counts = {"calls": 0, "sizes": [0]}

    class Meter:
        def hit(self, size: int) -> None:
            counts["calls"] += 1
            counts["sizes"].append(size)

    class Metered(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            Meter().hit(x.shape[0])
            return x + 1

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(Metered(), backend="eager")(torch.ones(3))
    if not shadowed.verdict.failed:
        pytest.skip("this torch keeps what the method changes")
    assert shadowed.at is not None and "counts['calls'] is left as it was, eager makes it 1" in shadowed.verdict.reason
    text = (Path(shadowed.at.repro) / ALONE).read_text()
    assert "lambda: {'x': x, 'counts_sizes': counts_sizes, 'counts': counts}" in text


def test_a_write_that_is_lost_is_shown_by_the_values_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halved(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, training=False).mul_(0.5).sum()

    with graphdbg.shadow(tmp_path / "found") as shadowed:
        torch.compile(halved, backend="aot_eager")(torch.ones(8))
    if not shadowed.verdict.failed:
        pytest.skip("this torch keeps the write into what dropout returns")
    assert shadowed.at is not None and "x is left as it was, eager changes it in place" in shadowed.verdict.reason
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")  # what the repro sets lasts as long as the test
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    program = Path(shadowed.at.repro) / ALONE
    space = runpy.run_path(str(program))
    lost = {"x": torch.ones(8), "y": torch.ones(8) + 1e-6}
    assert not space["STRIDES"] and 0 < space["TOLERANCE"] < 0.2
    assert space["differs"]({**lost, "x": torch.ones(8) / 2}, {**lost, "y": torch.ones(8)})[0] == "values"
    assert space["differs"](lost, {**lost, "y": torch.ones(8)}) is None


OPERATOR = """
from __future__ import annotations
import torch
import torch.ao.quantization.fx._decomposed
@torch.library.custom_op("graphdbg_tests::product", mutates_args=())
def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w
@product.register_fake
def _(x, w):
    return torch.func.vjp(lambda w: x @ w, w)[0]
def step(x):
    known = torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.1, 0, 0, 255, torch.uint8)
    return product(x, x) + torch.ops.graphdbg_tests.product(x, x) + known
x = torch.ones(2, 2)
torch.compile(step, backend="eager")(x)
"""


@pytest.mark.long
def test_operators_of_the_program_are_registered_in_its_repro(tmp_path: Path) -> None:
    program = tmp_path / "prog.py"
    program.write_text(OPERATOR)
    triage = triage_program([sys.executable, str(program)], output=tmp_path / "out", quiet=True)
    assert (triage.verdict.kind, triage.verdict.layer, triage.repro.rate) == ("crash", "dynamo", "3 of 3"), (
        triage.summary
    )
    text = Path(triage.repro.path).read_text()
    assert "def product(x: torch.Tensor, w: torch.Tensor)" in text and "@product.register_fake" in text
    assert "import torch.ao.quantization.fx._decomposed" in text


def test_an_interrupt_ends_the_runs_of_a_repro_and_is_said(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    program, before, began = tmp_path / "repro.py", signal.signal(signal.SIGALRM, interrupt), time.monotonic()
    program.write_text("import time; time.sleep(300)")
    signal.setitimer(signal.ITIMER_REAL, 1.5)
    try:
        repro = shown(program, sys.executable)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert (
        repro.interrupted
        and repro.sentence == f"A repro was written, and interrupted before it was seen to fail: {program}."
    )
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("text", "says", "rate"),
    [
        ("import sys; sys.exit('--without-fault' not in sys.argv)", "shows", "3 of 3"),
        ("import sys; sys.exit(1)", "passes", "3 of 3"),
        ("print('all is well')", "passes", "0 of 1"),
        (
            "import os; assert 'GRAPHDBG' not in os.environ and os.environ['MINE']; raise SystemExit(1)",
            "passes",
            "3 of 3",
        ),
    ],
)
def test_what_the_runs_of_a_repro_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str, rate: str
) -> None:
    monkeypatch.setenv("GRAPHDBG", "1")
    monkeypatch.setenv("MINE", "kept")
    program = tmp_path / "repro.py"
    program.write_text(text)
    repro = shown(program, sys.executable)
    assert (repro.says, repro.rate) == (says, rate), repro.printed


def test_a_repro_finds_what_pip_installed_by_pythonpath_and_no_module_of_the_programs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.py").touch()
    (tmp_path / "installed" / "library-1.dist-info").mkdir(parents=True)
    (tmp_path / "installed" / "library.py").touch()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(tmp_path / name) for name in ("own", "installed")))
    program = tmp_path / "repro.py"
    program.write_text("import sys, library\nsys.exit('--without-fault' not in sys.argv)")
    assert shown(program, sys.executable).says == "shows"
    program.write_text("import sys, mine\nsys.exit('--without-fault' not in sys.argv)")
    repro = shown(program, sys.executable)
    assert repro.says == "passes" and "No module named 'mine'" in repro.printed


def test_a_repro_that_does_not_end_in_the_time_is_no_proof(tmp_path: Path) -> None:
    program = tmp_path / "repro.py"
    program.write_text("import time; time.sleep(60)")
    began = time.monotonic()
    repro = shown(program, sys.executable, began + 1.0)
    assert (repro.says, repro.codes) == ("passes", (None,)) and time.monotonic() - began < 30
    assert "the time was over before all of its runs ended (see --max-time): " in repro.sentence
