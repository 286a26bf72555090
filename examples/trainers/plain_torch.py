"""A trainer for `command_trainer_adapter` in plain torch, transformers and peft: PPO's clipped loss on the given rows.

It knows nothing of `nat`: it reads the folder NAT_BATCH, trains the model at NAT_MODEL (with the adapter at
NAT_ADAPTER, if there is one), and saves it to NAT_OUTPUT.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

LEARNING_RATE = float(os.environ.get("LEARNING_RATE", "1e-3"))
CLIP_LOW, CLIP_HIGH, PASSES = 0.2, 0.28, 2


def load() -> Any:
    """The weights to begin with."""
    model = AutoModelForCausalLM.from_pretrained(os.environ["NAT_MODEL"], dtype=torch.float32)
    if (adapter := os.environ.get("NAT_ADAPTER")) is None:
        return model
    from peft import PeftModel

    return PeftModel.from_pretrained(model, adapter, is_trainable=True)


def scored(model: Any, row: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log probabilities, old ones, advantages and mask of a row; its first token is predicted by none."""
    ids = torch.tensor([row["input_ids"]])
    mask, advantages, old, temperatures = (
        torch.tensor(row[name][1:], dtype=torch.float32)
        for name in ("loss_mask", "advantages", "old_logprobs", "temperatures")
    )
    logits = model(input_ids=ids).logits[0, :-1].float() / temperatures[:, None]
    return logits.log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0], old, advantages, mask


def loss_of(model: Any, row: dict[str, Any]) -> torch.Tensor:
    """The sum over the row's trained tokens."""
    logprobs, old, advantages, mask = scored(model, row)
    ratio = ((logprobs - old) * mask).exp()
    clipped = ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
    return -(torch.minimum(ratio * advantages, clipped * advantages) * mask).sum()


def main(of_row: Callable[[Any, dict[str, Any]], torch.Tensor] = loss_of) -> None:
    """Two optimizer steps over all rows, each reported by a line of JSON."""
    rows = [json.loads(line) for line in (Path(os.environ["NAT_BATCH"]) / "rows.jsonl").open()]
    tokens = sum(sum(row["loss_mask"]) for row in rows)
    model = load()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, weight_decay=0.0)
    for done in range(PASSES):
        total = 0.0
        for row in rows:
            loss = of_row(model, row) / tokens
            torch.autograd.backward(loss)
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0).item()
        optimizer.step()
        optimizer.zero_grad()
        print(json.dumps({"step": {"loss": total, "grad_norm": norm}}), flush=True)
        print(json.dumps({"progress": 100 * (done + 1) / PASSES}), flush=True)
    model.save_pretrained(os.environ["NAT_OUTPUT"])


if __name__ == "__main__":
    main()
