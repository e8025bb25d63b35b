"""What is cut of a program of a call."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from graphdbg.minifier.program import cutting
from graphdbg.minifier.program.cutting import ProgramCutting
from graphdbg.toolkit.program.repro import PROGRAM

TEXT = """
import torch
def step(x):
    a = x + 1
    with torch.no_grad():
        if a is None:
            pass
        else:
            b = x * 2
    return (a, b)
def calls():
    T = {}
    x = T['x']
    yield step, (x,)
BACKEND = 'eager'
def main():
    pass
if __name__ == '__main__':
    main()
"""


class Judged(ProgramCutting):
    """A program that fails while it multiplies."""

    def __init__(self, program: Path, deadline: float) -> None:
        self.program, self.deadline, self.text, self.asked, self.before = program, deadline, TEXT, 0, ""

    def fails(self, text: str) -> bool:
        needed = ("b = x * 2", "x = T['x']", "yield")
        return all(part in text for part in needed) and "return (b,)" in text.replace("(a, b)", "(b,)")


def test_statements_blocks_elements_and_sizes_are_cut(tmp_path: Path) -> None:
    text = Judged(tmp_path / "repro.py", float("inf")).run()
    assert not any(part in text for part in ("a = x + 1", "no_grad", "else")) and "return (b,)" in text
    assert "narrow(0" in text and "def main" in text and "yield (step, (x,))" in text


def test_what_judges_in_a_repro_is_left() -> None:
    functions = set(re.findall(r"^def (\w+)", PROGRAM, re.MULTILINE))
    assert functions == {*cutting.KEPT, *cutting.HELPERS, "calls"}
    shown = (
        "import os\nimport sys\nsys.excepthook = unsure\n" + re.findall(r"^os\.environ.*$", PROGRAM, re.MULTILINE)[0]
    )
    assert not [text for text in cutting._deletions(shown) if text.count("\n") < 3]


def test_what_fails_under_every_backend_is_cut_under_its_own_alone(tmp_path: Path) -> None:
    program = tmp_path / "repro.py"
    program.write_text(
        "import sys\nBACKEND = 'inductor'\nunused = 1\ndef main():\n    print('FAILS (values): it is off')\n"
        "    sys.exit(1)\nif __name__ == '__main__':\n    main()\n"
    )
    assert "unused" not in ProgramCutting(program, float("inf")).run()


OTHER = """
import sys
BACKEND = "eager"
def main():
    used = sum([1, 2])
    text = "".join(["Dimension", " out of range"]) if used else "no such dimension"
    print(f"FAILS (error raises IndexError): call 1 of 1: it raises IndexError: {text}, eager raises nothing")
    sys.exit(1)
if __name__ == "__main__":
    main()
"""


def test_what_raises_something_else_fails_another_way(tmp_path: Path) -> None:
    program = tmp_path / "repro.py"
    program.write_text(OTHER)
    cut = ProgramCutting(program, float("inf"))
    assert cut.kind == "error raises IndexError"
    assert cut.fails(OTHER.replace("[1, 2]", "[1]")) and not cut.fails(OTHER.replace("[1, 2]", "[]"))
    said = "failed to run FX node with fake tensors: call_function mm(): got AssertionError('Please convert {}')"
    program.write_text(OTHER.replace('"".join(["Dimension", " out of range"])', repr(said.format("all tensors first"))))
    cut = ProgramCutting(program, float("inf"))
    assert cut.fails(cut.text) and not cut.fails(cut.text.replace("AssertionError('Please convert", "ValueError('no"))


def test_a_call_gives_way_to_what_it_is_given(tmp_path: Path) -> None:
    text = (
        "import torch\nnorm = max\ndef step(x):\n    return torch.relu(norm(x * 2, 1)).sum()\n"
        "def run(compile):\n    torch.manual_seed(0)\n    y = T['x'].narrow(0, 0, 1)\n    compile(step)(y)\n"
    )
    changed = [set(cut.splitlines()) - set(text.splitlines()) for cut in cutting.operands(text)]
    assert [line.strip() for lines in changed for line in lines if "return" in line] == [
        "return torch.relu(norm(x * 2, 1))",
        "return norm(x * 2, 1).sum()",
        "return torch.sum()",
        "return torch.relu(x * 2).sum()",
        "return torch.relu(norm(x, 1)).sum()",
    ]
    assert all("manual_seed(0)" in cut and "T['x'].narrow(0, 0, 1)" in cut for cut in cutting.operands(text))


UNUSED = """
import functools
import torch
import torch.nn
import torch.utils.checkpoint
wraps = functools.wraps
nn = torch.nn
def wrapped(function):
    return wraps(function)
@wrapped
def registered():
    pass
class Net(nn.Module):
    pass
class Other(Net):
    pass
KEPT = functools.partial(print)
def run(compile):
    return Net()
"""


def test_what_nothing_reads_goes_at_once() -> None:
    (left,) = cutting.unused(UNUSED)
    assert "class Other" not in left and "checkpoint" not in left
    assert "class Net(nn.Module)" in left and "nn = torch.nn" in left and "import torch.nn" in left
    assert "def wrapped" in left and "KEPT = " in left  # a decorator and a call may have effects
    assert not list(cutting.unused(left))


def test_the_short_helpers_make_modules_and_put_them_back() -> None:
    text = "def whole(value):\n    pass\ndef rebuilt(kind, state):\n    pass\ndef restore(old, new):\n    pass"
    for _ in cutting.HELPERS:
        text = next(short for short in cutting.shorter(text) if short != text)
    space: dict[str, Any] = {"torch": torch}
    exec(text, space)
    weight, state = torch.nn.Parameter(torch.ones(1, 2)), {"bias": None, "seen": 3}
    assert space["whole"](weight) is weight
    net = space["rebuilt"](torch.nn.Linear, {"_parameters": {"weight": weight}, **state})
    space["restore"](weight, torch.zeros(1, 2))
    assert net(torch.ones(1, 2)).item() == 0.0 and net.seen == 3
    space["restore"](net, space["rebuilt"](torch.nn.Linear, {"seen": 4}))
    assert net.seen == 4
