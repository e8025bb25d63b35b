"""No absolute path, user name or credential leaves; the program's own words stay."""

from __future__ import annotations

import pytest

from graphdbg.dumps.pack.redact import Redactor

REDACTOR = Redactor(
    home="/home/ann",
    user="ann",
    here="/home/ann/code",
    folders=[("/opt/venv/lib/site-packages", "<site-packages>"), ("/tmp", "<tmp>")],
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('File "/home/ann/code/net/train.py", line 3', 'File "net/train.py", line 3'),
        ('File "/home/ann/other/train.py", line 3', 'File ".../train.py", line 3'),
        ("/home/bob/data and /Users/eve/x", "<path> and <path>"),
        ("/srv/home/ann/x.csv", "<path>.csv"),
        ("cannot open '/weights of ann/a b.bin'", "cannot open '<path>.bin'"),
        (
            "g++ -o/x/y/z.so -I/usr/include/x -isystem/a/b > /dev/null",
            "g++ -o.../z.so -I<path> -isystem<path> > /dev/null",
        ),
        ("/x/lib/python3.12/site-packages/torch/fx/a.py", "site-packages/torch/fx/a.py"),
        (r"b'error\n/data/ann/model.py:3'", r"b'error\n.../model.py:3'"),
        ("file:///data/ann/model.py", "file://.../model.py"),
        ("/opt/venv/lib/site-packages/torch/x.py", "<site-packages>/torch/x.py"),
        ("/tmp/torchinductor_ann/ab/cab.py", "<tmp>/torchinductor_<user>/ab/cab.py"),
        ("/tmpfiles/x", "<path>"),
        (r"C:\Users\Ann\model.py", ".../model.py"),
        (r"'D:\\code\\my files\\model.py'", "'.../model.py'"),
        (r"D:/code/Lib/site-packages/torch/x.py", "site-packages/torch/x.py"),
        (r"\\server\share\model.py", ".../model.py"),
        ("s0 /2/3, (a)/b/c, x[0]/64/y, L['n']/2/3, a / b", "s0 /2/3, (a)/b/c, x[0]/64/y, L['n']/2/3, a / b"),
        ("https://github.com/pytorch/pytorch/issues", "https://github.com/pytorch/pytorch/issues"),
        ("AAb+/1bsTutt++/Q4zUN/dgus7", "AAb+/1bsTutt++/Q4zUN/dgus7"),  # bytes as base64
        ("annotate(ann, planning)", "annotate(ann, planning)"),
        ("https://ann:hunter22@host/x", "https://<secret>@host/x"),
        ("token ghp_abcdefghijklmnopqrstuvwxyz0123", "token <secret>"),
        ("hf_abcdefghijklmnopqrst", "<secret>"),
        ("AKIAABCDEFGHIJKLMNOP", "<secret>"),
        ("postgres?password=hunter2&x=1", "postgres?password=<secret>&x=1"),
        ("y = q@k.transpose(-1, -2)", "y = q@k.transpose(-1, -2)"),
    ],
)
def test_text(text: str, wanted: str) -> None:
    assert REDACTOR.text(text) == wanted


def test_a_short_or_common_user_name_is_left_alone_outside_homes() -> None:
    assert Redactor(home="/admin", user="admin", folders=[]).text("data/admin/x admin") == "data/admin/x admin"
    assert REDACTOR.text("data/ann/x ann") == "data/<user>/x ann"


def test_redacting_twice_changes_nothing() -> None:
    once = REDACTOR.text("/home/ann/x /tmp/y https://a:b@c")
    assert REDACTOR.text(once) == once


def test_leaks_names_what_is_left() -> None:
    assert REDACTOR.leaks("/home/ann/x /home/eve") == ["/home/ann", "/home/eve", "/home/ann/x"]
    assert REDACTOR.leaks("token ghp_abcdefghijklmnopqrstuvwxyz0123") == ["GitHub token"]
    assert REDACTOR.leaks(REDACTOR.text("/home/ann/x /home/eve ghp_abcdefghijklmnopqrstuvwxyz0123")) == []


def test_this_machine() -> None:
    redactor = Redactor()
    text = redactor.text(f"{redactor.home}/project/train.py and {__file__}")
    assert redactor.home not in text
    assert redactor.leaks(text) == []
