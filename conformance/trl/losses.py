"""Run in an environment with TRL: the losses and gradients of its trainers on given token ids, as JSON on stdout.

The one argument is a JSON file with `policy` and `reference` (model folders) and `cases`: a method, the arguments of
its TRL configuration, and the examples in the form that TRL's collators take. Of each gradient two numbers are kept,
its norm and its sum weighted with cos(0), cos(1), and so on.
"""

import inspect
import json
import sys
import tempfile
from pathlib import Path

import torch
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

COMMON = {"report_to": [], "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "disable_tqdm": True}
TRAINERS = {
    "dpo": (trl.DPOTrainer, trl.DPOConfig, {"prompt": ["a"], "chosen": ["b"], "rejected": ["c"]}),
    "kto": (trl.KTOTrainer, trl.KTOConfig, {"prompt": ["a"] * 2, "completion": ["b", "c"], "label": [True, False]}),
    "sft": (trl.SFTTrainer, trl.SFTConfig, {"prompt": ["a"], "completion": ["b"]}),
}


def main(path):
    request = json.loads(Path(path).read_text())
    tokenizer = AutoTokenizer.from_pretrained(request["policy"])
    tokenizer.pad_token = tokenizer.eos_token
    print(json.dumps([scored(case, request, tokenizer) for case in request["cases"]]))


def scored(case, request, tokenizer):
    trainer_class, config_class, data = TRAINERS[case["method"]]
    policy = AutoModelForCausalLM.from_pretrained(request["policy"], dtype=torch.float32)
    given = {"model": policy, "train_dataset": Dataset.from_dict(data), "processing_class": tokenizer}
    if "ref_model" in inspect.signature(trainer_class).parameters:
        given["ref_model"] = AutoModelForCausalLM.from_pretrained(request["reference"], dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_class(args=config_class(output_dir=folder, **COMMON, **case["arguments"]), **given)
        trainer.model.eval()  # there is no dropout; nothing else differs
        loss = trainer.compute_loss(trainer.model, trainer.data_collator(case["examples"]))
        loss.backward()
    return {
        "loss": float(loss),
        "gradients": {name: summary(p.grad) for name, p in trainer.model.named_parameters() if p.grad is not None},
    }


def summary(gradient):
    flat = gradient.double().flatten()
    return [float(flat.norm()), float((flat * torch.arange(len(flat), dtype=torch.float64).cos()).sum())]


if __name__ == "__main__":
    main(sys.argv[1])
