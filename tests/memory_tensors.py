"""Tensor storages in memory, where a test wants none on disk.

>>> name = MemoryTensors().put(b"\\x00" * 16)
"""

from __future__ import annotations

from graphdbg.dumps.errors import UnreadableError
from graphdbg.dumps.tensors import Bytes, check_hash, hash_bytes


class MemoryTensors:
    """A TensorSink."""

    def __init__(self) -> None:
        self.storages: dict[str, bytes] = {}

    def accepts(self, size_bytes: int) -> bool:
        """Always."""
        return True

    def put(self, data: Bytes) -> str:
        """Keeps a copy of the bytes under their hash."""
        flat = bytes(memoryview(data).cast("B"))
        name = hash_bytes(flat)
        self.storages.setdefault(name, flat)
        return name

    def get(self, name: str) -> bytes:
        """The bytes of that hash; raises UnreadableError when they were never put."""
        if name not in self.storages:
            raise UnreadableError(f"tensor {check_hash(name)} is missing", "it was never stored")
        return self.storages[name]
