"""What the wall costs: replays and queries of a minification behind it and without, in turn, of the same case and in
one run.

    python -m tests.bench.bench_wall [--rounds 30] [--seconds 60]

Prints the median of the ratios of neighbours, for the whole question (as a command waits for it) and for the start of a
server. The case is one that was not recorded here; without the wall it is vouched for. A trusted question has no wall
to pay for: what finding that out takes is printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps import temporary, trust
from graphdbg.dumps.live import save_graph
from graphdbg.dumps.schema import FORMAT, RunRecord
from graphdbg.dumps.store import load_graph
from graphdbg.dumps.writer import RunWriter
from graphdbg.minifier.oracle import PRELOAD, Oracle
from graphdbg.toolkit.isolation import ForkServer, client
from graphdbg.toolkit.isolation.wall import PARTS
from graphdbg.toolkit.replaying.replay import replay


def case_at(path: Path) -> Path:
    """A graph of some thirty nodes."""

    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
        for _ in range(6):
            x = (torch.relu(x @ w) + x.sin()).softmax(-1) * 2
        return (x,)

    given = [torch.randn(32, 32), torch.randn(32, 32)]
    return save_graph(make_fx(f)(*given), given, path, stage="inference")


def in_turn(walled: Callable[[], object], open_: Callable[[], object], rounds: int, seconds: float) -> str:
    """The median ratio of neighbours, each round in the other order."""
    ratios: list[float] = []
    times: dict[Callable[[], object], list[float]] = {walled: [], open_: []}
    ends = time.monotonic() + seconds
    for number in range(rounds):
        took: dict[Callable[[], object], float] = {}
        for item in (walled, open_) if number % 2 else (open_, walled):
            began = time.perf_counter()
            item()
            took[item] = time.perf_counter() - began
            times[item].append(took[item])
        ratios.append(took[walled] / took[open_])
        if time.monotonic() > ends and number > 4:
            break
    with_s, without_s = (statistics.median(times[item]) for item in (walled, open_))
    quarters = statistics.quantiles(ratios, n=4)
    return (
        f"{statistics.median(ratios):.3f} (quartiles {quarters[0]:.3f} to {quarters[2]:.3f}, {len(ratios)} pairs; "
        f"medians {with_s * 1000:.0f} and {without_s * 1000:.0f} ms, {with_s / without_s:.3f})"
    )


def vouched(case: Path, ask: Callable[[], object]) -> Callable[[], object]:
    """The same question while this process vouches for the case."""

    def asked() -> None:
        trust.vouch(case)
        try:
            ask()
        finally:
            trust._made.discard(str(case))

    return asked


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=60.0)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, temporary.folder("graphdbg-bisect-") as work:
        case = case_at(Path(name).resolve() / "case")
        saved = load_graph(case)
        with ForkServer(preload=PRELOAD) as server:

            def replayed() -> None:
                assert replay(saved, server=server, outputs=False).ok

            oracle = Oracle(case, work, server)
            oracle.prepare()

            def queried() -> None:
                oracle.judge(None)

            for ask in (replayed, queried):
                for _ in range(2):  # warm, both servers and their caches
                    ask()
                    vouched(case, ask)()
            for what, ask in (("replay", replayed), ("minify query", queried)):
                print(
                    f"{what}, with the wall against without:",
                    in_turn(ask, vouched(case, ask), wanted.rounds, wanted.seconds),
                )

        def start(wall: tuple[str, ...] | None) -> Callable[[], None]:
            def started() -> None:
                with ForkServer(wall=wall) as item:
                    item.wait_ready()

            return started

        print("start of a server:", in_turn(start(PARTS), start(None), 6, wanted.seconds))
        os.environ["XDG_STATE_HOME"] = name
        run = RunWriter.create(Path(name) / "run", RunRecord(format=FORMAT, command=[]), ours=True).path
        payload = {"path": str(run)}
        began = time.perf_counter()
        for _ in range(1000):
            assert client.trusted(payload)
        print(f"finding out that a run is trusted: {(time.perf_counter() - began) * 1000:.0f} µs a question")


if __name__ == "__main__":
    main()
