"""The search for duplicates: what it asks for, and that nothing of the user's is in it."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from graphdbg.dumps.pack.redact import Redactor
from graphdbg.minifier.report.bundle import phrase, search_link
from graphdbg.toolkit.verdicts import signature
from graphdbg.toolkit.verdicts.identity import identity
from graphdbg.toolkit.verdicts.signature import Signature

from .cases import ACCURACY, CRASH

AMIN = [("call_function", "aten.amin.default"), ("call_function", "secret_lib.mine.default")]


@pytest.mark.parametrize(
    ("signature", "asked"),
    [
        (ACCURACY, "(inductor OR torch.compile) (wrong OR incorrect OR mismatch) amin"),
        (
            Signature("metadata", "compare", detail="dtype"),
            "(inductor OR torch.compile) (dtype OR stride OR shape) amin",
        ),
        (Signature("hang", "compile"), "(inductor OR torch.compile) (hang OR stuck) amin"),
        (CRASH, 'CppCompileError "was not declared in this scope"'),
        (
            Signature(
                "crash", "compile", "RuntimeError", "Not all inputs to pattern found in match.kwargs. argname=<n>"
            ),
            '"Not all inputs to pattern found in match.kwargs"',
        ),
        (
            Signature(
                "missing_error",
                "compare",
                "NotImplementedError",
                "\"add_stub\" not implemented for 'UInt16'",
                detail="aten.add.Tensor",
            ),
            '"not implemented for" add',
        ),
        (Signature("crash", "compile", "KeyError", "'<name>'"), "(inductor OR torch.compile) KeyError amin"),
    ],
)
def test_what_is_searched_for(signature: Signature, asked: str) -> None:
    link = urlsplit(search_link(identity(signature, AMIN, reduced=True), signature.message, Redactor()))
    assert (link.netloc, link.path) == ("github.com", "/pytorch/pytorch/issues")
    assert parse_qs(link.query)["q"] == [f"is:issue {asked}"]


def test_nothing_of_the_machine_is_in_it() -> None:
    text = signature.message(
        "could not open the file /home/ann/secret/weights of layer12 at 0x7f00 in model.py:33 for ann@host"
    )
    failure = identity(Signature("crash", "compile", "OSError", text), [], reduced=True)
    link = search_link(failure, text, Redactor(home="/home/ann", user="ann", folders=[]))
    assert not [word for word in ("ann", "secret", "7f00", "33", "model.py") if word in link.partition("q=")[2]]


def test_a_phrase_is_what_is_the_same_in_every_program() -> None:
    assert phrase("expected <name> of size [..] but the view is too small, got <n>") == "but the view is too small, got"
    assert phrase("<name>") == ""
