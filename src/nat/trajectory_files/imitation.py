"""Demonstrations for a run's examples: the prompts that its agent sent, answered as the rows of the dataset say."""

from collections import Counter
from collections.abc import Mapping
from math import ceil
from typing import Any

from nat.config.findings import Tree
from nat.errors import ConfigError
from nat.runs.journal import Journal
from nat.runs.records import Phase
from nat.trajectory_files.formats import Row
from nat.trajectory_files.generations import LeftOut, group_of

NAME = "imitation"
"""Of the phase, its builder and its adapter."""
LEAST_EPOCHS, ROWS = 10, 64
"""Epochs of the phase at least, which make 20 optimizer steps, and rows of an epoch, as the builder takes them."""
_NOT_ONE_ANSWER = "its agent calls the model several times or offers it tools, so the row's answer is no demonstration"


def demonstrations(journal: Journal, answers: Mapping[str, str]) -> tuple[list[Row], Counter[LeftOut]]:
    """A row for each example that was played, and what is left out; `answers` are by example."""
    rows: dict[str, Row] = {}
    left_out: Counter[LeftOut] = Counter()
    for epoch in journal.played(Phase.TRAIN):
        for record in journal.rollouts(Phase.TRAIN, epoch):
            if record.example_id in rows or record.example_id not in answers:
                continue
            group, without = group_of(Phase.TRAIN, epoch, record.example_id, [record])
            left_out += without
            for conversations in (generation.conversations for generation in group.generations):
                if len(conversations) != 1 or len(conversations[0].sampled) != 1 or conversations[0].tools:
                    left_out[LeftOut("rollout", _NOT_ONE_ANSWER)] += 1
                    continue
                prompt = conversations[0].messages[: conversations[0].sampled[0]]
                answer = {"role": "assistant", "content": answers[record.example_id]}
                rows[record.example_id] = {"prompt": prompt, "completion": [answer]}
    return list(rows.values()), left_out


def imitating_first(tree: Tree, adapter: Mapping[str, Any], *, file: str, num_rows: int, num_epochs: int) -> Tree:
    """The configuration with a phase of imitation before what it has; `adapter` is the one that it trains with.

    Raises:
        ConfigError: that adapter does not train a `local` model.

    """
    if adapter.get("_type") != "local_trainer_adapter":
        found = f"trains by {adapter.get('_type')}; a phase on a file needs `local_trainer_adapter`"
        raise ConfigError([f"finetuning.trainer_adapter: {found}"], hint="train on the file with your own trainer")
    finetuning = dict(tree["finetuning"])
    if not (phases := finetuning.pop("phases", [])):
        of_playing = {key: finetuning.pop(key) for key in ("num_epochs", "curriculum_learning") if key in finetuning}
        phases = [{"name": "play", "num_epochs": num_epochs, **of_playing}]
    imitation = {"name": NAME, "num_epochs": max(LEAST_EPOCHS, ceil(num_rows / ROWS))}
    imitation |= {"trajectory_builder": NAME, "trainer_adapter": NAME}
    finetuning["phases"] = [imitation, *phases]
    builder = {"_type": "dataset_traj_builder", "file_path": file}
    adapter = {"_type": adapter["_type"], "llm": adapter["llm"], "training": {"algorithm": "sft"}}
    builders, adapters = (tree.get(part) or {} for part in ("trajectory_builders", "trainer_adapters"))
    parts = {"trajectory_builders": {**builders, NAME: builder}, "trainer_adapters": {**adapters, NAME: adapter}}
    return {**tree, **parts, "finetuning": finetuning}
