"""Takes absolute paths, user names and credentials out of every text that leaves the machine.

Reports use it as it is; `pack` removes more, by the same rules for paths (`Places`) and credentials (`Secrets`). Needs
no torch, and reads only the text given to it. What it cannot judge (your source lines, names of your modules and
classes) stays in: that is what the privacy warning is for.

Credentials are known forms by rules, values of variables and arguments whose names look secret, and words that look
random. A rule is a name, texts without which it cannot match, and an expression for the text to replace: a new kind of
token is one more line in RULES. Which environment variables may be kept in a run (settings of torch, its compilers and
the job) stands in ALLOWED, each by its full name.

>>> Redactor(here="/home/ann/code").text('File "/home/ann/code/train.py", line 3; /data/ann/model.py')
'File "train.py", line 3; .../model.py'
>>> Secrets({"DB_PASSWORD": "hunter22"}).text("login with hunter22 failed, token ghp_abcdefghijklmnopqrstuvwxyz0123")
'login with <secret> failed, token <secret>'
"""

from __future__ import annotations

import getpass
import json
import math
import os
import os.path
import re
import site
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import quote

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


ALLOWED = (
    "CUBLAS_WORKSPACE_CONFIG", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "KMP_AFFINITY", "LOCAL_RANK",
    "LOCAL_WORLD_SIZE", "MKL_NUM_THREADS", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_ENABLE_MPS_FALLBACK", "RANK", "TORCHDYNAMO_DISABLE",
    "TORCHDYNAMO_VERBOSE", "TORCHINDUCTOR_COMPILE_THREADS", "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING",
    "TORCHINDUCTOR_CPP_WRAPPER", "TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TORCHINDUCTOR_FREEZING",
    "TORCHINDUCTOR_FX_GRAPH_CACHE", "TORCHINDUCTOR_MAX_AUTOTUNE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_COMPILE_DEBUG", "TORCH_COMPILE_DISABLE", "TORCH_DEVICE_BACKEND_AUTOLOAD", "TRITON_INTERPRET", "WORLD_SIZE",
)  # fmt: skip

_PLAIN = re.compile(r"[\w.,:+= -]{0,64}", re.ASCII)


def shareable(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of ALLOWED whose value is a plain setting: short, and no path."""
    return {name: text for name, text in variables.items() if name in ALLOWED and _PLAIN.fullmatch(text)}


STAND_IN = "<secret>"


class Rule(NamedTuple):
    """One known form of a credential. Every text that it matches contains one of `marks`."""

    name: str
    marks: tuple[str, ...]
    pattern: re.Pattern[str]


def _rule(name: str, marks: str, pattern: str) -> Rule:
    return Rule(name, tuple(marks.split()), re.compile(pattern))


_END = r"(?![A-Za-z0-9])"
_START = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt]))"
RULES = (
    _rule("private key", "-----BEGIN",
          r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|\Z)"),
    _rule("AWS key", "AKIA ASIA ABIA ACCA", _START + r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}" + _END),
    _rule("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        _START + r"(?:gh[pousr]|github_pat)_[A-Za-z0-9_]{16,}"),
    _rule("GitLab token", "gl", _START + r"gl(?:pat|ptt|dt|rt|rtr|cbt|ft|soat|imt|agent|oas|ffct)-[A-Za-z0-9_.-]{16,}"),
    _rule("Hugging Face token", "hf_ api_org_", _START + r"(?:hf|api_org)_[A-Za-z0-9]{16,}"),
    _rule("OpenAI or Anthropic key", "sk-", _START + r"sk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{16,}"),
    _rule("Slack token", "xox xapp-", _START + r"(?:xox[abceoprs]|xapp)-[A-Za-z0-9-]{10,}"),
    _rule("Slack address", "hooks.slack.com", r"(?<=hooks\.slack\.com/)[a-z]+/[A-Za-z0-9_/+-]{16,}"),
    _rule("Google key", "AIza GOCSPX- ya29.",
          _START + r"(?:AIza[A-Za-z0-9_-]{30,}|GOCSPX-[A-Za-z0-9_-]{16,}|ya29\.[A-Za-z0-9_.-]{16,})"),
    _rule("Stripe key", "_live_ _test_ whsec_", _START + r"(?:(?:sk|rk|pk)_(?:live|test)_|whsec_)[A-Za-z0-9]{16,}"),
    _rule("JSON web token", "eyJ", _START + r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"),
    _rule("password of an address", "://", r"(?<=://)[^/\s:@\"'<>]*:[^/\s@\"'<>]+(?=@)"),
    _rule("header", "uthorization UTHORIZATION",
          r"(?i)(?<=authorization)(?:\\?[\"'])?\s?[:=]\s?\\?[\"']?(?:[a-z]+ )?[^\s\"'\\,;<>]{4,}"),
    _rule("bearer token", "earer EARER", r"(?i)(?<=bearer )[A-Za-z0-9._~+/-]{12,}=*"),
    _rule("cookie", "ookie: ", r"(?<=[Cc]ookie: )[^\s\"'\\<>]{8,}"),
    _rule("package registry token", "npm_ pypi- rubygems_",
          _START + r"(?:npm_|pypi-|rubygems_)(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{16,}"),
    _rule("container registry token", "dckr_", _START + r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{16,}"),
    _rule("cloud token", "do dapi hvs. SG. AccountKey",
          _START + r"(?:do[opr]_v1_[a-f0-9]{32,}|dapi[a-f0-9]{32}(?:-\d)?|hvs\.[A-Za-z0-9_-]{16,}"
          r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|(?<=AccountKey=)[A-Za-z0-9+/=]{30,})"),
    _rule("model service token", "r8_ gsk_ nvapi- pplx- wandb_v1_ KGAT_",
          _START + r"(?:r8_|gsk_|nvapi-|pplx-|wandb_v1_|KGAT_)(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{16,}"),
)  # fmt: skip
"""The known forms. None of them matches a replacement."""

_NAME = (
    r"passw(?:or)?d|passphrase|secret|credentials?|(?:api|access|private|account|auth|license|wandb|signing|encryption)[_-]?key"
    r"|(?:auth|access|api|hf|hub|bearer|refresh|session)[_-]?token"
)
_SECRET_NAME = re.compile(
    rf"(?i){_NAME}|token(?!s|i[sz])|passw|authorization|(?:^|[_.-])(?:key|auth|pwd|pw|pat|pass|sas|dsn|cookie)(?:$|[_.-])"
)
_VALUE = r"(?:[^\s\"'`,;&)}\]\\<>]|\\(?![nrt\"'\\]))"
_ASSIGNED = re.compile(
    rf"(?i)(?P<head>(?<![A-Za-z0-9])[\w.-]{{0,40}}?(?:{_NAME})(?:\\?[\"'])?\s?[=:]\s?\\?[\"']?)(?P<value>{_VALUE}{{4,}})"
)
_EXPORTED = re.compile(
    rf"(?P<head>\b(?P<name>[A-Z][A-Z0-9_]{{2,60}})(?:\\?[\"'])?[=:]\s?\\?[\"']?)(?P<value>{_VALUE}{{4,}})"
)
_FLAGGED = re.compile(
    rf"(?P<head>(?<![\w-])--?(?P<name>[A-Za-z][\w-]{{0,60}})(?:\\?[\"'],)?(?:=| "
    rf")\s?\\?[\"']?)(?P<value>(?!-){_VALUE}{{4,}})"
)
_LIKELY = re.compile(
    r"(?i)(?P<head>(?<![A-Za-z0-9])(?:[\w-]{0,40}[_-])?(?:token|auth|cookie|session|key)(?:\\?[\"'])?\s?[=:]\s?(?P<quote>\\?[\"'])?)"
    r"(?P<value>(?=[^\s\d]*\d)(?=[^\sA-Za-z]*[A-Za-z])[A-Za-z0-9+/=_.-]{12,})"
)
"""Names that also hold other things: the value has to look like a credential, and not like a program's name."""

_ATTACHED = re.compile(r"-p(?=\S*\d)[^\s=]{5,}")
_PAIR = re.compile(r"[^\s:]+:\S+")
_HEADER = re.compile(r"(?P<name>[\w-]+)\s*:\s*(?P<value>.+)", re.DOTALL)
_ORDINARY = frozenset({
    "true", "false", "none", "null", "auto", "default", "enabled", "disabled", "required", "optional", "localhost",
    "system", "basic", "bearer", "string", "python", "forward", "backward", "inference", "joint", "tensor", "pytest",
    "plugin",
})  # fmt: skip
"""Values that are no secret, whatever variable has them."""

_LEAST = 5
"""The least length of a value that is searched for everywhere."""

_MOST_SLASHES = 4
_WORDS = re.compile(r"[A-Za-z0-9+/=_-]{20,}")
_KERNEL_FILE = re.compile(r"c[a-z2-7]{50,51}")


def looks_secret(name: str) -> bool:
    """Whether a variable, a flag or a setting of that name holds a credential."""
    return bool(_SECRET_NAME.search(name))


class Secrets:
    """Replaces credentials. It knows the values of the `environments`' variables with a secret name, and those added by
    `add` and `learn`."""

    def __init__(self, *environments: Mapping[str, str]) -> None:
        self.values: set[str] = set()
        for environment in environments:
            for name, value in environment.items():
                if looks_secret(name):
                    self.add(value)

    def add(self, value: str) -> None:
        """Adds a value that is replaced wherever it occurs, also as JSON and as a part of an address; ordinary words
        are not."""
        value = value.strip()
        if len(value) < _LEAST or value.lower() in _ORDINARY or value.isdecimal():
            return
        if not value.startswith(("/", "<", "~")):  # a path goes as one
            self.values |= {value, quote(value, safe=""), json.dumps(value)[1:-1]}

    def learn(self, words: Sequence[str]) -> None:
        """Adds the secrets in a command line."""
        for word, shown in zip(words, self.command(words), strict=True):
            if shown != word and STAND_IN in shown:
                head, _, tail = shown.partition(STAND_IN)
                self.add(word[len(head) : len(word) - len(tail)])

    def command(self, words: Iterable[str]) -> list[str]:
        """A command line without credentials, recognised by the flags that common programs use for them."""
        shown: list[str] = []
        before = ""
        for word in words:
            shown.append(self._word(word, before))
            before = word if word.startswith("-") and "=" not in word else ""
        return shown

    def _word(self, word: str, before: str) -> str:
        if before in ("-p", "--pass", "--pw") and not word.startswith("-"):
            return STAND_IN
        if before in ("-u", "--user") and _PAIR.fullmatch(word):
            return STAND_IN
        if before in ("-H", "--header") and (header := _HEADER.fullmatch(word)) and looks_secret(header["name"]):
            return f"{header['name']}: {STAND_IN}"
        if before and looks_secret(before) and not re.fullmatch(r"--?[A-Za-z][\w-]*", word):
            return STAND_IN if word else word
        name, equals, value = word.partition("=")
        if equals and value and re.fullmatch(r"[\w.+~-]+", name) and looks_secret(name):
            return f"{name}={STAND_IN}"
        return f"-p{STAND_IN}" if _ATTACHED.fullmatch(word) else self.text(word)

    def text(self, text: str) -> str:
        """The text with every known credential, and everything in the form of one, replaced."""
        for value in sorted(self.values, key=len, reverse=True):
            if value in text:
                text = text.replace(value, STAND_IN)
        for rule in RULES:
            if any(mark in text for mark in rule.marks):
                text = rule.pattern.sub(": " + STAND_IN if rule.name == "header" else STAND_IN, text)
        if "=" in text or ":" in text:
            text = _ASSIGNED.sub(_hidden, text)
            text = _EXPORTED.sub(_hidden, text)
            text = _LIKELY.sub(_hidden, text)
        return _FLAGGED.sub(_hidden, text) if "-" in text else text

    def left(self, text: str) -> list[str]:
        """Names the kinds of credentials that a text still contains; empty after `text`."""
        rules = [rule.name for rule in RULES if rule.pattern.search(text)]
        return rules + ["value of a secret variable or argument"] * any(value in text for value in self.values)


def _hidden(match: re.Match[str]) -> str:
    name = match.groupdict().get("name")
    if match["value"].lower() in _ORDINARY or (name is not None and name != "p" and not looks_secret(name)):
        return match[0]
    if "quote" in match.groupdict() and not match["quote"] and all(map(str.isidentifier, match["value"].split("."))):
        return match[0] if "_" in match["value"] else match["head"] + STAND_IN
    plain_number = name is not None and match["value"].isdecimal()
    path = match["value"].startswith(("/", ".", "~"))
    return match[0] if plain_number or path else match["head"] + STAND_IN


def random_looking(text: str) -> list[str]:
    """Words of a text that look randomly generated: for a person to look at, since no rule knows them."""
    return [word for word in dict.fromkeys(_WORDS.findall(text)) if _is_random(word)]


def _is_random(word: str) -> bool:
    digits, upper, lower = (sum(map(kind, word)) for kind in (str.isdigit, str.isupper, str.islower))
    if _KERNEL_FILE.fullmatch(word) or word.count("/") > _MOST_SLASHES:
        return False  # a name that Inductor hashes from contents; a path
    if re.fullmatch(r"[0-9a-f]{32,}|[0-9A-F]{32,}", word):
        return digits > 0
    bits = -sum(count / len(word) * math.log2(count / len(word)) for count in Counter(word).values())
    return digits >= 2 and upper >= 2 and lower >= 2 and bits >= 3.7


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
