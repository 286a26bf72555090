"""A program for `command_trainer_adapter`: TRL's SFTTrainer with the loss of our rows, PPO's clipped objective.

TRL brings the loop, the optimizer and the model; tokens, masks, advantages and log probabilities come from NAT_BATCH.
"""

import json
import os
import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import SFTConfig, SFTTrainer

COLUMNS = ("loss_mask", "advantages", "old_logprobs", "temperatures")
EPSILON = 0.2


class Reports(TrainerCallback):
    """Prints a line of JSON after each optimizer step."""

    def on_log(self, args, state, control, logs=None, **_):
        if logs and "loss" in logs:
            print(
                json.dumps({"step": {"loss": logs["loss"], "grad_norm": float(logs.get("grad_norm", 0))}}), flush=True
            )
            print(json.dumps({"progress": 100 * state.global_step / max(1, state.max_steps)}), flush=True)


class ClippedTrainer(SFTTrainer):
    """SFTTrainer with a policy-gradient loss."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """The mean over the trained tokens of the batch."""
        mask, advantages, old, temperatures = (inputs.pop(name)[:, 1:] for name in COLUMNS)
        ids = inputs["input_ids"]
        logits = model(input_ids=ids, attention_mask=inputs["attention_mask"]).logits[:, :-1].float()
        logprobs = (logits / temperatures[..., None]).log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        ratio = ((logprobs - old) * mask).exp()
        gain = torch.minimum(ratio * advantages, ratio.clamp(1 - EPSILON, 1 + EPSILON) * advantages)
        return -(gain * mask).sum() / mask.sum()


def collate(rows):
    """Pad on the right; padding is masked."""
    longest = max(len(row["input_ids"]) for row in rows)

    def padded(name, rest, dtype):
        return torch.tensor([row[name] + [rest] * (longest - len(row[name])) for row in rows], dtype=dtype)

    ones = [{"ones": [1] * len(row["input_ids"])} for row in rows]
    attention = torch.tensor([one["ones"] + [0] * (longest - len(one["ones"])) for one in ones])
    values = {name: padded(name, float(name == "temperatures"), torch.float32) for name in COLUMNS}
    return {"input_ids": padded("input_ids", 0, torch.int64), "attention_mask": attention, **values}


def main():
    """One pass over the rows in four optimizer steps."""
    lines = (Path(os.environ["NAT_BATCH"]) / "rows.jsonl").read_text().splitlines()
    rows = [{name: row[name] for name in ("input_ids", *COLUMNS)} for row in map(json.loads, lines)]
    with tempfile.TemporaryDirectory() as scratch:
        args = SFTConfig(
            scratch,
            per_device_train_batch_size=max(1, -(-len(rows) // 4)),
            num_train_epochs=1,
            learning_rate=float(os.environ.get("LEARNING_RATE", "3e-4")),
            lr_scheduler_type="constant",
            logging_steps=1,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
            remove_unused_columns=False,
            dataset_kwargs={"skip_prepare_dataset": True},
        )
        trainer = ClippedTrainer(
            model=AutoModelForCausalLM.from_pretrained(os.environ["NAT_MODEL"], dtype=torch.float32),
            processing_class=AutoTokenizer.from_pretrained(os.environ["NAT_MODEL"]),
            args=args,
            train_dataset=Dataset.from_list(rows),
            data_collator=collate,
            callbacks=[Reports()],
        )
        trainer.train()
        trainer.save_model(os.environ["NAT_OUTPUT"])


if __name__ == "__main__":
    main()
