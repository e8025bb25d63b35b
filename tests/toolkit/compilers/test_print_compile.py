"""What print_compile writes, where to, and when in colours."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
import torch
from functorch.compile import aot_function

from graphdbg import GraphdbgError
from graphdbg.toolkit.compilers import print_compile

ESCAPE = "\x1b["
SINE = torch.fx.symbolic_trace(lambda x: x.sin())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(compiler: object) -> None:
    x = torch.ones(3, 4, requires_grad=True)
    aot_function(lambda x: (x.t() * 2).sin(), fw_compiler=compiler)(x).sum().backward()  # type: ignore[arg-type]


def test_code_has_shapes_strides_and_devices_under_a_header() -> None:
    out = io.StringIO()
    run(print_compile.to(out))
    headers = [line for line in out.getvalue().splitlines() if line.startswith("# graphdbg")]
    assert [re.sub(r"x\d+_0", "xN_0", line) for line in headers] == [
        "# graphdbg xN_0/forward: 5 nodes, 1 input",
        "# graphdbg xN_0/backward: 7 nodes, 2 inputs",
    ]
    assert '"f32[4, 3][1, 4]cpu"' in out.getvalue()
    assert ESCAPE not in out.getvalue()


def test_a_compile_id_and_the_sizes_of_symbols_are_told() -> None:
    out = io.StringIO()
    torch._dynamo.reset()
    torch.compile(lambda x: x + 1, backend="graphdbg_print", dynamic=True, options={"file": out})(torch.ones(5))
    assert re.search(r"# graphdbg \d+_0(_a\d+)?/inference: 4 nodes, 2 inputs, s\d+ = 5\n", out.getvalue())


def test_stdout_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    run(print_compile)
    assert capsys.readouterr().out.count("# graphdbg") == 2


def test_only_a_terminal_gets_colours_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal, asked, plain = Terminal(), io.StringIO(), io.StringIO()
    for compiler in (print_compile.to(terminal), print_compile.to(asked, coloured=True), print_compile.to(plain)):
        compiler(SINE, [])
    assert ESCAPE in terminal.getvalue()
    assert ESCAPE in asked.getvalue()
    assert re.sub(r"\x1b\[[\d;]*m", "", asked.getvalue()) == plain.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    quiet = Terminal()
    print_compile.to(quiet)(SINE, [])
    assert quiet.getvalue() == plain.getvalue()


def test_a_file_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "graphs.txt"
    path.write_text("mine\n")
    run(print_compile.to(path, graph_id="the one"))
    text = path.read_text()
    assert text.startswith("mine\n# graphdbg the one: 5 nodes")
    assert text.count("# graphdbg the one") == 2


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(GraphdbgError, match=r"cannot print graphs to .*nowhere"):
        print_compile.to(tmp_path / "nowhere" / "graphs.txt")(SINE, [])


def test_subgraphs_are_printed_too() -> None:
    out = io.StringIO()
    torch._dynamo.reset()
    function = lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))  # noqa: E731
    torch.compile(function, backend="graphdbg_print", options={"file": out})(torch.ones(3))
    assert "torch.ops.aten.cos.default" in out.getvalue()
