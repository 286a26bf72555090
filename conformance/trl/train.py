"""Run in TRL's environment: load exported files with `datasets`, and train a step on each; prints one JSON object.

`python train.py MODEL FILE …`; a file is named by its format. TRL makes tokens of the messages by the model's chat
template, which are compared with the token ids in the file.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from datasets import Dataset, load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

OURS = {
    "preference": ("prompt_ids", "chosen_ids", "rejected_ids"),
    "kto": ("prompt_ids", "completion_ids"),
    "messages": ("input_ids",),
    "grpo": (),
}
SHARED = {
    "max_steps": 1,
    "learning_rate": 1e-2,
    "per_device_train_batch_size": 4,
    "logging_steps": 1,
    "report_to": "none",
    "save_strategy": "no",
    "use_cpu": True,
    "bf16": False,
    "disable_tqdm": True,
}


def reward(completions: list, **columns: list) -> list[float]:
    """A reward function sees the file's columns; here the recorded reward is the new one."""
    assert len(columns["reward"]) == len(completions)
    return [float(number) for number in range(len(completions))]


def trainer_of(form: str, data: Dataset, model: str, output: str) -> SFTTrainer | DPOTrainer | KTOTrainer | GRPOTrainer:
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    weights = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    common = {"model": weights, "processing_class": tokenizer, "train_dataset": data}
    if form == "preference":
        return DPOTrainer(args=DPOConfig(output, **SHARED), **common)
    if form == "kto":
        return KTOTrainer(args=KTOConfig(output, **SHARED), **common)
    if form == "messages":
        return SFTTrainer(args=SFTConfig(output, **SHARED), **common)
    args = GRPOConfig(output, num_generations=4, max_completion_length=8, **SHARED)
    return GRPOTrainer(reward_funcs=reward, args=args, **common)


def equal_tokens(data: Dataset, trained: Dataset, name: str) -> int:
    """Rows whose recorded ids are those of the trainer; it may add what the template writes after the answer."""
    return sum(theirs[: len(ours)] == ours for ours, theirs in zip(data[name], trained[name], strict=True))


def trained(model: str, file: Path) -> dict[str, object]:
    """A step on the messages of a file; the token ids in it are only compared."""
    form = file.stem
    with tempfile.TemporaryDirectory() as output:
        data = load_dataset("json", data_files=str(file), cache_dir=f"{output}/cache")["train"]
        trainer = trainer_of(form, data.remove_columns(list(OURS[form])), model, output)
        before = {name: value.clone() for name, value in trainer.model.named_parameters()}
        equal = {name: equal_tokens(data, trainer.train_dataset, name) for name in OURS[form]}
        trainer.train()
        return {
            "rows": len(data),
            "first": data[0],
            "equal": equal,
            "loss": trainer.state.log_history[0]["loss"],
            "changed": sum(not torch.equal(value, before[name]) for name, value in trainer.model.named_parameters()),
        }


if __name__ == "__main__":
    print(json.dumps({name: trained(sys.argv[1], Path(name)) for name in sys.argv[2:]}))
