"""Finds credentials in texts: known forms by rules, values of variables and arguments whose names look secret, and
words that look random.

Also: which environment variables may be kept in a run: settings of torch, its compilers and the job, each by its full
name.

Used by both `pack` and `report`; needs no torch. A rule is a name, texts without which it cannot match, and an
expression for the text to replace: a new kind of token is one more line in RULES.

>>> Secrets({"DB_PASSWORD": "hunter22"}).text("login with hunter22 failed, token ghp_abcdefghijklmnopqrstuvwxyz0123")
'login with <secret> failed, token <secret>'
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

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
