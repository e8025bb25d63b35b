"""Short ways to ask for a compile of a graph of the run that conftest records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphdbg.dumps.store import SavedGraph
from graphdbg.toolkit.compile_fx.showing.asking import Request, compiled
from graphdbg.toolkit.isolation import ForkServer
from graphdbg.toolkit.kernels.records import CompileRecord


def told(saved: SavedGraph, server: ForkServer, folder: Path, **asked: Any) -> CompileRecord:
    """What a compile tells, up to its code unless another stage is asked for."""
    request = Request(**{"until": "codegen", "limit_s": 120.0, **asked})
    return compiled(saved, request, server, folder, lambda _kind, _event: None)


def stages(compile_record: CompileRecord, part: str) -> list[str]:
    """The stages of a part that ran."""
    return [row.stage for row in compile_record.part(part).stages]
