"""The trainers that people use, unmodified, on a small model that they compile; prints the losses.

    python trainers.py lightning|trainer|accelerate [--fault]

--fault: Inductor's relu is wrong, and a callback (in Accelerate's case the loop) compares the third step with eager.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS, LENGTH, WORDS = 6, 12, 61


class Sentences(Dataset):
    """Words that depend on their number alone."""

    def __len__(self) -> int:
        return 4 * STEPS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.randint(0, WORDS, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words}


class Tagger(nn.Module):
    """Embedding, GRU cell over the words, two layers with a relu; a loss like transformers' models have."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.cell = nn.Embedding(WORDS, 24), nn.GRUCell(24, 32)
        self.hidden, self.out = nn.Linear(32, 48), nn.Linear(48, WORDS)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Both (batch, words); the loss is a scalar."""
        state = input_ids.new_zeros(input_ids.shape[0], 32, dtype=torch.float32)
        states = []
        for step in self.words(input_ids).unbind(1):
            state = self.cell(step, state)
            states.append(state)
        logits = self.out(torch.relu(self.hidden(torch.stack(states, 1))))
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


def checked(model: nn.Module, batch: dict[str, torch.Tensor], loss: torch.Tensor) -> None:
    """What a careful program asks of its compiled step."""
    with torch.no_grad():
        expected = copy.deepcopy(getattr(model, "_orig_mod", model))(**batch)["loss"]
    assert torch.allclose(loss.detach(), expected, rtol=1e-3), f"loss {loss.item()}, in eager {expected.item()}"


def lightning(fault: bool) -> list[float]:
    """`Trainer.fit` of a compiled module."""
    import lightning as L

    losses: list[float] = []

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = torch.compile(Tagger())

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = self.model(**batch)["loss"]
            losses.append(loss.item())
            if fault and index == 3:
                checked(self.model, batch, loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    more = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    L.Trainer(max_steps=STEPS, accelerator="cpu", **more).fit(Module(), DataLoader(Sentences(), batch_size=4))
    return losses


def trainer(fault: bool) -> list[float]:
    """transformers' Trainer with its own torch_compile, on a GPT-2 of two layers with relu."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    sizes = {
        "n_layer": 2,
        "n_embd": 32,
        "n_head": 2,
        "vocab_size": WORDS,
        "n_positions": 16,
        "activation_function": "relu",
    }
    model = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    losses: list[float] = []

    class Watched(Trainer):
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            loss = super().compute_loss(model, inputs, *args, **kwargs)
            losses.append((loss[0] if isinstance(loss, tuple) else loss).item())
            if fault and len(losses) == 3:
                checked(model, inputs, loss)
            return loss

    with tempfile.TemporaryDirectory() as folder:
        given = {"per_device_train_batch_size": 4, "max_steps": STEPS, "save_strategy": "no", "disable_tqdm": True}
        asked = TrainingArguments(folder, torch_compile=True, use_cpu=True, logging_steps=100, report_to=[], **given)
        Watched(model=model, args=asked, train_dataset=Sentences()).train()
    return losses


def accelerate(fault: bool) -> list[float]:
    """`Accelerator.prepare` with Inductor."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, dynamo_backend="inductor")
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, batches = accelerator.prepare(model, optimizer, DataLoader(Sentences(), batch_size=4))
    losses: list[float] = []
    for batch in batches:
        loss = model(**batch)["loss"]
        losses.append(loss.item())
        if fault and len(losses) == 3:
            checked(accelerator.unwrap_model(model, keep_torch_compile=False), batch, loss)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return losses


def main() -> None:
    """One training."""
    torch.manual_seed(0)
    fault = "--fault" in sys.argv
    if fault:
        torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
    losses = {"lightning": lightning, "trainer": trainer, "accelerate": accelerate}[sys.argv[1]](fault)
    if where := os.environ.get("LOSSES"):
        Path(where).write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
