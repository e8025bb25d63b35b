"""Shared by all tests: one warm Inductor cache, no recording by accident, repeatable property tests.

The cache lies in .cache/ of the checkout, is shared by all workers and later runs, and is warmed once (a fresh one costs about
30 s of toolchain probes). A test about cold or warm caches sets a TORCHINDUCTOR_CACHE_DIR of its own.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

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
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # inherited from a shell that started us in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [name for name in os.environ if name.startswith("GRAPHDBG")]:
        del os.environ[name]
    os.environ.pop("CI", None)  # torch turns some of its warnings into errors where it is set; users' machines do not set it
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(CACHE)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def warm_inductor_cache() -> Path:
    """Compiles one small function, forward and backward, unless an earlier run or another worker did; returns the cache."""
    CACHE.mkdir(parents=True, exist_ok=True)
    done = CACHE / "warm"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            subprocess.run([sys.executable, "-c", WARM_UP], check=True, cwd=CACHE, stdin=subprocess.DEVNULL)
            done.touch()
    return CACHE


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the checkout."""
    return ROOT
