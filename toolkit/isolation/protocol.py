"""The wire between a client and its fork server: length-prefixed JSON frames over one stream socket, and the records in
them.

Imports neither torch nor anything slow: the client uses it in processes that never import torch.

>>> parts = Frames()
>>> [msgspec.json.decode(frame) for frame in parts.feed(frame_of({"a": 1}))]
[{'a': 1}]
"""

from __future__ import annotations

import struct
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol

import msgspec

from ...dumps import errors

_LENGTH = struct.Struct("!Q")

Status = Literal["done", "exception", "signal", "timeout", "memory", "lost"]


class Query(msgspec.Struct, omit_defaults=True):
    """What a client asks: call `function` ("package.module:name") with `payload` in a child of its own.

    `limit_s` is for the whole, `stage_limits` (stage -> seconds) for single stages, counted from their marks. Time that
    the machine spent on other processes is not counted, up to three times the limit. `memory_bytes`: what the child and
    its own children may use on top of the warm server's memory. `trusted`: what it reads was recorded here by the user,
    or is trusted explicitly (see `dumps.trust`). `wall`: the child goes behind the wall, where it may write below these
    folders and those of its server. `kills`: instead of that, end the query with this id.
    """

    id: int
    function: str
    payload: dict[str, Any] = {}
    limit_s: float = 600.0
    threads: int = 1
    memory_bytes: int | None = None
    stage_limits: dict[str, float] = {}
    trusted: bool = False
    wall: list[str] | None = None
    kills: int = 0


class ChildError(msgspec.Struct, omit_defaults=True):
    """An exception of a child: type as module.name, text, traceback text, and the library frames, innermost first."""

    type: str
    message: str
    traceback: str = ""
    frames: list[str] = []


def frames_of(error: BaseException) -> list[str]:
    """module:function of each frame of an exception, innermost first."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_name}" for frame in reversed(frames)]


class TaskResult(msgspec.Struct, omit_defaults=True, tag="answer"):
    """What became of one query.

    `status`: done | exception | signal | timeout | memory | lost (the server itself died). `value` is what the task
    returned; of one without a value `event` is the last one that it reported. `stage` is the last mark that the child
    set (`child.mark`), `marks` are all of them with the seconds since its start, where it could still report them;
    `output` is the head and the tail of what it and its children printed, faulthandler's traces included.
    """

    id: int
    status: Status
    value: Any = None
    event: Any = None
    signal: str = ""
    error: ChildError | None = None
    stage: str = ""
    output: str = ""
    exit_code: int | None = None
    seconds: float = 0.0
    peak_bytes: int = 0
    marks: list[tuple[str, float]] = []


class Events(msgspec.Struct, tag="events"):
    """What the child of a query reported meanwhile (`child.report`), in order, each the JSON of one event."""

    id: int
    rows: list[msgspec.Raw]


class Ready(msgspec.Struct, tag="ready"):
    """The server's first frame: seconds of its warm-up, sentences about what it could not do, the mechanisms of its
    wall, and what these leave open.
    """

    seconds: float
    notes: list[str] = []
    built_of: list[str] = []
    open: list[str] = []


def frame_of(message: Any) -> bytes:
    """Encodes one message as a frame: 8 bytes of length, then JSON."""
    body = msgspec.json.encode(message)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Cuts a byte stream into frames; keeps what is incomplete until more arrives."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Adds bytes, returns the bodies of all frames that are whole now."""
        self._held += data
        whole: list[bytes] = []
        while len(self._held) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._held)
            if len(self._held) < _LENGTH.size + size:
                break
            whole.append(bytes(self._held[_LENGTH.size : _LENGTH.size + size]))
            del self._held[: _LENGTH.size + size]
        return whole


class Servers(Protocol):
    """The interface of a fork server. `home`: the fork server of this process."""

    @property
    def home(self) -> Servers: ...

    def submit(
        self,
        function: str,
        payload: dict[str, Any],
        limit_s: float = ...,
        *,
        stage_limits: Mapping[str, float] | None = None,
    ) -> PendingTask: ...


class PendingTask(ABC):
    """A running query; iterating yields the events that the task reports, as they arrive."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    @abstractmethod
    def answer(self, timeout_s: float | None = None) -> TaskResult:
        """Waits for the answer, whatever it is; raises TimeoutError when none has come after `timeout_s`."""

    @abstractmethod
    def kill(self) -> None:
        """Kills the query; its answer, "signal", follows soon. No-op where it has ended already."""

    def end(self) -> TaskResult:
        """Waits for the answer; raises the task's refusal, if it refused, and EnvironmentLackError where the server
        died."""
        answer = self.answer()
        if answer.status == "lost":
            log = [line for line in answer.output.splitlines() if line.strip()]
            what = "the fork server, which starts the processes that run graphs, ended by itself"
            raise errors.LostServer(what, log[-1] if log else "", "see graphdbg doctor")
        raise_refusal(answer)
        return answer


def ask(
    task: str,
    payload: Mapping[str, Any],
    limit_s: float = 600.0,
    *,
    server: Servers,
    stage_limits: Mapping[str, float] | None = None,
) -> PendingTask:
    """Starts a task ("package.module:name") in a child of its own; the limits are those of `ForkServer.submit`.

    Modules that the payload names under "imports" are imported there first, for what they register.
    """
    return server.submit(task, dict(payload), limit_s, stage_limits=stage_limits)


def raise_refusal(answer: TaskResult) -> None:
    """Raises the error with which a task refused what the user asked, if that is how it ended."""
    failure = answer.error
    if failure is not None and failure.type.startswith(errors.__name__):
        raise getattr(errors, failure.type.rpartition(".")[2])(failure.message)
