"""Shared by all tests: one warm Inductor cache, one warm fork server, no recording by accident, repeatable random
values.

The cache lies in .cache/ of the checkout, is shared by all workers and later runs, and is warmed once (a fresh one
costs about 30 s of toolchain probes). A test about cold or warm caches sets a TORCHINDUCTOR_CACHE_DIR of its own. Each
worker has one fork server (`one_server`), which a test about servers does without: `@pytest.mark.own_server`.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from .one_server import Lender, lending
from .recording import recorded_once

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / f"inductor-{importlib.metadata.version('torch')}"

WARM_UP = """
import torch
def f(x, w): return torch.relu(x @ w).softmax(-1).sum()
x, w = torch.randn(8, 8), torch.randn(8, 8, requires_grad=True)
torch.compile(f)(x, w).backward()
"""

settings.register_profile(
    "house", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")


def pytest_configure(config: pytest.Config) -> None:
    """Sets what every test and every process that a test starts must see; runs before anything imports torch."""
    config.addinivalue_line("markers", "own_server: about fork servers, so it starts its own instead of the worker's")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # inherited from a shell that started us in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [name for name in os.environ if name.startswith("GRAPHDBG")]:
        del os.environ[name]
    os.environ.pop(
        "CI", None
    )  # torch turns some of its warnings into errors where it is set; users' machines do not set it
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of a thousand processes compiles our modules again
    sys.dont_write_bytecode = False
    os.environ["XDG_STATE_HOME"] = str(ROOT / ".cache" / "state")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(CACHE)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def warm_inductor_cache() -> Path:
    """Compiles one small function, forward and backward, unless an earlier run or another worker did; returns the
    cache."""
    CACHE.mkdir(parents=True, exist_ok=True)
    done = CACHE / "warm"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            subprocess.run([sys.executable, "-c", WARM_UP], check=True, cwd=CACHE.parent, stdin=subprocess.DEVNULL)
            done.touch()
    return CACHE


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session", autouse=True)
def one_server(warm_inductor_cache: Path) -> Iterator[Lender]:
    """Lends one warm fork server to whoever in this process starts a usual one; its children find modules in
    `modules`."""
    with lending(warm_inductor_cache) as lender:
        yield lender


@pytest.fixture(scope="session")
def recorded_script(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`recorded_once` in a folder that all workers of this test run share."""
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent
    return partial(recorded_once, place / "recorded")


def seeded() -> None:
    """The same random values in each run, whichever tests ran before in this process."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the fixtures of a test, which may start servers and draw random values."""
    seeded()
    Lender.own = item.get_closest_marker("own_server") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """A command with --import searches modules in the current folder from then on; here that ends with the test."""
    seeded()
    before = [*sys.path]
    try:
        return (yield)
    finally:
        sys.path[:] = before


@pytest.fixture
def no_order_of_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch as it was before 2.13, which kept several random operators of a graph in no order."""
    from graphdbg.toolkit import torch_private as t

    look = t.optional
    monkeypatch.setattr(t, "optional", lambda name, *other: None if name == "chain_random_ops" else look(name, *other))
    if look("chain_random_ops") is not None:
        monkeypatch.setattr(*t.home("chain_random_ops"), lambda graph: None)
