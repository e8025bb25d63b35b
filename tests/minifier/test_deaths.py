"""Deaths inside a 300-node model, each minified to the op that brings it, and nothing left on the machine, whoever is
killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps.errors import EnvironmentLackError
from graphdbg.dumps.live import save_graph
from graphdbg.dumps.store import load_graph
from graphdbg.minifier import oracle as oracle_module
from graphdbg.minifier.minify import _with_settings, minify
from graphdbg.minifier.options import MinifyOptions
from graphdbg.minifier.oracle import Oracle
from graphdbg.minifier.search.problem import Candidate
from graphdbg.toolkit.isolation import ForkServer, processes

PLANTED = Path(__file__).parent.parent / "planted"
CULPRIT = "planted_death.culprit.default"


@pytest.fixture(autouse=True, scope="module")
def planted_ops() -> Iterator[None]:
    """The ops, harmless in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PLANTED))
        patch.setenv("PLANTED_DEATH", "nothing-anywhere")
        kept = inductor_config.post_grad_custom_post_pass
        import planted_death  # noqa: F401  # pyright: ignore[reportMissingImports]

        inductor_config.post_grad_custom_post_pass = kept
        yield


def network() -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """331 nodes that compile in a moment: matrix products and views; the culprit in the middle."""
    torch.manual_seed(0)

    def model(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor]:
        for number in range(36):
            weight = weights[number % len(weights)]
            h = (weight @ x.transpose(0, 1)).view(2, 4, 8).reshape(8, 8)
            x = (h @ weight).view(8, 8)
            if number == 17:
                x = torch.ops.planted_death.culprit(x)
            x = torch.cat([x[:4], x[4:]])
        return (x,)

    inputs = [torch.randn(8, 8), *(torch.randn(8, 8) / 3 for _ in range(4))]
    return make_fx(model)(*inputs), inputs


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    gm, inputs = network()
    assert len(gm.graph.nodes) >= 300
    return save_graph(gm, inputs, tmp_path_factory.mktemp("deaths") / "case")


@pytest.mark.long
def test_a_step_goes_on_without_the_edits_of_which_eager_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes are 8 and 6, and eager dies of fewer than 3 rows: of all edits at once, and of one alone."""
    import planted_size_death  # noqa: F401  # pyright: ignore[reportMissingImports]

    gm = make_fx(lambda x: (torch.ops.planted_size_death.culprit(x).relu(),))(torch.randn(8, 6))
    case = save_graph(gm, [torch.randn(8, 6)], tmp_path / "case")
    (tmp_path / "work").mkdir()
    with ForkServer(preload=("graphdbg.minifier.tasks",)) as server:
        oracle = Oracle(case, tmp_path / "work", server, MinifyOptions(imports=("planted_size_death",)))
        oracle.prepare()
        whole = Candidate.of(range(len(oracle.atoms["nodes"])))
        assert oracle.propose("dims", whole) == [["dims 6 2"], ["dims 6 1"], ["dims 8 4", "dims 6 3"]]
        monkeypatch.setattr(oracle_module, "MOST_DEATHS", 1)
        with pytest.raises(EnvironmentLackError, match="eager died on 2 of the edits that were tried: the last by SIG"):
            oracle.propose("dims", whole)


def shared_memory() -> set[str]:
    folder = Path("/dev/shm")
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


class Started:
    """`graphdbg minify` with a module that plants a death, and with a temporary folder of its own."""

    def __init__(self, case: Path, tmp: Path, death: str, *flags: str) -> None:
        self.tmp, self.out, self.strays = tmp / "tmp", tmp / "out", tmp / "strays"
        self.tmp.mkdir()
        shutil.copy(PLANTED / "planted_death.py", tmp)
        module = f"planted_{death.replace('-', '_')}"
        lines = ["import os", f"os.environ.update(PLANTED_DEATH={death!r}, PLANTED_STRAY={str(self.strays)!r})"]
        (tmp / f"{module}.py").write_text("\n".join([*lines, "import planted_death"]))
        path = os.pathsep.join([str(tmp), os.environ.get("PYTHONPATH", "")])
        command = [
            sys.executable,
            "-m",
            "graphdbg",
            "minify",
            case,
            "-o",
            self.out,
            "--import",
            module,
            "--trust",  # behind the wall nothing can be noted in strays
            "--json",
            *flags,
        ]
        self.shared = shared_memory()
        self.process = subprocess.Popen(
            [*map(str, command)],
            env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(self.tmp)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def done(self) -> dict[str, Any]:
        """The last event; it must have ended well."""
        stdout, stderr = self.process.communicate(timeout=1500)
        assert self.process.returncode == 0, stderr
        return json.loads(stdout.splitlines()[-1])

    def wait_for(self, what: Callable[[], bool], limit_s: float = 240) -> None:
        """Until that is true or the process has ended."""
        end = time.monotonic() + limit_s
        while not what() and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        assert what()

    def began_to_die(self) -> bool:
        """Whether a child has come to the culprit."""
        return self.strays.exists()

    def server(self) -> int:
        """The fork server."""
        return processes.children_of(self.process.pid)[0]

    def left(self) -> list[str]:
        """What is left on the machine of this minification."""
        strays = self.strays.read_text().split() if self.strays.exists() else []
        results = [f"process {pid}" for pid in strays if processes.started(int(pid)) is not None]
        results += [
            f"process {pid}" for root in self.tmp.glob("graphdbg-*") for pid in processes.started_under(root / "tmp")
        ]
        results += [str(path) for path in self.tmp.glob("graphdbg-*")]
        results += sorted(shared_memory() - self.shared)
        return results

    def assert_clean(self) -> None:
        """Nothing is left, at the latest after a while."""
        end = time.monotonic() + 30
        while self.left() and time.monotonic() < end:
            time.sleep(0.2)
        assert self.left() == []


def targets(folder: Path) -> list[str]:
    return [node.target for node in load_graph(folder).record.graph.nodes if node.op == "call_function"]


@pytest.mark.slow
def test_a_segfault_is_minified_to_its_op(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLANTED_DEATH", "segfault-run")
    monkeypatch.setenv("PLANTED_STRAY", str(tmp_path / "strays"))
    gm, inputs = network()
    result = minify(gm, inputs, imports=["planted_death"])
    assert [str(node.target) for node in result.module.graph.nodes if node.op == "call_function"] == [CULPRIT]
    assert (result.nodes, result.input_bytes, result.verified) == (3, 4, (3, 3))
    assert result.queries - result.asked["explanation"] <= 25
    assert result.signature is not None
    assert result.signature.text() == "signal in run: SIGSEGV"
    strays = (tmp_path / "strays").read_text().split()
    assert len(strays) >= 5
    assert not [pid for pid in strays if processes.started(int(pid)) is not None]


@pytest.mark.slow
def test_an_op_that_aborts_in_eager_too_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_DEATH", "abort-eager")
    gm, inputs = network()
    result = minify(gm, inputs, imports=["planted_death"])
    assert [str(node.target) for node in result.module.graph.nodes if node.op == "call_function"] == [CULPRIT]
    assert (result.nodes, result.verified) == (3, (3, 3))
    assert result.queries <= 12
    assert result.signature is not None
    assert result.signature.text() == "signal in eager: SIGABRT"
    assert any(note.startswith("eager itself dies at culprit") for note in result.notes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("death", "flags", "text", "most_s"),
    [
        ("segfault-compile", [], "signal in compile: SIGSEGV", 300),
        ("abort-run", [], "signal in run: SIGABRT", 300),
        ("loop-run", ["--hangs", "20"], "hang in run", 600),
        ("loop-compile", ["--hangs", "20"], "hang in compile", 900),
        ("hog-run", ["--memory-limit", "1500MB"], "memory in run", 600),
        ("abort-eager", [], "signal in eager: SIGABRT", 300),
        ("loop-eager", ["--hangs", "20"], "hang in eager", 600),
        ("hog-eager", ["--memory-limit", "1500MB"], "memory in eager", 600),
    ],
)
def test_a_death_is_minified_and_the_machine_is_clean(
    case: Path, tmp_path: Path, death: str, flags: list[str], text: str, most_s: float
) -> None:
    began = time.monotonic()
    started = Started(case, tmp_path, death, *flags)
    last = started.done()
    assert targets(started.out) == [CULPRIT]
    assert (last["nodes"], last["verified"]) == (3, [3, 3])
    assert last["queries"] - last["asked"].get("explanation", 0) <= 25
    assert last["signature"].startswith(text)
    assert time.monotonic() - began < most_s
    started.assert_clean()
    assert last["report_rate"] == "3 of 3 fresh processes"
    assert f"import planted_{death.replace('-', '_')}" in (started.out / "repro.py").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("who", ["minify", "minify by ctrl-c", "server", "both"])
def test_nothing_is_left_after_a_kill(case: Path, tmp_path: Path, who: str) -> None:
    started = Started(case, tmp_path, "loop-run", "--hangs", "60")
    started.wait_for(started.began_to_die)
    assert started.left()
    server = started.server()
    if who in ("server", "both"):
        if who == "both":
            started.process.send_signal(signal.SIGSTOP)
        os.kill(server, signal.SIGKILL)
    if who == "minify by ctrl-c":
        os.killpg(started.process.pid, signal.SIGINT)
        started.process.communicate(timeout=60)
    elif who == "server":  # it goes on with another one
        before = len(started.strays.read_text().split())
        started.wait_for(lambda: len(started.strays.read_text().split()) > before)
        os.killpg(started.process.pid, signal.SIGINT)
        started.process.communicate(timeout=60)
    else:
        started.process.kill()
        started.process.communicate(timeout=60)
    if who == "both":  # nobody is left to clean up but the next one who comes
        code = "from graphdbg.toolkit.isolation import ForkServer\nwith ForkServer(warm='nothing') as s: s.wait_ready()"
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(started.tmp)}, check=True)
    started.assert_clean()


ODD = """
import torch

@torch.library.custom_op("odd_ops::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x + x

@double.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)
"""


@pytest.mark.slow
def test_an_op_that_a_repro_cannot_find_does_not_lead_astray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd_ops.py").write_text(ODD)
    monkeypatch.syspath_prepend(str(tmp_path))
    import odd_ops  # noqa: F401

    def model(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
        x = torch.ops.odd_ops.double(torch.tanh(x @ w))
        return (torch.relu(torch.sin(x) @ w) * 0.5 + x,)

    inputs = [torch.randn(6, 6), torch.randn(6, 6)]
    with inductor_config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}):
        case = _with_settings(save_graph(make_fx(model)(*inputs), inputs, tmp_path / "case"))
    command = [sys.executable, "-m", "graphdbg", "minify", str(case), "-o", str(tmp_path / "out"), "--json"]
    refused = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert refused.returncode == 3, refused.stderr
    assert "odd_ops.double.default" in refused.stderr
    assert "--import odd_ops" in refused.stderr
    done = subprocess.run([*command, "--import", "odd_ops"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert targets(tmp_path / "out") == ["torch.relu"]
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["nodes"], last["report_rate"]) == (3, "3 of 3 fresh processes")
    assert "odd_ops" not in (tmp_path / "out" / "repro.py").read_text()
