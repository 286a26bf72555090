from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from nat.builder.context import ContextState
from tic_tac_toe.agent import GameRecord
from tic_tac_toe.game import Outcome
from tic_tac_toe.workflow import TicTacToeConfig, tic_tac_toe


@dataclass
class FirstFreeCell:
    """An OpenAI client whose model takes the first number on the board."""

    model_name: str = "tiny"
    asked_for: list[str] = field(default_factory=list)

    @property
    def chat(self) -> Any:
        return SimpleNamespace(completions=self)

    async def create(self, *, model: str, messages: list[dict[str, str]]) -> Any:
        self.asked_for.append(model)
        answer = next(word for word in messages[-1]["content"].split() if word.isdigit())
        return SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(content=answer))])


@dataclass
class OneModelBuilder:
    """A builder with one client."""

    client: FirstFreeCell

    async def get_llm(self, name: str, wrapper_type: str) -> FirstFreeCell:
        assert (name, wrapper_type) == ("player", "openai")
        return self.client


async def played(opener: str, seed: int, client: FirstFreeCell | None = None) -> GameRecord:
    """One rollout of the workflow with a seeded opponent."""
    builder: Any = OneModelBuilder(client or FirstFreeCell())
    async with tic_tac_toe(TicTacToeConfig(llm="player"), builder) as info:
        with ContextState(rollout_seed=seed).active():
            record: GameRecord = await info.single_fn(opener)
    return record


async def test_a_row_becomes_a_game() -> None:
    """The model is called under its own name once per turn, until the game is over."""
    client = FirstFreeCell()
    game = await played("X", 1, client)
    assert game.outcome in (Outcome.WON, Outcome.DRAW, Outcome.LOST)
    assert client.asked_for == ["tiny"] * len(game.answers)


async def test_the_rollout_seed_seeds_the_opponent() -> None:
    """A seed gives one game; other seeds give others."""
    assert await played("O", 5) == await played("O", 5)
    assert len({str((await played("O", seed)).board) for seed in range(20)}) > 5


@pytest.mark.parametrize("question", ["", "Z", "x"])
async def test_a_row_must_name_the_opener(question: str) -> None:
    """Anything but X or O is an error with the seen and the expected value."""
    with pytest.raises(ValueError, match=f"'{question}'; it must say who moves first"):
        await played(question, 0)
