"""What says nothing about torch: a part that is missing, graphdbg's own failure; and what does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

from graphdbg.dumps.errors import EnvironmentLackError
from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.judging.missing import missing
from graphdbg.toolkit.live import eager
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.spec import ReplaySpec
from graphdbg.toolkit.rungs import Rung
from graphdbg.toolkit.verdicts.mismatches import MetadataMismatch


def graph() -> fx.GraphModule:
    result = fx.Graph()
    result.output((result.call_function(torch.ops.aten.relu.default, (result.placeholder("x"),)),))
    return fx.GraphModule({}, result)


class Raising(Rung):
    """A rung whose compile does what a test wants."""

    name = "inductor"

    def __init__(self, build: Any) -> None:
        self._build = build

    def build(self, gm: fx.GraphModule, fake_inputs: Any, spec: ReplaySpec) -> Any:
        return self._build()


def verdict(build: Any) -> str:
    return judge(Live(graph(), [torch.ones(2)], ReplaySpec("inference")), Raising(build)).text


def import_in(package: str, text: str = "import not_there_at_all") -> Any:
    """A function whose code seems to stand in a module of that package."""
    scope: dict[str, Any] = {"__name__": f"{package}.somewhere"}
    exec(compile(f"def build():\n    {text}\n", f"<{package}>", "exec"), scope)
    return scope["build"]


@pytest.mark.parametrize("package", ["graphdbg.toolkit", "torch._inductor", "triton.compiler"])
def test_an_import_that_fails_skips_the_rung(package: str) -> None:
    assert verdict(import_in(package)) == "skipped, because No module named 'not_there_at_all'"


def test_a_library_that_a_killed_compile_left_is_no_crash_and_one_that_lacks_a_symbol_is() -> None:
    left = import_in("torch._inductor", "raise ImportError('/cache/ab/kernel.main.so: file too short')")
    assert verdict(left).startswith("skipped, because /cache/ab/kernel.main.so of the compile cache is cut off; delete")
    wrong = import_in("torch._inductor", "raise ImportError('/cache/ab/kernel.main.so: undefined symbol: kernel')")
    assert verdict(wrong).startswith("crash: ")


def test_an_import_in_a_file_of_the_users_is_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "op.py"
    path.write_text("def build():\n    import not_there_at_all\n")
    scope: dict[str, Any] = {"__name__": "op"}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    assert verdict(scope["build"]).startswith("crash: ")


def test_a_failure_of_graphdbgs_own_skips_the_rung() -> None:
    result = verdict(import_in("graphdbg.toolkit", "{}['key']"))
    assert result.startswith("skipped, because graphdbg itself failed (KeyError: 'key', at toolkit.somewhere:2)")
    assert verdict(import_in("graphdbg.toolkit", "raise RuntimeError('ours')")).startswith(
        "skipped, because graphdbg itself"
    )


def test_what_numpy_raises_for_graphdbg_is_graphdbgs_own() -> None:
    result = verdict(import_in("graphdbg.toolkit", "__import__('numpy').stack([])"))
    assert result.startswith("skipped, because graphdbg itself failed (ValueError")


def test_what_torch_raises_is_a_crash_also_where_graphdbg_calls_it() -> None:
    assert verdict(lambda: torch.ones(2).view(3)).startswith("crash: ")
    assert verdict(lambda: eager.clone_inputs([torch.ones(2)])[0].view(3)).startswith("crash: ")
    assert verdict(import_in("torch._inductor", "raise KeyError('theirs')")).startswith("crash: ")
    assert verdict(import_in("graphdbg.toolkit", "__import__('torch').ones(2).view(3)")).startswith("crash: ")


def test_what_a_rung_raises_in_order_to_report_is_a_verdict() -> None:
    def mismatch() -> None:
        raise MetadataMismatch("relu: size expected [3], got [2]", [])

    assert verdict(mismatch).startswith("metadata: ")
    assert verdict(
        import_in("graphdbg.toolkit", "raise type('Found', (Exception,), {'__module__': __name__})('it')")
    ).startswith("crash: ")


def test_what_the_machine_lacks_is_told() -> None:
    lack = EnvironmentLackError(
        "Triton is not installed", "kernels are written with it", "pip install 'graphdbg[triton]'"
    )
    assert missing(lack) == str(lack)
    assert missing(type("InvalidCxxCompiler", (RuntimeError,), {})("None")).startswith("no C++ compiler was found")
    wrapped = RuntimeError("backend='inductor' raised")
    wrapped.inner_exception = ModuleNotFoundError("No module named 'triton'")  # type: ignore[attr-defined]
    assert missing(wrapped) == "No module named 'triton'"
