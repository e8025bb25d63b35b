"""Real processes: a script run plainly, and the same script recorded, with caches of their own."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "scripts"
COMPILER_CACHES = ("fxgraph", "aotautograd")


@dataclass
class Done:
    """One finished process."""

    code: int
    stdout: bytes
    stderr: str
    run: Path | None = None

    def graphs(self) -> set[str]:
        """The ids of all graphs in the run folder, without the process."""
        assert self.run is not None
        return {f"{path.parent.name}/{path.name}" for path in self.run.glob("*/graphs/*/*")}


class Runner:
    """Runs scripts with one Inductor cache folder; `forget` empties what makes a compile warm, and keeps binaries."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        self.cache = cache

    def forget(self) -> None:
        for name in COMPILER_CACHES:
            shutil.rmtree(self.cache / name, ignore_errors=True)

    def _run(self, command: list[str], **variables: str) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(self.cache), **variables}
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            timeout=400,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def python(self, *words: str, **variables: str) -> Done:
        done = self._run([sys.executable, *words], **variables)
        code = done.returncode if done.returncode >= 0 else 128 - done.returncode
        return Done(code, done.stdout, done.stderr.decode())

    def script(self, name: str, *words: str, **variables: str) -> Done:
        return self.python(str(SCRIPTS / name), *words, **variables)

    def dump(self, run: str, *words: str, **variables: str) -> Done:
        done = self._run([sys.executable, "-m", "graphdbg", "dump", "-o", run, *words], **variables)
        return Done(done.returncode, done.stdout, done.stderr.decode(), self.folder / run)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory, warm_inductor_cache: Path) -> Iterator[Runner]:
    """A fresh working folder for one test module, and the cache of this worker's recorded programs, which keeps
    binaries."""
    cache = warm_inductor_cache.with_name(
        f"{warm_inductor_cache.name}-recorded-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
    )
    cache.mkdir(exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not any(entry.is_dir() for entry in cache.iterdir()):
            ignored = shutil.ignore_patterns(*COMPILER_CACHES, "locks", "lock")
            shutil.copytree(warm_inductor_cache, cache, ignore=ignored, dirs_exist_ok=True)
        item = Runner(tmp_path_factory.mktemp("recorder"), cache)
        item.forget()
        yield item
