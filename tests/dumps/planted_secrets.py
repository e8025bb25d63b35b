"""A small run with every kind of secret and of absolute path in all its free texts: what `pack` and `report` may not
tell."""

from __future__ import annotations

import gzip
import html
import json
import re
import zipfile
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphdbg.dumps.atomic import write_file
from graphdbg.dumps.graph_folder import encode
from graphdbg.dumps.process import FILE, ProcessRecord
from graphdbg.dumps.schema import FORMAT, GraphRecord, InputRecord, InputsRecord, RunRecord
from graphdbg.dumps.store import Run, open_run
from graphdbg.dumps.writer import RunWriter

BODY = "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z"
LONG = "q7" + BODY + BODY


class Planted(NamedTuple):
    """A secret, how a text says it (`{}` stands for it), and how a command line does."""

    secret: str
    text: str = "login with {} failed"
    words: tuple[str, ...] = ()


KINDS = {
    "variable of this process": Planted("correct horse/battery"),
    "variable of the run": Planted("tr0ub4dor"),
    "-p": Planted("hunter22", words=("-p", "{}")),
    "--password": Planted("sesame+open", words=("--password", "{}")),
    "--token=": Planted("tok.en-1234", words=("--token={}",)),
    "--api-key": Planted("k3y-of-mine", words=("--api-key", "{}")),
    "--wandb-key": Planted("w4ndb0123abc", words=("--wandb-key", "{}")),
    "-H": Planted("headervalue77", words=("-H", "X-Api-Key: {}")),
    "flag in an error": Planted("s3same99", "Command '['mysql', '--password', '{}']' returned 1"),
    "bearer": Planted("be4rer" + BODY, "Authorization: Bearer {}", ("-H", "Authorization: Bearer {}")),
    "basic": Planted("dXNlcjpwYXNzd29yZA==", 'headers {{"authorization": "Basic {}"}}'),
    "assignment": Planted("wJalrXUtnFEMI/K7MDENG/bPxRfi" + "EXAMPLEKEY", "aws_secret_access_key={}"),
    "AWS": Planted("AKIA" + "Q3EGRZ5M2T7XWJ4K"),
    "GitHub": Planted("ghp" + "_" + BODY),
    "GitLab": Planted("glpat" + "-" + BODY),
    "Hugging Face": Planted("hf" + "_" + BODY),
    "OpenAI": Planted("sk" + "-proj-" + BODY),
    "Slack": Planted("xoxb" + "-1234567890-" + BODY),
    "Google": Planted("AIza" + "Sy" + BODY + "-"),
    "Stripe": Planted("sk" + "_live_" + BODY),
    "JWT": Planted("eyJhbGciOi" + BODY + ".eyJzdWIiOi" + BODY + "." + BODY),
    "PEM": Planted("MIIEpAIBAAKCAQ" + LONG, "-----BEGIN RSA PRIVATE " + "KEY-----\n{}\n-----END RSA PRIVATE KEY-----"),
    "address": Planted("ann:pa55w0rd", "https://{}@git.example.org/x.git"),
    "exported": Planted("plain.word", "MY_SECRET='{}'"),
}
PATHS = (
    "/home/anneliese/gpt/train.py",
    "/data/acme/model/block.py",
    "/weights of us/last week/w.bin",
    "/train.py",
    "/usr/bin/g++",
    "C:\\Users\\Ann\\model.py",
    "D:/our files/model.py",
    "\\\\server\\share\\model.py",
    "/opt/env/lib/python3.12/site-packages/torch/fx/a.py",
)
TEXT = "\n".join(
    [
        *(kind.text.format(kind.secret) for kind in KINDS.values()),
        *(f'cannot open "{path}"\n  File "{path}", line 3, in f\n    y = f(x)' for path in PATHS),
        *(f"see {path}:3 and -o{path}, b'\\n{path}'" for path in PATHS if " " not in path),
    ]
)
WORDS = ["train.py", *(word.format(kind.secret) for kind in KINDS.values() for word in kind.words), *PATHS]
_PLACES = "".join(f"# File: {path}:3 in f, code: y = f(x)\n" for path in PATHS if ":" not in path)
CODE = f'{_PLACES}"""{TEXT}"""\nbuf0 = aten.sin(x)\n'
_ABSOLUTE = re.compile(
    rb"(?<![\w.>/\\)\]])/(?!dev/null\b|proc/self\b)[A-Za-z_][\w+. -]*/[\w.+-]|(?<=[\"'])/\w+\.\w"
    rb"|(?<!\w)[A-Za-z]:\\+(?![nrt\"'])\w|(?<!\w)[A-Za-z]:/\w|\\\\\w[\w.]*\\[\w\\]|-o/\w|\\n/\w+[/.]"
)


def planted_run(folder: Path, record: GraphRecord) -> Run:
    """A run of one graph that failed, with everything planted in it."""
    environment = {"OMP_NUM_THREADS": "4", "DATABASE_PASSWORD": KINDS["variable of the run"].secret}
    options = {"lr": "1e-3", TEXT: TEXT}
    writer = RunWriter.create(
        folder, RunRecord(format=FORMAT, command=["python", *WORDS], environment=environment, started=5.0)
    )
    process = writer.process("pid7")
    record.strings = [f'  File "{PATHS[0]}", line 3, in f\n    y = f(x)\n', TEXT]
    record.graph.nodes[1].stack = 0
    record.compile_kwargs = {"options": {"dict": [[name, value] for name, value in options.items()]}}
    record.config = {**record.config, "dynamo": {"debug_dir_root": TEXT}}
    process.save_graph(record)
    seen = [InputRecord(name="x", value=record.graph.nodes[0].value, source=TEXT)]
    process.save_inputs(record.id, InputsRecord(format=FORMAT, policy="first", inputs=seen, reason=TEXT))
    process.save_code(record.id, {"output_code.py": CODE})
    process.journal.event("failed", graph=record.id, seconds=1.25, message=TEXT, extra={PATHS[0]: TEXT})
    process.journal.event("why", graph=record.id, what="break", stack=[[PATHS[0], 31, "step", "y = f(x)"]], text=TEXT)
    process.close()
    reported = ProcessRecord(format=FORMAT, name=process.name, pid=7, host="node17", started=6.0, argv=WORDS)
    write_file(process.path / FILE, encode(reported))
    return open_run(folder)


def layers(path: Path) -> dict[str, list[bytes]]:
    """All members, unpacked to the last layer; of JSON also the texts without JSON's escapes."""
    results: dict[str, list[bytes]] = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
            if ".msgpack" in name:
                data = json.dumps(msgspec.msgpack.decode(data)).encode()
            results[name] = [name.encode(), data]
            if ".json" in name:
                results[name] += [text.encode() for line in data.splitlines() for text in _texts(json.loads(line))]
    return results


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in _texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def secrets_in(path: Path) -> set[str]:
    """The kinds of secret that a member of the archive still holds."""
    every = [layer for parts in layers(path).values() for layer in parts]
    return {name for name, kind in KINDS.items() if any(kind.secret.encode() in layer for layer in every)}


def planted_text(page: str) -> str:
    """All that a page says, without the escapes of HTML and of JSON."""
    html_alone, *scripts = re.split(r'<script type="application/json"[^>]*>(.*?)</script>', page, flags=re.DOTALL)[:2]
    return "\n".join([html.unescape(html_alone), *(text for script in scripts for text in _texts(json.loads(script)))])


def secrets_in_text(text: str) -> set[str]:
    """The kinds of secret in a text."""
    return {name for name, kind in KINDS.items() if kind.secret in text}


def paths_in_text(text: str) -> list[bytes]:
    """The absolute paths in a text."""
    return [item[0] for item in _ABSOLUTE.finditer(text.encode())]


def paths_in(path: Path) -> list[tuple[str, str]]:
    """Member and absolute path, for each that is left."""
    return [
        (name, layer[max(item.start() - 40, 0) : item.end() + 20].decode(errors="replace"))
        for name, parts in layers(path).items()
        for layer in parts[:1] + parts[2:] + (parts[1:2] if ".json" not in name else [])
        for item in _ABSOLUTE.finditer(layer)
    ]
