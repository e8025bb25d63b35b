"""The name of a file without the place where it lay: relative to its project, its package or the Python it belongs to.

A name keeps what a reader of stacks needs (the package, the file, the folder inside the project) and nothing that lies
above. It never looks at the disk: the files may be those of another day, or of another machine.

>>> places = Places(["/home/ann/gpt/train.py", "/home/ann/gpt/model/block.py"])
>>> places.name("/home/ann/gpt/model/block.py"), places.name("/opt/env/lib/python3.12/site-packages/torch/nn/x.py")
('model/block.py', 'site-packages/torch/nn/x.py')
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

_PACKAGES = re.compile(r".*[/\\]((?:site|dist)-packages[/\\].+)", re.DOTALL)
_TORCH = re.compile(
    r".*(/torch/(?:_\w+|ao|autograd|cuda|distributed|export|fx|func|library|nn|optim|utils)/.+\.py)", re.DOTALL
)
_STANDARD = re.compile(r".*/lib(?:64)?/python3(?:\.\d+)?t?/(.+)", re.DOTALL)
_CACHE = re.compile(r".*/(?:torchinductor|\.triton)[^/]*/(?:cache/)?(.+)", re.DOTALL)
_EVERYWHERE = re.compile(r"/proc/(?:self|meminfo)(?:/\w+)*|/dev/(?:null|full|zero|shm|u?random|std(?:in|out|err))")
"""Files that every machine has: a path of them reveals nothing."""

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
_TOOLS = frozenset(
    {
        "g++",
        "gcc",
        "clang",
        "clang++",
        "c++",
        "cc",
        "nvcc",
        "ptxas",
        "ld",
        "ldd",
        "cl.exe",
        "python",
        "python3",
        "bash",
        "sh",
    }
)
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,8}")
_MANY_USERS = ("home", "Users", "mnt", "data", "scratch", "work", "srv", "export", "var", "tmp", "opt", "nfs", "fs")


class Places:
    """Names for the files of one run. `files` are the absolute paths of the user's own files that its stacks mention;
    the first of them lies in the main project, unless `root` names the folder that files are named relative to."""

    def __init__(self, files: Iterable[str], root: str = "") -> None:
        named = (slashed(file) for file in files if is_absolute(file))
        own = list(dict.fromkeys(file for file in named if known(file) is None))
        self.files = frozenset(own)
        self.root = slashed(root)
        self.roots = [folder for folder in roots(own) if not root or not f"{folder}/".startswith(f"{self.root}/")]
        self.roots[:0] = filter(None, [self.root])
        self._names: dict[str, str] = {}

    def text(self, text: str) -> str:
        """A text in which each absolute path, also one of Windows, is replaced by its name."""
        if "/" not in text and "\\" not in text:
            return text
        return _ABSOLUTE.sub(lambda match: match[0] if match["kept"] else self.name(match[0]), text)

    def left(self, text: str) -> list[str]:
        """The absolute paths that are in a text, but for those that every machine has."""
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
        """The name of the user's file whose path ends so (torch cuts the part that it shares with its own folder)."""
        return next((self.name(file) for file in sorted(self.files) if file.endswith("/" + relative)), None)


def is_absolute(path: str) -> bool:
    """Whether the text is an absolute path."""
    return (path.startswith("/") or bool(_WINDOWS.match(path))) and "\n" not in path


def slashed(path: str) -> str:
    """The path with slashes, without a drive: of Windows as elsewhere."""
    if _WINDOWS.match(path):
        path = "/" + _BETWEEN.sub("/", re.sub(f"^{_DRIVE}", "", path)).lstrip("/")
    return path


def known(path: str) -> str | None:
    """The name of a file that is not the user's: of an installed package, Python, a compiler's cache, every machine."""
    if match := _PACKAGES.match(path):
        return match[1]
    if match := _CACHE.match(path):
        return f"<cache>/{match[1]}"
    if match := _STANDARD.match(path):
        return f"<python>/{match[1]}"
    if match := _TORCH.match(path):
        return f"<torch>{match[1]}"
    return path if _EVERYWHERE.fullmatch(path) else None


def public(name: str) -> bool:
    """Whether the source of a file of that name is public, so that its lines reveal nothing of the user."""
    return bool(_PUBLIC.search(name))


def without_folder(name: str) -> str:
    """The bare name of a file that may not be named further, and only if it holds code."""
    suffix = PurePosixPath(name).suffix
    if suffix in _CODE or name in _TOOLS:
        return f".../{name}"
    return f"<path>{suffix}" if _SUFFIX.fullmatch(suffix) else "<path>"


def roots(files: Iterable[str]) -> list[str]:
    """The folders that hold the files, as deep as may be, one for each part of the disk."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for file in files:
        parts = file.split("/")[1:-1]
        if parts:
            groups.setdefault(tuple(parts[: 2 if parts[0] in _MANY_USERS else 1]), []).append("/" + "/".join(parts))
    return [os.path.commonpath(folders) for folders in groups.values()]
