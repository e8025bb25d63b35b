"""stub"""

from __future__ import annotations

from .schema import GraphRecord, InputsRecord


def check_graph(record: GraphRecord, where: str) -> None: ...
def check_inputs(record: InputsRecord, where: str) -> None: ...
