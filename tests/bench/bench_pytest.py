"""What `pytest --graphdbg` costs where all is green: a suite that compiles nothing, and one whose tests compile.

    python -m tests.bench.bench_pytest [--rounds 15] [--cases CASES]

Both ways in turns; prints milliseconds of CPU that it adds to a run (of the cheapest quarters, and the median of pairs)
and
the ratio: other work on the machine touches CPU time less than a clock. Where nothing is compiled the runs are of one
process,
as 5 ms are less than what the start of one varies by, and what it imports beside is told; else each has a process of
its own.
--cases: a folder of real bugs with common.py, whose tests pass under Dynamo alone (backend "eager").
Bar: 5 ms where nothing is compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

NOTHING = (
    "import pytest\n@pytest.mark.parametrize('number', range(200))\ndef test_sum(number):\n    assert number + "
    "1 > number\n"
)
COMPILES = """
import pytest, torch
from torch import nn

MODELS = {
    "mlp": (nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), (8, 16)),
    "conv": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), (2, 3, 12, 12)),
    "attention": (nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), (2, 5, 16)),
    "norm": (nn.Sequential(nn.LayerNorm(16), nn.Softmax(-1)), (8, 16)),
}

@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batch", [0, 3])
def test_model(name, batch):
    model, (first, *rest) = MODELS[name]
    x = torch.randn(first + batch, *rest)
    made = torch.compile(model, dynamic=False)(x)
    made.sum().backward()
    torch.testing.assert_close(made, model(x), rtol=1e-2, atol=1e-2)
"""
CASES = """
import sys
sys.path.insert(0, {home!r})
import pytest
from common import child

@pytest.mark.parametrize("case", {cases!r})
def test_case(case):
    said = child(case, "eager")
    assert said["sig"] is None, said
"""


def seconds(folder: Path, *more: str) -> float:
    """CPU time of one run of a suite, which is green, and of what it started."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *more, "test_suite.py"]
    with (folder / "said.txt").open("w") as said:
        process = subprocess.Popen(words, cwd=folder, stdout=said, stderr=said)
        _, code, used = os.wait4(process.pid, 0)
    if code:
        raise SystemExit(f"{words}: {(folder / 'said.txt').read_text()[-3000:]}")
    return used.ru_utime + used.ru_stime


INSIDE = """
import contextlib, io, json, sys, time, pytest
words = ["-q", "-p", "no:cacheprovider", "test_suite.py"]

def run(*more):
    before, began = set(sys.modules), time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        assert pytest.main([*words, *more]) == 0
    return time.process_time() - began, sorted(set(sys.modules) - before)

run()
beside = run("--graphdbg")[1]
pairs = [(run()[0], run("--graphdbg")[0]) for _ in range(int(sys.argv[1]))]
print(json.dumps([pairs, beside]))
"""
"""Run by `python -c` beside a suite."""


def without_torch(folder: Path, rounds: int) -> list[tuple[float, float]]:
    """CPU seconds of runs without and with it, by one process; says what --graphdbg imports."""
    done = subprocess.run(
        [sys.executable, "-c", INSIDE, str(rounds)], cwd=folder, capture_output=True, text=True, check=True
    )
    pairs, beside = json.loads(done.stdout.splitlines()[-1])
    print(f"--graphdbg imports {', '.join(beside) or 'nothing'}")
    return pairs


def main() -> int:
    """Prints a line for each suite; 1 where one that compiles nothing costs more than 5 ms."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cases", type=Path)
    asked = parser.parse_args()
    suites = {"compiles nothing": (NOTHING, asked.rounds), "compiles 8 graphs": (COMPILES, max(asked.rounds // 3, 2))}
    if asked.cases is not None:
        cases = [
            str(path)
            for path in sorted(asked.cases.resolve().glob("[01]*.py"))
            if not path.name.startswith(("010", "034"))
        ]
        suites["real bugs, green"] = (
            CASES.format(home=str(asked.cases.resolve()), cases=cases),
            max(asked.rounds // 5, 2),
        )
    over = False
    for name, (text, rounds) in suites.items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            (folder / "test_suite.py").write_text(text)
            if text is NOTHING:
                pairs = without_torch(folder, rounds)
            else:
                seconds(folder), seconds(folder, "--graphdbg")
                pairs = [(seconds(folder), seconds(folder, "--graphdbg")) for _ in range(rounds)]
        plain, ours = [sorted(column) for column in zip(*pairs, strict=True)]
        few = max(rounds // 4, 1)
        without, added = statistics.mean(plain[:few]), statistics.mean(ours[:few]) - statistics.mean(plain[:few])
        between = statistics.median([b - a for a, b in pairs])
        print(
            f"{name:18} {without:.3f} s a run; --graphdbg adds {added * 1e3:.1f} ms (x{1 + added / without:.4f}), "
            f"median of pairs {between * 1e3:.1f} ms",
            flush=True,
        )
        over = over or (name == "compiles nothing" and added > 0.005)
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
