"""Compilers that link libstdc++ statically: what they build crashes beside torch; packages of ours run."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from torch._inductor import config

from graphdbg.dumps.errors import EnvironmentLackError
from graphdbg.toolkit.compile_fx import Pipeline
from graphdbg.toolkit.compile_fx.entering import compile_ahead_of_time
from graphdbg.toolkit.rungs import cpp_library

pytestmark = pytest.mark.skipif(sys.platform != "linux" or not shutil.which("g++"), reason="no g++ of Linux")

# What torch's runtime does with the device's name when a library is loaded.
REGEX = r"""
#include <regex>
extern "C" int match(const char* name) {
  std::regex wanted("(cpu|cuda)(:([0-9]+))?");
  return std::regex_match(std::string(name), wanted);
}
"""
CALL = "import ctypes, sys, torch\nfor one in sys.argv[1:]: print(ctypes.CDLL(one).match(b'cuda:0'), flush=True)"
STATIC = 'case " $* " in *" -shared "*) exec g++ "$@" -static-libstdc++;; esac\nexec g++ "$@"\n'
NEVER_SHARED = 'case " $* " in *" -l:"*) exit 1;; esac\n' + STATIC


def compiler(folder: Path, body: str) -> str:
    path = folder / "c++"
    path.write_text("#!/bin/sh\n" + body, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def regex(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What uses std::regex, compiled and not linked."""
    folder = tmp_path_factory.mktemp("regex")
    (folder / "regex.cpp").write_text(REGEX, encoding="utf-8")
    subprocess.run(["g++", "-c", "-fPIC", "regex.cpp", "-o", "regex.o"], check=True, cwd=folder)
    return folder / "regex.o"


def linked(regex: Path, folder: Path, *options: str) -> Path:
    library = folder / f"{'_'.join(options).translate(str.maketrans('', '', ':,/')) or 'plain'}.so"
    subprocess.run(["g++", "-shared", str(regex), "-o", str(library), *options], check=True)
    return library


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "own"),
    [
        ((), False),
        (("-static-libstdc++",), True),
        (("-l:libstdc++.so.6", "-static-libstdc++"), False),
        (("-static-libstdc++", "-Wl,--exclude-libs,ALL"), False),  # nobody else sees its symbols
    ],
)
def test_who_holds_its_own(options: tuple[str, ...], own: bool, regex: Path, tmp_path: Path) -> None:
    assert cpp_library.holds_its_own(linked(regex, tmp_path, *options).read_bytes()) is own


def test_what_is_no_library_holds_none() -> None:
    assert not cpp_library.holds_its_own(b"not one")


def test_who_holds_its_own_is_who_fails_beside_torch(regex: Path, tmp_path: Path) -> None:
    right = [
        linked(regex, tmp_path, *options)
        for options in ((), ("-l:libstdc++.so.6", "-static-libstdc++"), ("-static-libstdc++", "-Wl,--exclude-libs,ALL"))
    ]
    wrong = linked(regex, tmp_path, "-static-libstdc++")
    done = subprocess.run(
        [sys.executable, "-c", CALL, *map(str, [*right, wrong])],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout.split() == ["1"] * len(right)
    assert done.returncode < 0, "it is expected to die of a signal"


def test_only_where_the_compiler_needs_it(tmp_path: Path) -> None:
    before = config.aot_inductor.custom_op_libs
    with config.patch("cpp.cxx", ("g++",)), cpp_library.shared_standard_library() as notes:
        assert notes == []
        assert config.aot_inductor.custom_op_libs == before
    static = compiler(tmp_path, STATIC)
    asked = {"cpp.cxx": (static,), "aot_inductor.custom_op_libs": ["mine"]}
    with config.patch(asked), cpp_library.shared_standard_library() as notes:
        assert config.aot_inductor.custom_op_libs == ["mine", ":libstdc++.so.6"]
        assert notes == [
            f"linked to the shared libstdc++.so.6: {static} would have linked it statically, and {cpp_library.CRASHES}"
        ]
    assert config.aot_inductor.custom_op_libs == before
    with config.patch({**asked, "aot_inductor.package_cpp_only": True}), cpp_library.shared_standard_library() as notes:
        assert notes == []


def test_a_compiler_that_cannot_link_the_shared_one_is_named_before_anything_is_built(tmp_path: Path) -> None:
    gm = torch.fx.symbolic_trace(lambda x: (x @ x.t(),))
    never = compiler(tmp_path, NEVER_SHARED)
    with config.patch("cpp.cxx", (never,)), pytest.raises(Exception, match=r"CXX=/usr/bin/g\+\+") as raised:
        compile_ahead_of_time(gm, (torch.ones(4, 8),), path=tmp_path / "model.pt2")
    assert never in str(raised.value)
    result: BaseException | None = raised.value
    while result is not None and not isinstance(result, EnvironmentLackError):
        result = result.__cause__ or result.__context__
    assert result is not None
    assert not (tmp_path / "model.pt2").exists()


@pytest.mark.slow
def test_a_package_built_by_such_a_compiler_runs(tmp_path: Path) -> None:
    x, pipeline = torch.linspace(-1, 1, 32).reshape(4, 8), Pipeline()
    gm = torch.fx.symbolic_trace(lambda x: (x @ x.t(), x.relu()))
    patches = {"cpp.cxx": (compiler(tmp_path, STATIC),), "aot_inductor.compile_wrapper_opt_level": "O0"}
    path = compile_ahead_of_time(gm, (x,), path=tmp_path / "model.pt2", config_patches=patches, pipeline=pipeline)
    assert isinstance(path, Path)
    with zipfile.ZipFile(path) as archive:
        assert {name.partition("/")[0] for name in archive.namelist()} == {"model"}
    torch.testing.assert_close(torch._inductor.aoti_load_package(str(path))(x), gm(x))
    load = next(report for report in pipeline.reports if report.stage == "load")
    assert any(note.startswith("linked to the shared libstdc++.so.6") for note in load.notes)
