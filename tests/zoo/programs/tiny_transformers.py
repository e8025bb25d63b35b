"""Tiny models of `transformers` with random weights, one training step or inference each. Left out where it is not
installed.

python tiny_transformers.py bert
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import torch

if importlib.util.find_spec("transformers") is None:
    raise SystemExit("left out: transformers is not installed (pip install transformers)")

WIDTH = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
WORDS = {"vocab_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _made(model: str, **sizes: Any) -> Any:
    import transformers

    torch.manual_seed(0)
    kind = getattr(transformers, model)
    return kind(kind.config_class(**sizes))


def _step(model: Any, **given: Any) -> None:
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        result = compiled(**given)
        loss = result.loss if getattr(result, "loss", None) is not None else result[0].float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def _words(count: int = 2, length: int = 7) -> torch.Tensor:
    return torch.randint(3, 64, (count, length))


def _decoder(model: str, **more: Any) -> None:
    words = _words()
    result = _made(model, **WIDTH, **WORDS, max_position_embeddings=32, **more)
    _step(result, input_ids=words, labels=words, use_cache=False)


def bert() -> None:
    words = _words()
    mask = torch.ones_like(words)
    mask[0, 5:] = 0
    _step(_made("BertForMaskedLM", **WIDTH, vocab_size=64), input_ids=words, attention_mask=mask, labels=words)


def distilbert() -> None:
    model = _made("DistilBertForSequenceClassification", vocab_size=64, dim=32, n_layers=2, n_heads=2, hidden_dim=48)
    _step(model, input_ids=_words(), labels=torch.tensor([0, 1]))


def electra() -> None:
    _step(
        _made("ElectraForPreTraining", **WIDTH, vocab_size=64, embedding_size=16),
        input_ids=_words(),
        labels=_words() % 2,
    )


def gpt2() -> None:
    words = _words()
    model = _made("GPT2LMHeadModel", **WORDS, n_embd=32, n_layer=2, n_head=2, n_positions=32)
    _step(model, input_ids=words, labels=words)


def llama() -> None:
    _decoder("LlamaForCausalLM", num_key_value_heads=1)


def qwen3() -> None:
    _decoder("Qwen3ForCausalLM", num_key_value_heads=1, head_dim=16)


def gemma() -> None:
    _decoder("GemmaForCausalLM", num_key_value_heads=1, head_dim=16)


def mistral_window() -> None:
    _decoder("MistralForCausalLM", num_key_value_heads=2, sliding_window=4)


def opt() -> None:
    _decoder("OPTForCausalLM", ffn_dim=48, word_embed_proj_dim=32)


def mixtral() -> None:
    _decoder("MixtralForCausalLM", num_key_value_heads=1, num_local_experts=2)


def t5() -> None:
    model = _made(
        "T5ForConditionalGeneration",
        vocab_size=64,
        d_model=32,
        d_kv=16,
        d_ff=48,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
    )
    _step(model, input_ids=_words(), labels=_words(length=5))


def t5_cached() -> None:
    model = _made(
        "T5ForConditionalGeneration",
        vocab_size=64,
        d_model=32,
        d_kv=16,
        d_ff=48,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
    ).eval()
    with torch.no_grad():
        torch.compile(model)(input_ids=_words(), decoder_input_ids=_words(length=4), use_cache=True)


def llama_cached() -> None:
    model = _made("LlamaForCausalLM", **WIDTH, **WORDS, num_key_value_heads=1, max_position_embeddings=32).eval()
    compiled = torch.compile(model)
    with torch.no_grad():
        result = compiled(input_ids=_words(), use_cache=True)
        compiled(input_ids=_words(length=1), past_key_values=result.past_key_values, use_cache=True)


def vit() -> None:
    model = _made("ViTForImageClassification", **WIDTH, image_size=8, patch_size=4, num_labels=3)
    _step(model, pixel_values=torch.randn(2, 3, 8, 8), labels=torch.tensor([0, 2]))


def resnet() -> None:
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 3}
    _step(
        _made("ResNetForImageClassification", **sizes),
        pixel_values=torch.randn(2, 3, 16, 16),
        labels=torch.tensor([0, 2]),
    )


def clip_text() -> None:
    _step(_made("CLIPTextModel", **WIDTH, **WORDS, max_position_embeddings=16), input_ids=_words())


def wav2vec2() -> None:
    convolutions = {"conv_dim": (8, 8), "conv_kernel": (4, 2), "conv_stride": (4, 2), "num_feat_extract_layers": 2}
    places = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    sizes = {**WIDTH, **convolutions, **places, "vocab_size": 64, "apply_spec_augment": False}
    _step(_made("Wav2Vec2Model", **sizes), input_values=torch.randn(1, 96))


def mamba() -> None:
    words = _words()
    sizes = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 1, "state_size": 4}
    _step(_made("MambaForCausalLM", **sizes), input_ids=words, labels=words, use_cache=False)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
