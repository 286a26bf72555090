"""The toolkit's example of DPO on tic-tac-toe: its configuration and the shape of its workflow collect their pairs."""

import json
import random
from pathlib import Path

import pytest

from fakes import dpo_tic_tac_toe
from fakes.dpo_tic_tac_toe.components import SYSTEM, register_components
from fakes.finetuning_project import AdapterConfig, ClumsyTrainer, EpochTrainerConfig, RememberingAdapter, blank_plot
from fakes.openai_server import OpenAIServer, Say
from nat.config.load import parse_config
from nat.config.sources import read_tree
from nat.data_models.finetuning import FinetuneRunConfig
from nat.finetuning.runtime import run_finetuning
from nat.registry.catalog import pushed_catalog
from nat.registry.decorators import register_trainer, register_trainer_adapter
from nat.runs.journal import Journal

CONFIG = Path(dpo_tic_tac_toe.__file__).with_name("config.yml")
PLAYER, OPPONENT = "trained_ttc_move_selector", "random_ttc_move_selector"


class Game:
    """The example with an adapter that remembers its pairs; change `tree` before use."""

    def __init__(self) -> None:
        self.adapter = RememberingAdapter(AdapterConfig())
        self.tree = read_tree(CONFIG)
        self.tree["trainer_adapters"] = {"nemo_customizer_trainer_adapter": {"_type": "test_adapter"}}
        self.tree["trainers"] = {"nemo_customizer_trainer": {"_type": "test_trainer"}}

    @property
    def builder(self):
        return self.tree["trajectory_builders"]["dpo_builder"]

    @property
    def finetuning(self):
        return self.tree["finetuning"]

    def loaded(self, **given):
        return FinetuneRunConfig(config_file=parse_config(self.tree), **given)

    async def run(self, **given):
        return await run_finetuning(self.loaded(**given), plotter=blank_plot)

    @property
    def run_dir(self):
        return (Path(self.finetuning["output_dir"]) / "latest").resolve()

    @property
    def pairs(self):
        [submitted] = self.adapter.submitted
        return [trajectory for group in submitted.trajectories for trajectory in group]

    async def _adapter(self, config, builder):
        yield self.adapter

    async def _trainer(self, config, builder):
        yield ClumsyTrainer(config, None)


@pytest.fixture
def game(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"id": f"game{n}", "question": "XO"[n % 2], "answer": "Win!"} for n in range(4)]
    for name in ("data.json", "held_out.json"):
        (tmp_path / name).write_text(json.dumps(rows))
    made = Game()
    with pushed_catalog():
        register_components()
        register_trainer_adapter(config_type=AdapterConfig)(made._adapter)
        register_trainer(config_type=EpochTrainerConfig)(made._trainer)
        yield made


@pytest.fixture
async def server(monkeypatch):
    """A model that names a random free cell, and sometimes none; NVIDIA_BASE_URL leads to it."""
    dice = random.Random(1)

    def move(request) -> Say:
        free = [word for word in request.last_text.split() if word.isdigit()]
        first = "no free cell" not in request.last_text
        return Say("pass" if first and dice.random() < 0.1 else dice.choice(free))

    async with OpenAIServer(move) as serving:
        monkeypatch.setenv("NVIDIA_BASE_URL", serving.base_url)
        yield serving


def messages(trajectory):
    return [(message.role, message.content) for message in trajectory.episode[0].prompt]


async def test_the_example_collects_its_pairs(game, server, caplog):
    """Every game gives pairs of both players; each has the whole prompt, without the answer."""
    result = await game.run()
    assert {t.metadata["example_id"] for t in game.pairs} == {"game0", "game1", "game2", "game3"}
    assert {t.metadata["chosen_raw_metadata"]["player"] for t in game.pairs} == {"X", "O"}
    for trajectory in game.pairs:
        [pair] = trajectory.episode
        assert trajectory.reward == trajectory.metadata["score_diff"] >= 0.01
        assert pair.chosen_response != pair.rejected_response
        system, *_, last = messages(trajectory)
        assert system[0] == "system"
        assert system[1] in {SYSTEM.format(symbol=symbol) for symbol in "XO"}
        assert last[0] == "user"
    assert all(len(list(turn)) <= 5 for turn in by_turn(game.pairs).values())
    with Journal.open(result.run_dir) as journal:
        [epoch] = journal.epochs()
    assert (epoch.num_trajectories, epoch.filtered_trajectories) == (len(game.pairs), len(game.pairs))
    [progress] = result.run_dir.glob("dpo_trajectory_builder_*.jsonl")
    counts = json.loads(progress.read_text())
    assert counts["total_pairs"] == len(game.pairs)
    assert counts["total_candidates"] > len(game.pairs) / 5
    assert {body["max_tokens"] for body in server.bodies} == {300}


def by_turn(trajectories):
    turns = {}
    for trajectory in trajectories:
        turns.setdefault(trajectory.metadata["turn_id"], []).append(trajectory)
    return turns


async def test_the_opponents_moves_can_be_left_out(game, server):
    """With the player's function as target, no pair comes from the random opponent."""
    game.finetuning["target_functions"] = [PLAYER]
    await game.run()
    own = {"game0": "X", "game1": "O", "game2": "X", "game3": "O"}
    assert game.pairs
    assert all(t.metadata["chosen_raw_metadata"]["player"] == own[t.metadata["id"]] for t in game.pairs)
