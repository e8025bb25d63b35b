"""With an optional package away, or the compiler, the four commands still work or say in a sentence what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .five_nodes import STEPS, play

ABSENT = Path(__file__).parent / "absent"
COMPILERS = ("gcc", "g++", "cc", "c++", "clang", "clang++", "cpp")


def without(*packages: str, path: str | None = None) -> dict[str, str]:
    """An environment in which these packages are absent; `path` in place of PATH."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CXX", "CC")}
    extra = {"WITHOUT": ",".join(packages), "PYTHONPATH": str(ABSENT)}
    return {**kept, **extra, **({"PATH": path} if path is not None else {})}


def path_without_compilers(folder: Path) -> str:
    """A PATH with everything that is on this one but compilers."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for tool in Path(place).glob("*") if Path(place).is_dir() else ():
            compiler = any(part in COMPILERS for part in (tool.name, *tool.name.split("-")))
            if not compiler and not (folder / tool.name).is_symlink():
                (folder / tool.name).symlink_to(tool.absolute())
    return str(folder)


def played(folder: Path, environment: dict[str, str]) -> list[int]:
    done = play(sys.executable, folder, environment)
    assert "this is a defect of graphdbg" not in "".join(step.output for step in done)
    assert "Traceback" not in "".join(step.output for step in done[1:])
    return [step.code for step in done]


@pytest.mark.slow
@pytest.mark.parametrize("package", ["numpy", "triton", "pygraphviz", "textual", "ray"])
def test_an_optional_package_away(package: str, tmp_path: Path) -> None:
    assert played(tmp_path, without(package)) == [code for _, code in STEPS]


@pytest.mark.slow  # `make wheel` plays them where numpy, triton and ray were never installed
def test_all_optional_packages_away(tmp_path: Path) -> None:
    environment = without("numpy", "triton", "pygraphviz", "textual", "textual_serve", "aiohttp", "pydot", "ray")
    assert played(tmp_path, environment) == [code for _, code in STEPS]


@pytest.mark.slow
def test_no_compiler_is_no_verdict_about_torch(tmp_path: Path) -> None:
    environment = without(path=path_without_compilers(tmp_path / "bin"))
    assert shutil.which("g++", path=environment["PATH"]) is None
    work = tmp_path / "work"
    work.mkdir()
    dump, triage, minify, report = play(sys.executable, work, environment)
    assert dump.code == 1  # the program itself needs one
    assert "InvalidCxxCompiler" in dump.output
    assert triage.code == 4
    assert "Nothing was judged: no C++ compiler was found." in triage.output
    assert minify.code == 4
    assert "inductor is skipped, because no C++ compiler was found" in minify.output
    assert report.code == 2  # there is no folder of a minification


PROGRAM = """
from pathlib import Path
import torch
from torch import fx
import graphdbg
from graphdbg.cli import run
from graphdbg.dumps import trust
from graphdbg.toolkit.cutting.spill import read_storage, write_storage

kept = torch.arange(6, dtype=torch.float32)
write_storage(kept[2:], Path("kept"))
assert read_storage(Path("kept"), kept.device).view(torch.float32).equal(kept)

graph = fx.Graph()
graph.output((graph.call_function(torch.ops.aten.relu.default, (graph.placeholder("x"),)),))
graphdbg.save_graph(fx.GraphModule({}, graph), [kept], "case")
trust.bind(Path("case"))  # a child of its own has the variable that hides a package
raise SystemExit(run(["triage", "case", "--rungs", "eager,nop,triton_interpret"]))
"""


@pytest.mark.long
def test_without_numpy_values_are_kept_and_no_layer_is_blamed(tmp_path: Path) -> None:
    """What `minify` keeps of a run, and the rung that does need NumPy."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=without("numpy"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 4, done.stderr
    assert "because Triton's interpreter computes with NumPy, which is not installed" in done.stdout
    assert "No rung fails: eager, nop are right" in done.stdout
