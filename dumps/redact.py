"""Takes home folders, user names, scratch folders and credentials out of every text that leaves the machine.

Reports use it as it is; `pack` takes more away. It must not need torch, and must not touch anything but the text given to it.
What it cannot judge (your source lines, names of your modules and classes) stays in: that is what the privacy warning is for.

>>> Redactor(home="/home/ann", user="ann").text('File "/home/ann/code/train.py", line 3')
'File "~/code/train.py", line 3'
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

# Someone else's home may occur in a dump that was recorded on another machine.
ANY_HOME = re.compile(r"(?<![\w.~-])(?:/home|/Users|/data/home|/usr/home)/[^/\s\"'`:,;()\[\]<>]+")
WINDOWS_HOME = re.compile(r"(?i)\b[a-z]:\\{1,2}Users\\{1,2}[^\\\s\"']+")
SECRETS = (
    re.compile(r"\b(?:ghp|gho|ghu|ghs|ghr|github_pat|hf|sk|xoxb|xoxp|glpat|npm|pypi)[_-][A-Za-z0-9_-]{16,}\b"),
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    re.compile(r"(?<=://)[^/\s:@\"']+:[^/\s@\"']+(?=@)"),
    re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/-]{12,}=*"),
    re.compile(r"(?i)(?:(?<=password=)|(?<=api_key=)|(?<=secret_key=)|(?<=auth_token=))[^\s&\"']+"),
)
COMMON_USERS = frozenset({"root", "user", "runner", "ubuntu", "admin", "nobody", "docker", "jovyan", "build", "test"})


class Redactor:
    """Replaces paths by what they are (`~`, `<site-packages>`, `<tmp>`), longest first, then homes, user name and secrets."""

    def __init__(
        self, *, home: str | None = None, user: str | None = None, folders: Iterable[tuple[str, str]] | None = None
    ) -> None:
        self.home = home if home is not None else str(Path.home())
        self.user = user if user is not None else user_name()
        pairs = list(folders) if folders is not None else _known_folders()
        pairs.append((self.home, "~"))
        self._folders = sorted(
            {(p.rstrip("/"), name) for p, name in pairs if len(p.rstrip("/")) > 1}, key=lambda pair: (-len(pair[0]), pair[0])
        )

    def text(self, text: str) -> str:
        """The text without homes, user names, scratch folders and things that look like credentials."""
        for folder, name in self._folders:
            if folder in text:
                text = _at(folder).sub(lambda _, name=name: name, text)
        text = ANY_HOME.sub("~", text)
        text = WINDOWS_HOME.sub("~", text)
        if len(self.user) >= 3 and self.user not in COMMON_USERS:
            # As a part of a path or of an Inductor cache folder only: a user called "ann" must not eat words of the program.
            text = re.sub(rf"(?<=[/\\_=@]){re.escape(self.user)}(?=[/\\_@\s\"':]|$)", "<user>", text)
        return without_secrets(text)

    def leaks(self, text: str) -> list[str]:
        """What of this machine's home and user a text still shows; empty after `text`. For tests and a last check."""
        found = [folder for folder, _ in self._folders if _at(folder).search(text)]
        found += ANY_HOME.findall(text)
        return found


def without_secrets(text: str) -> str:
    """The text without things that look like credentials."""
    for secret in SECRETS:
        text = secret.sub("<secret>", text)
    return text


def _at(folder: str) -> re.Pattern[str]:
    """Finds a folder as a whole path prefix: `/root` neither in `/rootless` nor in `/data/root`."""
    return re.compile(r"(?<![\w.~-])" + re.escape(folder) + r"(?=[/\\\s\"'`:,;()\[\]<>]|$)")


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
    pairs.append((str(Path(__file__).resolve().parents[1]), "<graphdbg>"))
    scratch = {
        tempfile.gettempdir(),
        *(os.environ.get(name, "") for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")),
    }
    pairs += [(path, "<tmp>") for path in scratch if path]
    return pairs
