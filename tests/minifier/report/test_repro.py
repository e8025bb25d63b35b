"""Whole programs: short, clean, executable, and asking for the recorded failure and no other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from graphdbg.dumps.program.case import GraphFacts
from graphdbg.dumps.program.entering import ambient_lines, config_lines
from graphdbg.dumps.program.repro import Script
from graphdbg.dumps.program.suite import death_of
from graphdbg.dumps.program.text import CannotExpressError
from graphdbg.dumps.schema import Ambient, DefinitionRecord, GraphRecord, InputRecord
from graphdbg.minifier.report.trying import candidates
from graphdbg.toolkit.isolation.fresh import LIMIT_S
from graphdbg.toolkit.verdicts.signature import Signature

from ...dumps.graphs import MemoryTensors
from .cases import ACCURACY, CRASH, call, case_of, node, record_of, relu_record, stored, tensor

FAILURES = {
    "accuracy": ACCURACY,
    "crash": CRASH,
    "nan": Signature("nan", "compare", detail="nan"),
    "stride": Signature("metadata", "compare", detail="stride"),
    "dtype": Signature("metadata", "compare", detail="dtype"),
    "missing": Signature("nan", "compare", detail="no nan"),
    "zero": Signature("accuracy", "compare", detail="signed zero"),
    "rounding": Signature("accuracy", "compare", detail="rounding", size=1e-4),
    "mutation": Signature("metadata", "compare", detail="mutation"),
    "alias": Signature("metadata", "compare", detail="alias"),
    "signal": Signature("signal", "run", detail="SIGSEGV"),
    "hang": Signature("hang", "compile"),
}


def first(record: GraphRecord, failure: Signature = ACCURACY, **more: object) -> Script:
    """The plainest program."""
    return next(candidates(case_of(record, failure, **more)))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.parametrize("stage", ["forward", "dynamo"])
def test_programs_are_short_and_clean(kind: str, stage: str, tmp_path: Path) -> None:
    for number, script in enumerate(candidates(case_of(relu_record(stage=stage), FAILURES[kind]))):
        assert len(script.text.splitlines()) <= 60
        path = tmp_path / f"repro{number}.py"
        path.write_text(script.text)
        compile(script.text, str(path), "exec")
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        pytest.skip("ruff is not installed")
    done = subprocess.run(
        [ruff, "check", "--isolated", "--no-cache", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_it_imports_torch_alone() -> None:
    for kind, failure in FAILURES.items():
        text = first(relu_record(), failure).text
        roots = {
            line.split()[1].split(".")[0] for line in text.splitlines() if line.strip().startswith(("import ", "from "))
        }
        assert roots <= {
            "torch",
            "faulthandler",
            "sys",
            "json",
            "math",
            "operator",
            "os",
            "pathlib",
            "subprocess",
            "traceback",
        }, kind


def test_the_first_lines_say_what_it_shows() -> None:
    head = first(relu_record(versions={"torch": "2.13.0"})).text.split('"""')[1]
    assert head.startswith("torch.compile gives a wrong result: repro for stage forward, rung inductor.")
    assert "Shows: relative error 1" in head
    assert "Seen on torch 2.13.0." in head
    assert "Exit code: 1 while the bug is there" in head
    gradient = Signature("accuracy", "compare", size=1.0, raw="grad of x: relative error 1")
    assert "Shows: relative error 1 of a gradient" in first(relu_record(), gradient).text


def test_a_hostile_message_cannot_leave_the_docstring() -> None:
    raw = 'x"""\nimport os\n"""\\'
    text = first(relu_record(), Signature("crash", "compile", 'E"""', raw, raw=raw)).text
    compile(text, "repro.py", "exec")
    assert not any(line.startswith("import os") for line in text.splitlines())


def test_plain_torch_compile_is_tried_before_the_inner_compiler() -> None:
    tried = [(script.entry, script.way) for script in candidates(case_of(relu_record()))]
    assert tried == [("torch.compile", "seeded"), ("compile_fx_inner", "seeded"), ("as recorded", "seeded")]
    assert [s.entry for s in candidates(case_of(relu_record(stage="dynamo")))] == ["torch.compile", "as recorded"]


def test_seeded_inputs_are_tried_before_stored_ones() -> None:
    store = MemoryTensors()
    inputs = {"x": InputRecord(name="x", value=tensor(4, 8), stored=stored(store, bytes(128), tensor(4, 8)))}
    tried = [(s.entry, s.way) for s in candidates(case_of(relu_record(), inputs=inputs, store=store))]
    assert tried == [
        ("torch.compile", "seeded"),
        ("torch.compile", "literal"),
        ("compile_fx_inner", "seeded"),
        ("compile_fx_inner", "literal"),
        ("as recorded", "seeded"),
        ("as recorded", "literal"),
    ]


def test_dynamic_graphs_stay_dynamic() -> None:
    from graphdbg.dumps.schema import SymbolRecord

    script = first(relu_record(symbols=[SymbolRecord("s0", hint=3)]))
    assert "dynamic=True" in script.text


def test_another_rung_names_its_stock_backend() -> None:
    assert 'backend="aot_eager_decomp_partition"' in first(relu_record(), rung="decomposed").text
    assert 'backend="aot_ts"' in first(relu_record(), rung="torchscript").text
    lazy = first(relu_record(), rung="lazy")
    assert lazy.entry == "as recorded"
    assert "moved = [x.to(device) for x in inputs]" in lazy.text
    wanted = record_of({"x": tensor(2, requires_grad=True)}, [], ["x"], stage="dynamo")
    with pytest.raises(CannotExpressError, match="lazy"):
        first(wanted, rung="lazy")


def test_a_rung_without_a_backend_is_looked_for_under_inductor_then_by_settings() -> None:
    texts = [
        candidate.text
        for candidate in candidates(case_of(relu_record(), rung="inductor_nofuse"))
        if candidate.entry == "torch.compile"
    ]
    assert ["max_fusion_size" in text for text in texts] == [False, True]
    modes = [candidate.text for candidate in candidates(case_of(relu_record(), rung="lite"))]
    assert '**({"mode": "lite"} if FAULT else {"backend": "eager"})' in modes[0] and len(modes) == 3
    assert all('list_mode_options("lite")' in text for text in modes[1:])


@pytest.mark.parametrize("kind", ["error", "nondeterministic"])
def test_a_failure_without_a_check_is_named(kind: str) -> None:
    with pytest.raises(CannotExpressError, match=kind):
        first(relu_record(), Signature(kind))  # type: ignore[arg-type]


def test_settings_are_assigned_or_named() -> None:
    lines, notes = config_lines(
        {
            "inductor": {
                "cpp.simdlen": 256,
                "max_autotune": True,
                "post_grad_custom_pre_pass": {"opaque": ["function", "f"]},
                "x": {"tuple": [1, "a"]},
                "d": {"dict": [["k", {"float": "inf"}]]},
                "fx_graph_cache": False,
            },
            "dynamo": {"recompile_limit": 48, "use_numpy_random_stream": True},  # no part of what a graph becomes
            "other": {"y": 1},
        },
        trusted=True,
    )
    assert lines == [
        "torch._inductor.config.cpp.simdlen = 256",
        "torch._inductor.config.max_autotune = True",
        'torch._inductor.config.x = (1, "a",)',
        'torch._inductor.config.d = {"k": float("inf")}',
    ]
    assert notes == [
        "the setting torch._inductor.config.post_grad_custom_pre_pass, which is not a plain value",
        "the setting other.y",
    ]
    with pytest.raises(CannotExpressError):
        config_lines({"inductor": {"x = 1; import os; y": 1}}, trusted=True)


def test_ambient_state_is_restored_where_it_differs() -> None:
    ambient = Ambient(
        autocast={"cpu": "bfloat16", "cuda": "bfloat16"},
        deterministic=True,
        matmul_precision="high",
        default_dtype="float64",
    )
    lines = ambient_lines(case_of(record_of({}, [], [], stage="dynamo", ambient=ambient)))
    assert lines == [
        "torch.use_deterministic_algorithms(True, warn_only=False)",
        'torch.set_float32_matmul_precision("high")',
        "torch.set_default_dtype(torch.float64)",
        'torch.set_autocast_enabled("cpu", True)',
        'torch.set_autocast_enabled("cuda", True)',
        'torch.set_autocast_dtype("cuda", torch.bfloat16)',
    ]
    forward = ambient_lines(case_of(record_of({}, [], [], stage="forward", ambient=ambient)))
    assert forward[-1] == "torch.set_grad_enabled(False)"
    assert not any("autocast" in line for line in forward)


@pytest.mark.parametrize(("rate", "draws"), [(0.0, False), (0.5, True), (1.0, False)])
def test_a_dropout_that_drops_everything_draws_nothing(rate: float, draws: bool) -> None:
    dropped = call("y", "torch.nn.functional.dropout", node("x"), rate)
    assert GraphFacts(record_of({"x": tensor(2)}, [dropped], ["y"])).is_random is draws


def test_tolerance_and_reference() -> None:
    half = record_of({"x": tensor(2, dtype="float16")}, [], [])
    assert (GraphFacts(half).tolerance, GraphFacts(half).half) == (4e-3, True)
    assert (GraphFacts(relu_record()).tolerance, GraphFacts(relu_record()).half) == (1e-5, False)
    cast = record_of(
        {"x": tensor(2)}, [call("y", "aten._to_copy.default", node("x"), dtype={"dtype": "float16"})], ["y"]
    )
    assert GraphFacts(cast).names_float
    assert "def graph(x, f16=torch.float16):" in first(cast).text
    assert "graph(*[x.double() for x in make_inputs()], f16=torch.float64)" in first(cast).text
    assert "exact = graph(*[x.double() for x in make_inputs()])" in first(relu_record()).text


def test_the_code_of_a_killed_child() -> None:
    assert death_of(FAILURES["signal"]) == -11
    assert death_of(FAILURES["hang"]) == "hang"


@pytest.mark.parametrize(("load", "size", "waits"), [(0, 5, 15), (1, 45, 36), (3, 40, 48), (11, 40, 64), (0, 600, 300)])
def test_a_hang_is_waited_for_longer_where_the_machine_is_busy(
    load: float, size: float, waits: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (float(load), 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    text = first(relu_record(), Signature("hang", "run", size=size)).text
    names: dict[str, Any] = {"os": os}
    exec(next(line for line in text.splitlines() if line.startswith("limit = ")), names)
    assert names["limit"] == waits and 2 * names["limit"] + 120 < LIMIT_S
    assert text.index("x + 1") < text.index("limit = "), "the first compile of a process is not what is waited for"


SET: dict[str, Any] = {"inductor": {"fallback_random": True}}


def test_random_ops_are_drawn_as_eager_draws_them() -> None:
    random = record_of({"x": tensor(2)}, [call("y", "aten.native_dropout.default", node("x"), 0.5, True)], ["y"])
    assert "torch._inductor.config.fallback_random = True" in first(random).text
    assert "import torch._inductor.config" in first(random).text
    assert first(msgspec.structs.replace(random, config=SET)).text.count("fallback_random") == 1
    assert "fallback_random = True" in first(random, rung="decomposed").text
    assert "fallback_random" not in first(random, rung="debug_nop").text
    assert "fallback_random" not in first(random, CRASH).text
    assert "fallback_random" not in first(relu_record()).text
    trained = [call("y", "torch.nn.functional.dropout", node("x"), 0.5)]
    text = first(record_of({"x": tensor(2, requires_grad=True)}, trained, ["y"], stage="dynamo")).text
    assert "torch.randn(y.shape, dtype=torch.float64, generator=own)" in text  # or the backward draws other numbers
    own = record_of({"x": tensor(2)}, [call("y", "prims.inductor_random.default", [2], node("x"), "rand")], ["y"])
    with pytest.raises(CannotExpressError, match="random generator"):
        first(own)
    assert "import torch._inductor.inductor_prims" in first(own, CRASH).text, "it runs before the first compile"
    torchs = call("y", "prims.convert_element_type.default", node("x"), {"dtype": "float64"})
    assert "inductor_prims" not in first(record_of({"x": tensor(2)}, [torchs], ["y"])).text


def test_what_a_module_changes_is_in_no_cache() -> None:
    off = "torch._inductor.config.force_disable_caches = True"
    case = replace(case_of(relu_record(None)), imports=("planted",), off="left out")
    texts = {bool(candidate.case.imports): candidate.text for candidate in candidates(case)}
    assert f"\n{off}" in texts[True], "with and without the module"
    assert off not in texts[False]


def test_a_module_given_as_a_file_is_imported_by_its_name() -> None:
    case = replace(case_of(relu_record(None)), imports=("ops.mine", "/somewhere/planted.py"), needs_imports=True)
    text = next(iter(candidates(case))).text
    assert "import ops.mine  #" in text and "import planted  #" in text and "/somewhere" not in text
    assert "Needs ops.mine, planted where Python finds it (PYTHONPATH)." in text


def test_a_text_that_is_no_program_is_refused() -> None:
    nested: object = 1
    for _ in range(300):
        nested = [nested]
    with pytest.raises(CannotExpressError, match="not a program"):
        first(record_of({"x": tensor(2)}, [call("y", "aten.foo.default", node("x"), nested)], ["y"]), CRASH)


def test_a_pass_of_the_users_comes_along_where_it_is_trusted() -> None:
    key = "post_grad_custom_post_pass"
    program = "import torch\n\n\nclass P:\n    pass\n"
    record = relu_record()
    record.config = {"inductor": {key: {"opaque": ["__main__.P", "<P>"]}}}
    record.definitions = [DefinitionRecord("__main__", "/home/ann/mine.py", program, values={f"inductor.{key}": "P()"})]
    text = next(candidates(replace(case_of(record, ACCURACY), trust=True))).text
    assert "class P:" in text and f"torch._inductor.config.{key} = P()" in text and "mine.py" in text
    untrusted = first(record).text
    assert "class P:" not in untrusted and "which is not a plain value" in untrusted
