"""Custom operators in a repro: their own registration where it can be cut out, else a stand-in that is called one."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from graphdbg.dumps.errors import RefusedError
from graphdbg.dumps.program.text import CannotExpressError
from graphdbg.dumps.schema import DefinitionRecord, GraphRecord, SequenceValue
from graphdbg.minifier.report.custom_ops import custom_targets, recorded_source, refuse_others, registered, source_of
from graphdbg.minifier.report.trying import candidates
from graphdbg.toolkit.isolation import fresh
from graphdbg.toolkit.verdicts.signature import Signature

from .cases import call, case_of, node, record_of, relu_record, tensor

NEVER = Signature("crash", "compile", "NeverError", "never", raw="never")

MODULE = """
from __future__ import annotations

import math
import os.path
from math import sqrt, prod
from typing import TYPE_CHECKING
import torch
import msgspec
from torch import Tensor

FACTOR = 2.0
SECRET = "not taken along"


def twice(x):
    return x * FACTOR * math.cos(0.0)


def _register():
    @torch.library.custom_op("report_tests::double", mutates_args=())
    def double(x: Tensor) -> Tensor:
        return twice(x)

    @double.register_fake
    def _(x):
        return torch.empty_like(x)

    @torch.library.custom_op("report_tests::foreign", mutates_args=())
    def foreign(x: Tensor) -> Tensor:
        return x * len(msgspec.json.encode([]))


_register()

if TYPE_CHECKING:
    from collections.abc import Sequence


def total(numbers: Sequence[int]) -> int:
    return sum(numbers)


@torch.library.custom_op("report_tests::annotated", mutates_args=())
def annotated(x: Tensor) -> Tensor:
    return x * total([1, 2])


@torch.library.custom_op("report_tests::lowered", mutates_args=())
def lowered(x: Tensor) -> Tensor:
    return x.sin()


def register_lowering(ops):
    return lambda function: function


@register_lowering([torch.ops.report_tests.double, torch.ops.report_tests.lowered.default])
def _(x):
    return prod(x) + sqrt(x)


@register_lowering(torch.ops.report_tests.foreign)
def _(x):
    return SECRET
"""


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """A user's module that registers two operators."""
    folder = tmp_path_factory.mktemp("ops")
    (folder / "report_test_ops.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield importlib.import_module("report_test_ops")


def using(name: str, *args: object, value: object = None, **kwargs: object) -> GraphRecord:
    """A graph of one call of a custom operator."""
    result = call("y", name, node("x"), *args, value=value or tensor(2, 3), **kwargs)
    return record_of({"x": tensor(2, 3)}, [result], ["y"])


def test_the_registration_is_taken_with_what_it_uses(ops: ModuleType) -> None:
    result = source_of("report_tests::double")
    assert result is not None
    assert result.imports == ("from torch import Tensor", "import math")
    assert [statement.splitlines()[0] for statement in result.statements] == [
        "FACTOR = 2.0",
        "def twice(x):",
        '@torch.library.custom_op("report_tests::double", mutates_args=())',
        "@double.register_fake",
    ]
    text = next(candidates(case_of(using("report_tests.double.default"), NEVER))).text
    assert "STAND-IN" not in text
    assert "SECRET" not in text
    assert "import report_test_ops" not in text
    compile(text, "repro.py", "exec")


def test_its_lowering_is_taken_along(ops: ModuleType) -> None:
    result = source_of("report_tests::lowered")
    assert result is not None
    assert [statement.splitlines()[0] for statement in result.statements] == [
        '@torch.library.custom_op("report_tests::lowered", mutates_args=())',
        "def register_lowering(ops):",
        "@register_lowering([torch.ops.report_tests.double, torch.ops.report_tests.lowered.default])",
    ]
    whole = registered(using("report_tests.lowered.default"))
    assert whole is not None
    assert whole.imports == ("from math import prod, sqrt", "from torch import Tensor")


def test_what_needs_another_package_is_stood_in_for(ops: ModuleType) -> None:
    assert source_of("report_tests::foreign") is None
    assert source_of("report_tests::annotated") is None  # a repro evaluates annotations, that module does not
    assert source_of("report_tests::nobody") is None
    text = next(candidates(case_of(using("report_tests.foreign.default"), NEVER))).text
    assert "STAND-IN: torch.ops.report_tests.foreign" in text.split('"""')[1]
    assert (
        'torch.library.define("report_tests::foreign", "(Tensor x) -> Tensor")' in text
    )  # the schema that this process knows


def test_the_source_in_a_trusted_dump_comes_along() -> None:
    text = 'import torch\nfrom math import pi\nBY = pi\n@torch.library.custom_op("kept::by", mutates_args=())\n'
    text += "def by(x: torch.Tensor) -> torch.Tensor:\n    return x * BY\n"
    record, failure = using("kept.by.default"), case_of(relu_record(), NEVER)
    record.definitions = [DefinitionRecord("__main__", "train.py", text, ["kept"])]
    for trust in (True, False):
        program = next(candidates(replace(failure, record=record, trust=trust))).text
        assert ("STAND-IN" in program) is not trust
        assert ("    return x * BY\n" in program and "from math import pi" in program) is trust
    record.definitions[0].program = f"import sys\n{text}".replace("BY = pi", "BY = float(sys.argv[1])")
    record.definitions[0].argv = ["train.py", "2.5"]
    program = next(candidates(replace(failure, record=record, trust=True))).text
    assert "sys.argv[1:] = ['2.5']  # as in the run" in program
    compile(program, "repro.py", "exec")
    record.definitions[0].program = f"import msgspec\n{text}".replace("BY\n", "msgspec.x\n")
    assert recorded_source("kept::by", record.definitions) is None


def test_a_stand_in_from_the_record_alone() -> None:
    result = registered(using("nolib.scale.default", 0.5, None, [1, 2], flag=True))
    assert result is not None
    assert result.stands_in
    define = '"(Tensor a0, float a1, Tensor? a2, SymInt[] a3, *, bool flag) -> Tensor"'
    assert define in result.block
    assert "return synthesised(torch.empty_like(a0))" in result.block


def test_a_symbolic_argument_of_a_stand_in_has_the_type_of_its_symbol() -> None:
    result = registered(using("nolib.scale.default", *({"sym": [kind, "s0"]} for kind in ("int", "float", "bool"))))
    assert result is not None
    assert '"(Tensor a0, SymInt a1, float a2, bool a3) -> Tensor"' in result.block


def test_sizes_come_from_the_arguments_where_they_are_theirs() -> None:
    result = registered(using("nolib.rows.default", value=tensor(2, 7, dtype="int64")))
    assert result is not None
    assert "torch.empty((a0.size(0), 7,), dtype=torch.int64, device=a0.device)".replace(",)", ")") in result.block
    with pytest.raises(CannotExpressError, match="a size that the operator"):
        registered(using("nolib.rows.default", value=tensor("u0", dtype="int64")))  # type: ignore[arg-type]


def test_calls_whose_result_nobody_uses_or_of_another_number_of_results() -> None:
    unused = call("z", "nolib.scale.default", node("x"), value=tensor(2, 3))
    used = call("y", "nolib.scale.default", node("x"), value=tensor(2, 3))
    for calls in ([unused, used], [used, unused]):
        result = registered(record_of({"x": tensor(2, 3)}, calls, ["y"]))
        assert result is not None and '"(Tensor a0) -> Tensor"' in result.block
    lists = [SequenceValue("list", [tensor(2, 3)] * count) for count in (1, 2)]
    calls = [call(f"s{at}", "nolib.split.default", node("x"), value=value) for at, value in enumerate(lists)]
    with pytest.raises(CannotExpressError, match="different numbers of results"):
        registered(record_of({"x": tensor(2, 3)}, calls, ["s0", "s1"]))


def test_lists_and_writes() -> None:
    pair = SequenceValue("list", [tensor(2, 3), tensor(2, 3)])
    listed = registered(using("nolib.split.default", value=pair))
    assert listed is not None
    assert "-> Tensor[]" in listed.block
    put = call("put", "nolib.put.default", node("x"))
    written = registered(record_of({"x": tensor(2)}, [put], ["x"]))
    assert written is not None
    assert '"(Tensor(w0!) a0) -> ()"' in written.block
    inside = call(
        "y",
        "higher_order.auto_functionalized_v2",
        {"function": "nolib.into.default"},
        x=node("x"),
        _out_base_index=0,
        _all_bases=[node("x")],
        value=SequenceValue("tuple", [tensor(2)]),
    )
    functional = registered(record_of({"x": tensor(2)}, [inside], ["y"]))
    assert functional is not None
    assert '"(*, Tensor x, Tensor(w1!) out) -> ()"' in functional.block


def test_torch_s_own_operators_are_none() -> None:
    assert custom_targets(relu_record()) == {}
    assert registered(relu_record()) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report_tests.double.default", "nolib.scale.default"])
def test_they_run_with_torch_alone(ops: ModuleType, name: str, tmp_path: Path) -> None:
    path = tmp_path / "repro.py"
    path.write_text(next(candidates(case_of(using(name), NEVER, rung="nop"))).text)
    trial = fresh.run_once(path)
    assert trial.code == fresh.GONE, trial.output


def test_a_case_of_an_operator_that_is_not_registered_is_reported_with_a_stand_in() -> None:
    called = call("y", "report_lost.op.default", node("x"), value=tensor(4))
    record = record_of({"x": tensor(4)}, [called], ["y"])
    refuse_others(record)
    assert "STAND-IN" in next(candidates(case_of(record, NEVER))).text
    for target in ("os.system", "aten.from_file.default"):
        called.target = target
        with pytest.raises(RefusedError, match=r"may not be called|not on the list"):
            refuse_others(record)
