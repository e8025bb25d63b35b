"""Takes absolute paths, user names and credentials out of every text that leaves the machine.

Reports use it as it is; `pack` takes more away, by the same rules for paths (`pack.places`) and credentials
(`secrets`). Needs no torch, and looks at nothing but the text given to it. What it cannot judge (your source lines,
names of your modules and classes) stays in: that is what the privacy warning is for.

>>> Redactor(here="/home/ann/code").text('File "/home/ann/code/train.py", line 3; /data/ann/model.py')
'File "train.py", line 3; .../model.py'
"""

from __future__ import annotations

import getpass
import os
import re
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ..secrets import Secrets
from .places import Places

# Someone else's home may occur in a dump that was recorded on another machine.
ANY_HOME = re.compile(r"(?<![\w.~-])(?:/home|/Users|/data/home|/usr/home)/[^/\s\"'`:,;()\[\]<>]+")
COMMON_USERS = frozenset({"root", "user", "runner", "ubuntu", "admin", "nobody", "docker", "jovyan", "build", "test"})


class Redactor:
    """Replaces credentials by `<secret>` and paths by what they are (`<site-packages>`, `<tmp>`), by their place in the
    working folder `here`, or by `.../file.py`; then the user name."""

    def __init__(
        self,
        *,
        home: str | None = None,
        user: str | None = None,
        folders: Iterable[tuple[str, str]] | None = None,
        here: str | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        self.home = home if home is not None else str(Path.home())
        self.user = user if user is not None else user_name()
        self.secrets = secrets if secrets is not None else Secrets(os.environ)
        root = (here if here is not None else working_folder()).rstrip("/")
        self.places = Places([], root)
        pairs = {(path.rstrip("/"), name) for path, name in (_known_folders() if folders is None else folders)}
        pairs = {(root + "/", ""), *(pair for pair in pairs if pair[0] != root)}
        self._folders = sorted((pair for pair in pairs if len(pair[0]) > 1), key=lambda pair: (-len(pair[0]), pair[0]))

    def text(self, text: str) -> str:
        """The text without credentials, absolute paths and the user name."""
        text = self.secrets.text(text)
        for folder, name in self._folders:
            if folder in text:
                text = _at(folder).sub(lambda _, name=name: name, text)
        text = ANY_HOME.sub("<path>", self.places.text(text))
        if len(self.user) >= 3 and self.user not in COMMON_USERS:
            # As a part of a path or of an Inductor cache folder only: a user called "ann" must not eat words of the
            # program.
            text = re.sub(rf"(?<=[/\\_=@]){re.escape(self.user)}(?=[/\\_@\s\"':]|$)", "<user>", text)
        return text

    def leaks(self, text: str) -> list[str]:
        """What a text still shows of this machine's folders, absolute paths and credentials (by kind); empty after
        `text`. For a last check."""
        named = [self.home, *(folder for folder, _ in self._folders)]
        folders = [folder for folder in named if len(folder) > 1 and _at(folder).search(text)]
        return list(
            dict.fromkeys([*folders, *ANY_HOME.findall(text), *self.places.left(text), *self.secrets.left(text)])
        )


def working_folder() -> str:
    """The current folder; empty where it is gone."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _at(folder: str) -> re.Pattern[str]:
    """Finds a folder as a whole path prefix: `/root` neither in `/rootless` nor in `/data/root`."""
    end = "" if folder.endswith("/") else r"(?=[/\\\s\"'`:,;()\[\]<>]|$)"
    return re.compile(r"(?<![\w.~-])" + re.escape(folder) + end)


def user_name() -> str:
    """The name of the calling user; empty where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose uid has no name
        return ""


def _known_folders() -> list[tuple[str, str]]:
    """Folders whose place says more about the machine than about the bug."""
    paths = sysconfig.get_paths()
    pairs = [(path, "<site-packages>") for path in {paths["purelib"], paths["platlib"], *site.getsitepackages()}]
    pairs.append((site.getusersitepackages(), "<site-packages>"))
    pairs += [
        (path, "<python>") for path in {paths["stdlib"], sys.base_prefix, sys.prefix} if path not in ("/usr", "/")
    ]
    pairs.append((str(Path(__file__).resolve().parents[2]), "<graphdbg>"))
    scratch = {
        tempfile.gettempdir(),
        *(os.environ.get(name, "") for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")),
    }
    pairs += [(path, "<tmp>") for path in scratch if path]
    return pairs
