"""What is cut out of a program: its operators and passes, what they use, and nothing that trains; and that run again by
trust."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import graphdbg
from graphdbg.dumps import trust
from graphdbg.dumps.definitions import cut, whole
from graphdbg.dumps.errors import EnvironmentLackError
from graphdbg.dumps.torchside import definitions

PROGRAM = """
from __future__ import annotations
import torch, math as m, sys
from torch.library import Library, impl, register_fake
try:
    import triton
except ImportError:
    triton = None
SCALE = 2.0
TABLE = [SCALE, m.pi]
def helper(x):
    return x * TABLE[0]
def train():
    loss = Net()(3); loss.backward(); return loss
class Net: ...
LOSS = train()
lib = Library("mine", "DEF")
lib.define("double(Tensor x) -> Tensor")
def main():
    @torch.library.custom_op("mine::inner", mutates_args=())
    def inner(x: torch.Tensor) -> torch.Tensor:
        return helper(x)
    @inner.register_fake
    def _(x): return torch.empty_like(x)
    swap = Swap(3)
    torch.compile(f, options={"post_grad_custom_post_pass": swap})
    train()
class Swap:
    def __init__(self, n): self.n = n
class Learnt:
    def __call__(self, graph): return LOSS
@impl(lib, "double", "CPU")
def double(x): return helper(x) if triton else x
torch.library.register_autograd("mine::double", lambda ctx, g: g * 2)
torch.library.register_autograd("mine::inner", lambda ctx, g: g * 2)
if __name__ == "__main__":
    main()
"""


def test_operators_and_what_they_use() -> None:
    result = cut(PROGRAM, {"mine"})
    assert result is not None
    assert not result.missing
    compile(result.program, "made", "exec")
    assert result.program.startswith("from __future__ import annotations\nimport math as m\n")
    for wanted in (
        'Library("mine", "DEF")',
        "lib.define",
        "def double",
        "def inner",
        "inner.register_fake",
        "TABLE =",
        "SCALE =",
        "def helper",
        "register_autograd",
        "import triton",
    ):
        assert wanted in result.program, wanted
    assert result.program.index("def inner") < result.program.index('register_autograd("mine::inner"')
    assert result.program.index("lib.define") < result.program.index("def double")
    for left_out in ("train", "main()", "Swap", "backward", "import sys"):
        assert left_out not in result.program, left_out


def test_a_pass_that_is_set_inside_a_function() -> None:
    result = cut(PROGRAM, values={"inductor.post_grad_custom_post_pass": "Swap"})
    assert result is not None
    assert (result.values, result.missing) == ({"inductor.post_grad_custom_post_pass": "swap"}, [])
    assert "swap = Swap(3)" in result.program
    assert "mine" not in result.program


def test_a_pass_that_is_a_lambda() -> None:
    text = (
        "import torch._inductor.config as cfg\ndef count(g): ...\ncfg.post_grad_custom_post_pass = lambda g: count(g)\n"
    )
    result = cut(text, values={"inductor.post_grad_custom_post_pass": "<lambda>"})
    assert result is not None
    assert result.values == {"inductor.post_grad_custom_post_pass": "lambda g: count(g)"}
    assert "def count(g)" in result.program and not result.missing


def test_what_is_computed_by_training_is_missing() -> None:
    result = cut(PROGRAM, values={"inductor.joint_custom_pre_pass": "Learnt"})
    assert result is not None
    assert "train" not in result.program
    assert result.missing == ["LOSS, which the program computes by training (line 16)"]


BUFFERED = """\
import torch

@torch.library.custom_op("bank::turn", mutates_args=("kept",))
def turn(kept: torch.Tensor) -> None:
    kept.copy_(kept.flip(0))

class Net(torch.nn.Module):
    scale = 2.0
    def __init__(self, size):
        super().__init__()
        self.register_buffer("bank", torch.ones(size))
        torch._inductor.config.post_grad_custom_post_pass = tidy

def tidy(graph):
    graph.lint()
"""


def test_a_buffer_of_the_name_of_a_namespace_registers_no_operator() -> None:
    known = cut(BUFFERED, {"bank"})
    assert known is not None
    assert (known.missing, len(known.statements)) == ([], 1)
    assert known.statements[0].startswith('@torch.library.custom_op("bank::turn"')


def test_a_method_sees_the_names_of_its_module_and_not_those_of_its_class() -> None:
    known = cut(BUFFERED, (), {"inductor.post_grad_custom_post_pass": "tidy"})
    assert known is not None
    assert (known.missing, len(known.statements)) == ([], 1)
    assert known.values == {"inductor.post_grad_custom_post_pass": "tidy"}


def test_text_without_any() -> None:
    assert cut(PROGRAM, {"other"}) is None
    assert cut("def f(:", {"mine"}) is None


SCRIPT = """
import sys, torch, graphdbg
FACTOR = int(sys.argv[1])
@torch.library.custom_op("graphdbg_definitions::times", mutates_args=())
def times(x: torch.Tensor) -> torch.Tensor: return x * FACTOR
graph = torch.fx.Graph()
graph.output(graph.call_function(torch.ops.graphdbg_definitions.times.default, (graph.placeholder("x"),)))
graphdbg.save_graph(torch.fx.GraphModule({}, graph), [torch.ones(2)], "case")
print("TRAINING")
"""


PASS = "from passes import Fold\nimport torch._inductor.config as ic\nic.post_grad_custom_post_pass = Fold(3)\n"
MODULES = {
    "passes": "from __future__ import annotations\nimport math\nfrom tools import times\n"
    "class Fold(times):\n    n = math.pi\n",
    "tools": "def times(x): return x\n",
}


@pytest.mark.parametrize("clash", [False, True])
def test_what_the_users_other_modules_define_stands_in_the_place_of_its_import(clash: bool) -> None:
    result = cut(PASS, (), {"inductor.post_grad_custom_post_pass": "Fold"})
    assert result is not None and "from passes import Fold" in result.program
    texts = MODULES | ({"tools": "import other as math\ndef times(x): return math"} if clash else {})
    outcome = whole(result, lambda name: texts.get(name, ""))
    assert outcome.values == {"inductor.post_grad_custom_post_pass": "Fold(3)"}
    compile(outcome.program, "program", "exec")
    assert ("from tools import times" in outcome.program) is clash is ("def times" not in outcome.program)
    assert "class Fold(times)" in outcome.program and "passes" not in outcome.program
    assert whole(result, lambda name: "").program == result.program


def test_a_registration_in_another_module_is_imported() -> None:
    result = cut(PASS, (), {"inductor.post_grad_custom_post_pass": "Fold"})
    text = "import torch\n@torch.library.custom_op('a::b', mutates_args=())\ndef Fold(x): ..."
    assert result is not None and whole(result, lambda name: text) == result


COMPILED = """
import torch
getattr(torch.library, "Libr" + "ary")("graphdbg_compiled", "DEF").define("twice(Tensor x) -> Tensor")  # as C++ does
@torch.library.register_fake("graphdbg_compiled::twice")
def _(x): return torch.empty_like(x)
"""


@pytest.mark.parametrize(("here", "said"), [("native", "which imports native.py"), ("__main__", "it lacks")])
def test_a_module_whose_operators_compiled_code_makes_is_imported(here, said, tmp_path, monkeypatch) -> None:
    file = tmp_path / "native.py"
    file.write_text(COMPILED)
    monkeypatch.setattr(definitions, "_own_files", lambda: [(here, str(file))])
    (known,) = definitions.of_spaces({"graphdbg_compiled"})
    assert (known.program == "import native\n") is (here == "native") is not known.missing
    record = SimpleNamespace(definitions=[known])
    error = definitions.refused(record, "graphdbg_compiled.twice", EnvironmentLackError("node", "is not there", "look"))
    assert said in str(error)


def test_a_pass_may_read_the_file_that_it_was_written_in(tmp_path: Path) -> None:
    (tmp_path / "passes.py").touch()
    files = {"": "graphdbg-sources/", str(tmp_path / "passes.py"): str(tmp_path)}
    with trust.granted():
        for file, begins in files.items():
            module = definitions.run("passes", "KEY = __file__\n", "case", "the pass", file=file)
            assert module.KEY.startswith(begins)


@pytest.mark.long
def test_an_operator_of_the_script_runs_again_by_trust_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    subprocess.run([sys.executable, "train.py", "3"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    saved = graphdbg.load_graph(tmp_path / "case")
    with pytest.raises(EnvironmentLackError, match=r"train\.py defines it\. Add --trust"):
        saved.module()
    mine = list(sys.argv)
    with trust.granted():
        assert torch.equal(saved.module()(torch.ones(2)), torch.full((2,), 3.0))
    assert sys.argv == mine
    assert "TRAINING" not in capfd.readouterr().out
    graphdbg.save_graph(saved.module(), [torch.ones(2)], tmp_path / "again")
    assert graphdbg.load_graph(tmp_path / "again").record.definitions == saved.record.definitions
