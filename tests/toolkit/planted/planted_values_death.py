"""A child that tells two values and is then killed, in place of `node_values.child`; for what becomes of the rows before."""

import json
import os
import signal
from pathlib import Path
from typing import Any


def task(payload: dict[str, Any]) -> None:
    with Path(payload["lines"]).open("a") as lines:
        for index, name in enumerate(("x_1", "w_1")):
            row = {"event": "value", "index": index, "name": name, "dtype": "float32", "min": 0.0, "max": 1.0, "mean": 0.5}
            lines.write(json.dumps({**row, "nan": 0, "inf": 0, "eager_nan": 0, "eager_inf": 0}) + "\n")
        lines.write('{"event": "value", "na')  # torn
    os.kill(os.getpid(), signal.SIGKILL)
