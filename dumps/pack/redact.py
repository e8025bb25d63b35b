"""Takes absolute paths, user names and credentials out of every text that leaves the machine.

Reports use it as it is; `pack` removes more, by the same rules for paths (`Places`) and credentials (`secrets`). Needs
no torch, and reads only the text given to it. What it cannot judge (your source lines, names of your modules and
classes) stays in: that is what the privacy warning is for.

>>> Redactor(here="/home/ann/code").text('File "/home/ann/code/train.py", line 3; /data/ann/model.py')
'File "train.py", line 3; .../model.py'
"""

from __future__ import annotations

import getpass
import os
import os.path
import re
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from ..secrets import Secrets

_PACKAGES = re.compile(r".*[/\\]((?:site|dist)-packages[/\\].+)", re.DOTALL)
_TORCH = re.compile(
    r".*(/torch/(?:_\w+|ao|autograd|cuda|distributed|export|fx|func|library|nn|optim|utils)/.+\.py)", re.DOTALL
)
_STANDARD = re.compile(r".*/lib(?:64)?/python3(?:\.\d+)?t?/(.+)", re.DOTALL)
_CACHE = re.compile(r".*/(?:torchinductor|\.triton)[^/]*/(?:cache/)?(.+)", re.DOTALL)
_EVERYWHERE = re.compile(r"/proc/(?:self|meminfo)(?:/\w+)*|/dev/(?:null|full|zero|shm|u?random|std(?:in|out|err))")
"""Files that every machine has, whose paths reveal nothing."""

_DRIVE = r"[A-Za-z]:"
_WINDOWS = re.compile(rf"{_DRIVE}[\\/]|\\\\[\w.]")
_BETWEEN = re.compile(r"\\+")
_PART = r"[\w.+@%~=$#-]"
_KEPT = (
    r"<(?:path|folder(?:-\d+)?|tmp|cache|python|torch|site-packages|graphdbg|user|secret|host-\d+)>(?:[\w.+@%~-]|/)*"
)
_BEGIN = r"(?:(?<![\w.~+/\\$)\]}-])|(?<=\s-[A-Zo])|(?<=^-[A-Zo])|(?<=-isystem)|(?<=file:)|(?<=file://)|(?<=file:///)|(?<=\\[nrt]))"
_ABSOLUTE = re.compile(
    rf"(?P<kept>{_KEPT})"
    r"|(?<=[\"'`])/[^\"'`\n\\]*?/[^\"'`\n\\]+(?=\\?[\"'`])"  # between quotes, with spaces
    r"|(?<=File: )/[^\n:]+(?=:\d+ in )"
    rf"|{_BEGIN}/(?!\d+/\d){_PART}+(?:/{_PART}+)+/?"
    r"|(?<=[\"'`])/\w[\w.+-]*(?=\\?[\"'`])"  # a file or folder of the root
    rf"|{_BEGIN}/\w[\w+-]*\.[A-Za-z]\w{{0,7}}\b(?!\()"
    rf"|{_BEGIN}{_DRIVE}"
    rf"(?:\\{{1,2}}(?![nrt\"'](?:\W|$))|/)(?:(?:\w[\w .+@%~$-]*?|{_PART}+)(?:\\{{1,2}}|/))*{_PART}+"
    rf"|{_BEGIN}\\\\\w[\w.-]*(?:\\{_PART}+)+|{_BEGIN}\\{{4}}\w[\w.-]*(?:\\\\{_PART}+)+"
)
_PUBLIC = re.compile(
    r"site-packages[/\\](?:torch|torchgen|functorch|triton|numpy|sympy|networkx)[/\\]|^<python>/|^<torch>/"
)
_CODE = frozenset({".py", ".pyx", ".so", ".c", ".cc", ".cpp", ".h", ".hpp", ".cu", ".cuh", ".ipynb", ".ptx", ".o"})
_COMPILERS = ("g++", "gcc", "clang", "clang++", "c++", "cc", "nvcc", "ptxas", "ld", "ldd", "cl.exe")
_TOOLS = frozenset((*_COMPILERS, "python", "python3", "bash", "sh"))
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,8}")
_MANY_USERS = ("home", "Users", "mnt", "data", "scratch", "work", "srv", "export", "var", "tmp", "opt", "nfs", "fs")


class Places:
    """Names for the files of one run. `files`: the absolute paths of the user's own files in its stacks; the first one
    lies in the main project, unless `root` is the folder that names are relative to."""

    def __init__(self, files: Iterable[str], root: str = "") -> None:
        named = (slashed(file) for file in files if is_absolute(file))
        own = list(dict.fromkeys(file for file in named if known(file) is None))
        self.files = frozenset(own)
        self.root = slashed(root)
        self.roots = [folder for folder in roots(own) if not root or not f"{folder}/".startswith(f"{self.root}/")]
        self.roots[:0] = filter(None, [self.root])
        self._names: dict[str, str] = {}

    def text(self, text: str) -> str:
        """A text in which each absolute path, of Windows too, is replaced by its name."""
        if "/" not in text and "\\" not in text:
            return text
        return _ABSOLUTE.sub(lambda match: match[0] if match["kept"] else self.name(match[0]), text)

    def left(self, text: str) -> list[str]:
        """The absolute paths in a text, except those that every machine has."""
        paths = (match[0] for match in _ABSOLUTE.finditer(text) if not match["kept"])
        return [path for path in paths if self.name(path) != path]

    def name(self, path: str) -> str:
        """The name of an absolute path; any other text as it is."""
        if path not in self._names:
            self._names[path] = self._name(path) if is_absolute(path) else path
        return self._names[path]

    def _name(self, path: str) -> str:
        path = os.path.normpath(slashed(path)) + ("/" if path.endswith("/") else "")
        known_name = known(path)
        if known_name is not None:
            return known_name
        for number, root in enumerate(self.roots, 1):
            if path.startswith(root + "/"):
                inside = path[len(root) + 1 :]
                return inside if number == 1 else f"<folder-{number}>/{inside}"
            if path.rstrip("/") == root:
                return "<folder>" if number == 1 else f"<folder-{number}>"
        return without_folder(path.rstrip("/").rpartition("/")[2])

    def ending_in(self, relative: str) -> str | None:
        """The name of the user's file whose path ends with `relative` (torch cuts off a beginning shared with its own
        folder)."""
        return next((self.name(file) for file in sorted(self.files) if file.endswith("/" + relative)), None)


def is_absolute(path: str) -> bool:
    """Whether the text is an absolute path."""
    return (path.startswith("/") or bool(_WINDOWS.match(path))) and "\n" not in path


def slashed(path: str) -> str:
    """The path with slashes and without a drive, so that Windows paths look like others."""
    if _WINDOWS.match(path):
        path = "/" + _BETWEEN.sub("/", re.sub(f"^{_DRIVE}", "", path)).lstrip("/")
    return path


def known(path: str) -> str | None:
    """The name of a file that is not the user's: of an installed package, Python, a compiler's cache, or one that every
    machine has; None for others."""
    for pattern, name in ((_PACKAGES, ""), (_CACHE, "<cache>/"), (_STANDARD, "<python>/"), (_TORCH, "<torch>")):
        if match := pattern.match(path):
            return name + match[1]
    return path if _EVERYWHERE.fullmatch(path) else None


def public(name: str) -> bool:
    """Whether the source of a file with that redacted name is public, so that its lines reveal nothing about the
    user."""
    return bool(_PUBLIC.search(name))


def without_folder(name: str) -> str:
    """A file's bare name, and that only if it holds code: its folder must not be named."""
    suffix = PurePosixPath(name).suffix
    if suffix in _CODE or name in _TOOLS:
        return f".../{name}"
    return f"<path>{suffix}" if _SUFFIX.fullmatch(suffix) else "<path>"


def roots(files: Iterable[str]) -> list[str]:
    """The deepest folders that contain the files, one for each part of the disk."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for file in files:
        parts = file.split("/")[1:-1]
        if parts:
            groups.setdefault(tuple(parts[: 2 if parts[0] in _MANY_USERS else 1]), []).append("/" + "/".join(parts))
    return [os.path.commonpath(folders) for folders in groups.values()]


# A home folder of another machine's user may occur in a dump that was recorded there.
ANY_HOME = re.compile(r"(?<![\w.~-])(?:/home|/Users|/data/home|/usr/home)/[^/\s\"'`:,;()\[\]<>]+")
COMMON_USERS = frozenset({"root", "user", "runner", "ubuntu", "admin", "nobody", "docker", "jovyan", "build", "test"})


class Redactor:
    """Replaces credentials by `<secret>`, and paths by their kind (`<site-packages>`, `<tmp>`), by their path inside
    the working folder `here`, or by `.../file.py`; then the user name."""

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
            # Only as part of a path or of an Inductor cache folder: a user called "ann" must not remove words of the
            # program.
            text = re.sub(rf"(?<=[/\\_=@]){re.escape(self.user)}(?=[/\\_@\s\"':]|$)", "<user>", text)
        return text

    def leaks(self, text: str) -> list[str]:
        """This machine's folders, absolute paths and credentials (by kind) that a text still shows; empty after `text`.
        For a final check."""
        named = [self.home, *(folder for folder, _ in self._folders)]
        folders = [folder for folder in named if len(folder) > 1 and _at(folder).search(text)]
        left = [*folders, *ANY_HOME.findall(text), *self.places.left(text), *self.secrets.left(text)]
        return list(dict.fromkeys(left))


def working_folder() -> str:
    """The current folder; empty where it is gone."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _at(folder: str) -> re.Pattern[str]:
    """A pattern for a folder as a whole path prefix: `/root` neither in `/rootless` nor in `/data/root`."""
    end = "" if folder.endswith("/") else r"(?=[/\\\s\"'`:,;()\[\]<>]|$)"
    return re.compile(r"(?<![\w.~-])" + re.escape(folder) + end)


def user_name() -> str:
    """The name of the calling user; empty where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose uid has no name
        return ""


def _known_folders() -> list[tuple[str, str]]:
    """Folders whose paths say more about the machine than about the bug, with their stand-ins."""
    paths = sysconfig.get_paths()
    pairs = [(path, "<site-packages>") for path in {paths["purelib"], paths["platlib"], *site.getsitepackages()}]
    pairs.append((site.getusersitepackages(), "<site-packages>"))
    of_python = {paths["stdlib"], sys.base_prefix, sys.prefix} - {"/usr", "/"}
    pairs += [(path, "<python>") for path in of_python]
    pairs.append((str(Path(__file__).resolve().parents[2]), "<graphdbg>"))
    caches = (os.environ.get(name, "") for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"))
    pairs += [(path, "<tmp>") for path in {tempfile.gettempdir(), *caches} if path]
    return pairs
