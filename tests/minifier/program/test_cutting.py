"""What is cut of a program of a call."""

from __future__ import annotations

import re
from pathlib import Path

from graphdbg.minifier.program import cutting
from graphdbg.minifier.program.cutting import Cutting
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


class Judged(Cutting):
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
    assert "unused" not in Cutting(program, float("inf")).run()
