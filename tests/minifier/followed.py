"""A minification's folder as a session writes it, in a second and without torch: for whatever follows one."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from graphdbg.minifier.events import Ended, Happening, Said, Started
from graphdbg.minifier.log import Life, Log
from graphdbg.minifier.minified import Minified
from graphdbg.minifier.options import MinifyOptions
from graphdbg.minifier.session import Minification
from graphdbg.minifier.steering import Steering
from tests.minifier.abstract import Abstract
from tests.minifier.generated import needs, transformer


def steered(out: Path, *, held_from: int = 16, until: int = 2, atoms: int = 300) -> Minified:
    """One that can be steered, as a process of its own would be: run it in a thread.

    From judgement `held_from` on each lasts until an order ends it; after `until` such orders they go on freely.
    """
    problem = Abstract(transformer(atoms), needs([30, atoms // 2, atoms - 30]))

    def hold(number: int) -> None:
        before = problem.aborts
        while number >= held_from and before == problem.aborts < until:
            time.sleep(0.005)

    problem.on_judging = hold
    options = MinifyOptions()
    about = {"graph": "myrun/0_0/forward", "options": options.to_json(), "directory": str(out.parent)}
    with ExitStack() as stack:
        life = stack.enter_context(Life(out))
        log = life.log
        log.begin({**options.asked(), "case": "abstract"}, about)
        log.tell(Started("myrun/0_0/forward", str(out), options.to_json()))
        pool = stack.enter_context(ThreadPoolExecutor(3))
        steering = stack.enter_context(Steering(out, log, log.tell, abort=problem.abort))
        done = Minification(problem, log, out, options, tell=log.tell, narrate=log.say, steering=steering).run(pool)
        life.end(Ended("reduced", done.stopped or "", str(done.path), done.nodes, done.input_bytes, done.queries))
    return done


def session(
    out: Path, *, atoms: int = 60, then: Callable[[Happening], None] = lambda event: None, end: bool = True
) -> Minified:
    """Minifies a generated problem into `out`, events and all; `then` hears each event after it was written."""
    problem = Abstract(transformer(atoms), needs([7, atoms // 2]))
    options = MinifyOptions()
    about = {"graph": "myrun/0_0/forward", "options": options.to_json(), "directory": str(out.parent)}
    log = Log(out)
    out.mkdir(exist_ok=True)
    log.begin({**options.asked(), "case": "abstract"}, about)

    def tell(event: Happening) -> None:
        log.tell(event)
        then(event)

    def say(text: str) -> None:
        tell(Said(text))

    tell(Started("myrun/0_0/forward", str(out), options.to_json()))
    with ThreadPoolExecutor(3) as pool:
        done = Minification(problem, log, out, options, tell=tell, narrate=say).run(pool)
    if end:
        tell(Ended("reduced", "", str(done.path), done.nodes, done.input_bytes, done.queries))
    log.close()
    return done
