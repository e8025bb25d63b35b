"""What users met: one small program of each kind, a command line, and what has to be printed.

A row of TRIALS is a script (recorded once), the words of a command, its exit code, and what its text has and has not.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.zoo.test_unjudgeable import said

HEAD = "\n    import torch\n    import torch.nn.functional as F\n    torch.manual_seed(0)\n"
OPERATOR = (
    HEAD
    + """
    @torch.library.custom_op("zoo_trial::swapped", mutates_args=())
    def swapped(x: torch.Tensor) -> torch.Tensor:
        return x.t().contiguous().t() * 3
    @swapped.register_fake
    def _(x): return torch.empty_like(x, memory_format=torch.contiguous_format)
    if __name__ == "__main__":
        try: torch.compile(lambda x: swapped(x).view(-1) + 1)(torch.rand(3, 4))
        except Exception as error: print(error)
    """
)
TIMED = (
    HEAD
    + """
    import time
    @torch.library.custom_op("zoo_trial::noisy", mutates_args=())
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x * (1 + time.perf_counter_ns() % 1009)
    @noisy.register_fake
    def _(x): return torch.empty_like(x)
    if __name__ == "__main__":
        torch.compile(lambda x: noisy(x.relu()).mean())(torch.ones(4, 16))
    """
)
DEADLY = (
    HEAD
    + """
    import ctypes, os
    @torch.library.custom_op("zoo_trial::deadly", mutates_args=())
    def deadly(x: torch.Tensor) -> torch.Tensor:
        if os.path.exists("armed"): ctypes.string_at(0)
        return x + 1
    @deadly.register_fake
    def _(x): return torch.empty_like(x)
    if __name__ == "__main__":
        torch.compile(lambda x: deadly(x.cos()) * 2)(torch.rand(4))
    """
)
PASS = (
    HEAD
    + """
    from torch._inductor.custom_graph_pass import CustomGraphPass
    class Halves(CustomGraphPass):
        def __call__(self, graph):
            for node in graph.nodes:
                if node.target is torch.ops.aten.sinh.default: node.target = torch.ops.aten.asinh.default
        def uuid(self): return "halves"
    def main():
        torch._inductor.config.post_grad_custom_post_pass = Halves()
        torch.compile(lambda x: x.sinh().sum(-1))(torch.rand(4, 5) + 1)
    main()
    """
)
ONE_BAD = (
    HEAD
    + """
    @torch.library.custom_op("zoo_trial::gone", mutates_args=())
    def gone(x: torch.Tensor) -> torch.Tensor:
        return x - 1
    @gone.register_fake
    def _(x): return torch.empty_like(x)
    if __name__ == "__main__":
        torch.compile(lambda x: gone(x) * 2)(torch.rand(5))
        torch.compile(lambda x: x.tanh().sum(0))(torch.rand(3, 2))
    """
)


def plain(text: str) -> str:
    """A script of a few lines."""
    return HEAD + textwrap.indent(textwrap.dedent(text), "    ")


NOT_A_LEAF = plain("""
    x = torch.rand(4, requires_grad=True) * 2
    torch.compile(lambda a: a.exp_() + a)(x).sum().backward()
""")
BROKEN_IN_TWO = plain("""
    layer = torch.nn.Linear(4, 4)
    def f(x):
        y = layer(x)
        torch._dynamo.graph_break()
        return F.leaky_relu(y, inplace=True)
    torch.compile(f)(torch.rand(2, 4)).sum().backward()
""")
RESIZED = plain(
    "torch.compile(lambda x, y: torch.ops.aten.resize_as(x, y), dynamic=True)(torch.rand(2, 2), torch.rand(5, 3))"
)
REGION = plain("""
    @torch.compiler.nested_compile_region
    def block(x): return (x @ x).tanh()
    torch.compile(lambda x: block(block(x)).sum())(torch.rand(6, 6, requires_grad=True)).backward()
""")
RESET = plain("""
    for width in (3, 5):
        torch._dynamo.reset()
        w = torch.rand(4, width, requires_grad=True)
        torch.compile(lambda x: (x @ w).relu().sum())(torch.rand(2, 4)).backward()
""")
SCHEDULE = plain("""
    scaled = torch.compile(lambda x, rate: x.sin() * rate)
    for rate in (0.1, 0.05, 0.025): scaled(torch.rand(5), rate)
""")
PICKED = plain("torch.compile(lambda x, i: x[i] * 2)(torch.rand(5, 3), torch.tensor(3))")
VIEWS = plain("""
    def f(x):
        y = x.clone()
        y[2:, 1::2] = 0
        y.t()[1].mul_(2)
        return y
    torch.compile(f)(torch.rand(5, 6))
""")
OPTIMIZER = plain("""
    layer = torch.nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-2)
    step = torch.compile(optimizer.step)
    for _ in range(2):
        layer(torch.rand(2, 3)).sum().backward()
        step()
""")
FLEX = plain("""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 128, 128, device="cpu")
    torch.compile(lambda q: flex_attention(q, q, q, block_mask=mask))(torch.rand(1, 1, 128, 16))
""")
TRANSFORMS = plain("""
    torch.compile(torch.func.vmap(torch.func.grad(lambda x: (x.cos() * x).sum())))(torch.rand(4, 3))
    torch.compile(torch.func.jacrev(lambda x: x.tanh().cumsum(0)))(torch.rand(4))
""")
HESSIAN = plain("torch.compile(torch.func.hessian(lambda x: (x.sin() * x[0]).sum()))(torch.rand(3))")
NAN = plain("""
    def f(x):
        return (x - 1).log() + x
    torch.compile(f)(torch.rand(4))
""")


@dataclass(frozen=True)
class Trial:
    """`armed`: a file of that name lies beside the run, for the script's operator."""

    name: str
    script: str
    words: tuple[str, ...]
    code: int
    has: str = ""
    never: str = r"Traceback"
    armed: bool = False


FALSE_ALARM = r"FAILS|CANNOT TELL|Traceback"
TRIALS = (
    *(
        Trial(f"{name}: {command}", script, (command, "run"), 0, never=FALSE_ALARM)
        for name, script, commands in (
            ("in-place on what is no leaf", NOT_A_LEAF, ("triage", "replay", "check")),
            ("a break before an in-place activation", BROKEN_IN_TWO, ("triage", "replay", "check")),
            ("an output that is resized", RESIZED, ("triage", "replay")),
            ("a region compiled once", REGION, ("triage", "check")),
            ("two compiles with a reset between", RESET, ("triage", "replay")),
            ("a float that changes between calls", SCHEDULE, ("triage", "replay")),
            ("writes through views", VIEWS, ("triage", "check")),
            ("a compiled optimizer", OPTIMIZER, ("triage", "replay", "check")),
            ("flex_attention with a mask", FLEX, ("triage", "check")),
            ("vmap, grad and jacrev", TRANSFORMS, ("triage", "check")),
            ("a hessian", HESSIAN, ("triage", "check")),
        )
        for command in commands
    ),
    Trial("a graph that Dynamo left to eager", PICKED, ("triage", "run"), 4, "Dynamo abandoned", r"FAILS"),
    Trial("a graph that Dynamo left to eager, checked", PICKED, ("check", "run"), 4, "gave up", r"FAILS|Traceback"),
    Trial("a NaN that eager has, too", NAN, ("triage", "run"), 0, never=r"FAILS"),
    Trial("an operator of the script, untrusted", OPERATOR, ("check", "run"), 4, r"--trust"),
    Trial("an operator of the script, trusted", OPERATOR, ("check", "run/0_0/dynamo", "--trust"), 1, r"swapped"),
    Trial("an import that is not there", OPERATOR, ("triage", "run", "--import", "./nowhere.py"), 2, r"nowhere"),
    Trial("an operator that does not repeat itself", TIMED, ("triage", "run", "--trust"), 4, r"nois|noisy"),
    Trial(
        "an operator that dies in eager",
        DEADLY,
        ("triage", "run", "--trust"),
        1,
        r"FAILS.*signal at deadly, train.py:\d+ \(custom op\)",
        armed=True,
    ),
    Trial(
        "one graph of two with an operator that is not here",
        ONE_BAD,
        ("triage", "run"),
        4,
        r"CANNOT TELL \d of \d graphs",
    ),
    Trial("the other graph of the two", ONE_BAD, ("replay", "run/1_0/inference"), 0, never=FALSE_ALARM),
    Trial(
        "a wrong pass of the script, untrusted", PASS, ("triage", "run"), 1, r"custom pass(.|\n)*Halves in train.py:8"
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize("row", TRIALS, ids=[row.name for row in TRIALS])
def test_what_is_printed(
    row: Trial, recorded_script: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(recorded_script(textwrap.dedent(row.script)), tmp_path / "run")
    if row.armed:
        (tmp_path / "armed").touch()
    monkeypatch.chdir(tmp_path)
    code, text = said([*row.words])
    line = f"graphdbg {' '.join(row.words)}: code {code}\n{text[:2500]}"
    assert code == row.code, line
    assert re.search(row.has, text), line
    assert not re.search(row.never, text), line
