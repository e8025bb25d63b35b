"""Entry point of torch's plug-in group `torch.backends`: starts the recorder when GRAPHDBG names a run."""

from __future__ import annotations

import os


def start() -> None:
    """Called by torch at the end of `import torch`; returns at once unless the environment asks for a recording."""
    if os.environ.get("GRAPHDBG"):
        pass
