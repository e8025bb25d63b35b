"""No credential and no absolute path is in a packed run; where nothing takes them out, the test finds them; words stay
words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphdbg.cli import run as command
from graphdbg.dumps.pack.making import pack
from graphdbg.dumps.pack.redact import Places
from graphdbg.dumps.secrets import RULES, Secrets, looks_secret, random_looking
from graphdbg.dumps.store import Run

from .graphs import chain
from .planted_secrets import BODY, KINDS, PATHS, TEXT, paths_in, planted_run, secrets_in


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("DATABASE_PASSWORD", KINDS["variable of this process"].secret)
    monkeypatch.chdir(tmp_path)
    return planted_run(tmp_path / "myrun", chain())


def test_no_secret_and_no_absolute_path_is_packed(run: Run) -> None:
    assert len(KINDS) >= 20
    packed = pack(run.path, Path("bug.zip"))
    assert secrets_in(packed.file) == set()
    assert paths_in(packed.file) == []
    assert (packed.leaks, packed.unreadable) == ([], [])
    whole = pack(run.path, Path("whole.zip"), tensors=True, source=True)
    assert (secrets_in(whole.file), paths_in(whole.file), whole.leaks) == (set(), [], [])


def test_the_test_finds_them_where_they_are_left(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Secrets, "text", lambda self, text: text)
        patch.setattr(Secrets, "command", lambda self, words: list(words))
        packed = pack(run.path, Path("secrets.zip"))
        assert set(KINDS) - secrets_in(packed.file) <= {"assignment"}  # a part of it is taken for a path
        assert any(leak.what == "credential" for leak in packed.leaks)
    monkeypatch.setattr(Places, "name", lambda self, path: path)
    left = pack(run.path, Path("paths.zip"))
    assert len(paths_in(left.file)) > len(PATHS)


def test_each_rule_matches_what_is_planted_or_named_here() -> None:
    others = (
        "https://hooks.slack.com/services/T00/B00/" + BODY,
        "npm_" + BODY,
        "dckr_pat_" + BODY,
        "hvs." + BODY,
        "gsk_" + BODY,
        "AccountKey=" + BODY,
    )
    every = "\n".join([TEXT, *others, "Set-Cookie: session=abcdef12345"])
    assert [rule.name for rule in RULES if not rule.pattern.search(every)] == []
    once = Secrets().text(every)
    assert [rule.name for rule in RULES if rule.pattern.search(once)] == []
    assert Secrets().text(once) == once


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("mysql -p hunter22 -u ann:pw1", "mysql -p <secret> -u <secret>"),
        ("mysql -phunter22", "mysql -p<secret>"),
        ("x --hf-token abc --lr 3e-4", "x --hf-token <secret> --lr 3e-4"),
        ("x --max-tokens 512 --tokenizer gpt2 -parallel", "x --max-tokens 512 --tokenizer gpt2 -parallel"),
        ("wandb.api_key=abcd env=NAME -e HF_TOKEN=abcd", "wandb.api_key=<secret> env=NAME -e HF_TOKEN=<secret>"),
    ],
)
def test_command_lines(words: str, wanted: str) -> None:
    assert Secrets().command(words.split()) == wanted.split()


@pytest.mark.parametrize(
    "text",
    [
        "next_token = argmax(x)",
        "token: Tensor",
        "num_tokens=512",
        "y = q@k",
        "basic transformations",
        "DispatchKeySet(CPU)",
        "disk-usage sk-learn",
        "hf_hub",
        "a -p b",
        "key=value",
        "--token-count 5",
        "password: None",
        "KeyError: 'tokens'",
        "sk_hidden_dimension_of_model2",
        "sk-learn-like-name-here-long",
        "npm_config_registry_url",
        "next_token = view_default_12",
    ],
)
def test_words_stay(text: str) -> None:
    assert Secrets().text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        'client_secret: "{}"',
        "{{'token': '{}'}}",
        "session_token={}",
        "X-Api-Key: {}",
        "redis://:{}@host:1",
        "MYSQL_PWD={} mysql",
        "sshpass -p {} ssh",
        "Cookie: id={}",
        r"'err\npassword={}\n'",
        '{{\\"api_key\\": \\"{}\\"}}',
    ],
)
def test_what_a_text_says_of_a_secret(text: str) -> None:
    assert "efgh5678" not in Secrets().text(text.format("abcd1234efgh5678"))


def test_an_ordinary_value_is_no_secret() -> None:
    held = {
        "TOKENIZERS_PARALLELISM": "surely",
        "MY_TOKEN": "true",
        "DB_PWD": "/home/ann",
        "PIN_KEY": "123456",
        "PASSWORD": "a",
    }
    assert Secrets(held).values == set()
    assert not looks_secret("PATH") and looks_secret("DB_PWD") and looks_secret("apiKey")


def test_what_looks_random_is_shown_in_the_preview(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    odd = "Zq8Xv2Lw9Rt4Yb7Nc3Kd"
    words = (
        f"triton_poi_fused_add_mul_relu_0 CUDAGraphTreeManager2Run c{'a2b3c' * 10} x/ATen/cpu/vec/vec512/vec512 {odd}"
    )
    assert random_looking(words) == [odd]
    process = next(run.path.glob("*/journal.jsonl"))
    with process.open("a") as journal:
        journal.write(
            json.dumps({"t": 1.0, "kind": "failed", "graph": "0_0/forward", "message": f"bad answer {odd}"}) + "\n"
        )
    before = sorted(Path().rglob("*"))
    assert command(["pack", "myrun", "--preview"]) == 0
    captured = capsys.readouterr()
    assert (
        f"looks random, make sure that it is not a credential: '{odd}' in what 0_0/forward failed with" in captured.err
    )
    assert captured.out.splitlines()[0].split() == ["what", "kept", "changed", "left", "out"]
    assert sorted(Path().rglob("*")) == before
