"""Runs that tests only read: each script is recorded once for all workers, in a child of the warm fork server.

`graphdbg dump` in a process of its own costs 9 s of CPU, most of it the import of torch; a fork of the server records
the same graphs with `graphdbg.record`. What tests ask about processes (exit codes, output, deaths) they dump as a user
does. A recorded run is shared: whoever wants to change it takes a copy.

>>> run = recorded_once(folder, SCRIPT, inputs="first")       # the fixture `recorded_script` knows the folder
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import runpy
import sys
import textwrap
from pathlib import Path
from typing import Any

TASK = "tests.recording:task"


def recorded_once(place: Path, text: str, *words: str, name: str = "train.py", **options: Any) -> Path:
    """The run of a script with these words and these options of `graphdbg.record`, in a folder below `place`."""
    from graphdbg.toolkit.isolation import ForkServer, ask

    key = hashlib.blake2b(json.dumps([text, words, name, options]).encode(), digest_size=8).hexdigest()
    folder = place / key
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "recorded").exists():
            script = folder / name
            script.write_text(textwrap.dedent(text))
            with ForkServer(threads=os.cpu_count() or 1) as server:
                payload = {"script": str(script), "words": words, "run": str(folder / "run"), "options": options}
                answer = ask(TASK, payload, 300.0, server=server).answer()
            assert answer.status == "done", answer
            (folder / "recorded").touch()
    return folder / "run"


def task(payload: dict[str, Any]) -> None:
    """In the child: the script, run as `python SCRIPT WORDS` would, inside a recording."""
    import graphdbg

    script = payload["script"]
    os.chdir(Path(script).parent)
    sys.argv = [script, *payload["words"]]
    with graphdbg.record(payload["run"], **payload["options"]):
        runpy.run_path(script, run_name="__main__")
