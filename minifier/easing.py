"""What makes the failure of a minimised case go away: the cheapest change that was seen to work on it, for issue.md.

The case is small, so each try is a short compile; nothing is tried after the budget is spent.

For example:

    ease(minified, server, Options(), print); minified.verdict.workaround
    # 'torch._inductor.config.pattern_matcher = False'
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..dumps import opening
from ..dumps.atomic import write_file
from ..dumps.store import load_graph
from ..toolkit.isolation import ForkServer
from ..toolkit.replaying.replay import How
from ..toolkit.triage.easing import eased
from .minified import Minified
from .options import MEASURES, MinifyOptions
from .results import CASE_FILE

LIMIT_S = 20.0


def ease(minified: Minified, server: ForkServer, options: MinifyOptions, told: Callable[[str], object]) -> None:
    """Adds the work-around to the verdict of a minimised case and to what its folder says of it; nothing where none was
    seen."""
    measured = any(getattr(options, name) is not None for name in MEASURES)
    if options.command or measured or options.rung != "inductor" or minified.path is None or minified.stopped:
        return
    how = How(options.seed, None, LIMIT_S, options.imports)
    record = eased(load_graph(minified.path), server, how, minified.verdict, 0.0, LIMIT_S, told=told)
    if record.workaround:
        minified.verdict = record
        path = minified.path / CASE_FILE
        data = {**msgspec.json.decode(opening.read(path)), "record": record.plain()}
        write_file(path, msgspec.json.format(msgspec.json.encode(data), indent=1))
