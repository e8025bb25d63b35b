"""What the tests of isolation ask a forked child to do; imported there by name, so it needs nothing of the tests."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.isolation import child
from graphdbg.toolkit.isolation.child import mark, report

Payload = dict[str, Any]


def echo(payload: Payload) -> Payload:
    """Gives back what it got."""
    return payload


def count(payload: Payload) -> str:
    """Reports numbers, then ends as it is told."""
    for number in range(payload["upto"]):
        report({"number": number, "text": "x" * payload.get("width", 0)})
    if payload["ends"] == "killed":
        os.write(child._events_fd or 0, b'{"number": 1')  # torn
        os.kill(os.getpid(), signal.SIGKILL)
    if payload["ends"] == "refuses":
        raise UsageError("no such thing", "it was never made", "make one")
    return payload["ends"]


def nap(payload: Payload) -> float:
    """Sleeps."""
    time.sleep(payload["seconds"])
    return payload["seconds"]


def doze(payload: Payload) -> None:
    """Prints and then takes some time."""
    print(payload["log"], flush=True)
    time.sleep(payload["seconds"])


def fail(payload: Payload) -> None:
    """Raises."""
    raise ValueError(payload["text"])


def segfault(_payload: Payload) -> None:
    """Reads address 0."""
    mark("run")
    print("just before", flush=True)
    ctypes.string_at(0)


def abort(_payload: Payload) -> None:
    """Aborts."""
    os.abort()


def leave(payload: Payload) -> None:
    """Ends the process behind Python's back."""
    os._exit(payload["code"])


def kill_itself(_payload: Payload) -> None:
    """Dies of SIGKILL that nobody else sent."""
    os.kill(os.getpid(), signal.SIGKILL)


def spin(_payload: Payload) -> None:
    """Never ends, in Python."""
    mark("compile")
    while True:
        pass


def spin_in_c(_payload: Payload) -> None:
    """Never ends, in C with the interpreter lock held and signals not looked at."""
    re.match(r"(a+)+$", "a" * 40 + "b")


def hang_with_child(payload: Payload) -> None:
    """Never ends, and has started a program (as a compile starts g++)."""
    process = subprocess.Popen(["sleep", "1000"])
    with open(payload["pid_file"], "w") as file:  # noqa: PTH123
        file.write(str(process.pid))
    time.sleep(1000)


def leave_orphan(payload: Payload) -> int:
    """Ends, and leaves a program of another session behind."""
    return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid


def hog(payload: Payload) -> int:
    """Takes more memory than there is."""
    held = [bytearray(64 << 20) for _ in range(payload["blocks"])]
    return len(held)


def shout(payload: Payload) -> None:
    """Prints a lot, through Python and through a program."""
    sys.stdout.write("first line\n")
    for _ in range(payload["lines"]):
        sys.stdout.write("x" * 99 + "\n")
    sys.stdout.flush()
    subprocess.run(["echo", "last line"], check=True)


def environment(_payload: Payload) -> dict[str, str]:
    """The variables that this process sees."""
    return dict(os.environ)


def no_json(_payload: Payload) -> object:
    """A value without a JSON form."""
    return object()


def process_state(_payload: Payload) -> dict[str, Any]:
    """What kind of process this is."""
    import resource

    return {
        "leader": os.getpgid(0) == os.getpid(),
        "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        "parent": os.getppid(),
    }


def leave_orphan_and_die(payload: Payload) -> None:
    """Starts a program in a session of its own, leaves shared memory, and dies of a signal."""
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with open(payload["pid_file"], "w") as file:  # noqa: PTH123
        file.write(str(process.pid))
    if "shared" in payload:
        with open(payload["shared"].replace("PID", str(os.getpid())), "w") as file:  # noqa: PTH123
            file.write("x")
    os.kill(os.getpid(), signal.SIGSEGV)


def half_a_library(payload: Payload) -> None:
    """Hangs in a program that is called like a linker and has begun its output."""
    library = os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "half.so")  # noqa: PTH118
    with open(library, "w") as file, open(payload["said"], "w") as said:  # noqa: PTH123
        file.write("half")
        said.write(library)
    subprocess.run([sys.executable, "-c", "import time; time.sleep(1000)", "-o", library], check=False)


def dwell(payload: Payload) -> None:
    """Is in one stage after the other for so long."""
    for stage, seconds in payload["stages"]:
        mark(stage)
        time.sleep(seconds)


def tell_and_die(_payload: Payload) -> None:
    """Says something and dies."""
    report({"nodes": 7})
    os.abort()


def no_address_limit() -> None:
    """In the server: children are not limited in address space, as where a GPU may be used."""
    from graphdbg.toolkit.isolation import processes

    processes.address_space_tells = lambda: False


def hog_slowly(_payload: Payload) -> None:
    """Takes memory without end."""
    held = []
    while True:
        held.append(b"x" * (16 << 20))
        time.sleep(0.05)


def chatter(payload: Payload) -> str:
    """Tells a stage, prints, and ends when a file is there."""
    mark("compile")
    print("half way", flush=True)
    while not Path(payload["until"]).exists():
        time.sleep(0.02)
    return "done"
