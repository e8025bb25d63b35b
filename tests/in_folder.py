"""In a child of the worker's shared server: calls a function in the folder of whoever asks, where its own server would
be.

>>> call({"folder": "/tmp", "function": "os:getcwd_of", "payload": {"n": 1}})
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from graphdbg.toolkit.isolation.imports import import_modules


def call(payload: dict[str, Any]) -> Any:
    """What the function makes of its payload in that folder."""
    os.chdir(payload["folder"])
    import_modules(payload["payload"].get("imports", ()))
    module, _, name = payload["function"].partition(":")
    return getattr(import_module(module), name)(payload["payload"])
