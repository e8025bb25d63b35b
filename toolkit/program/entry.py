"""In the user's own process: starts what runs beside each compiled call, where the environment asks for it.

Called by torch's plug-in group at `import torch` (see `recorder.autoload`). In a block of one's own: `graphdbg.shadow()`.

>>> with graphdbg.shadow("found", calls="10:20") as found:
...     train()
>>> found.verdict.verdict
'ok'
"""

from __future__ import annotations

import atexit
import json
import os
from pathlib import Path

from .records import OPTIONS, VARIABLE


def start_from_environment() -> None:
    """Runs calls beside the program's own until this process ends; a fork of it does not."""
    from .shadowing import Shadow

    shadow = Shadow(Path(os.environ[VARIABLE]), **json.loads(os.environ.get(OPTIONS) or "{}"))
    shadow.start()
    atexit.register(shadow.stop)
