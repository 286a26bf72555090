"""The agent as a workflow of the toolkit: one dataset row in, one finished game out."""

from collections.abc import AsyncGenerator
from typing import Any, cast

from openai.types.chat import ChatCompletionMessageParam

from nat.builder.builder import Builder
from nat.builder.context import Context
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_function
from nat.data_models.component_ref import LLMRef
from nat.data_models.function import FunctionBaseConfig
from tic_tac_toe.agent import GameRecord, Player, play_game
from tic_tac_toe.game import Mark
from tic_tac_toe.opponent import RandomOpponent


class TicTacToeConfig(FunctionBaseConfig, name="tic_tac_toe"):
    """An agent that plays tic-tac-toe as X against an opponent that moves at random."""

    llm: LLMRef
    """The model that plays."""


@register_function(config_type=TicTacToeConfig)
async def tic_tac_toe(config: TicTacToeConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """The workflow function does not depend on training and also runs in production."""
    player = player_of(await builder.get_llm(config.llm, wrapper_type="openai"))

    async def play(opener: str) -> GameRecord:
        """Play one game; `opener` moves first, X (the agent) or O."""
        # The harness seeds each rollout: training always meets new dice, validation always the same ones.
        opponent = RandomOpponent(seed=Context.get().rollout_seed)
        return await play_game(player, opponent, read_opener(opener))

    yield FunctionInfo.from_fn(play, description="Plays one game of tic-tac-toe against a random opponent")


def player_of(client: Any) -> Player:
    """The model behind an OpenAI client."""

    async def player(messages: list[ChatCompletionMessageParam], /) -> str:
        completion = await client.chat.completions.create(model=client.model_name, messages=messages)
        return completion.choices[0].message.content or ""

    return player


def read_opener(text: str) -> Mark:
    """The mark in a dataset row; ValueError for any other value."""
    if text not in ("X", "O"):
        raise ValueError(f"the question is {text!r}; it must say who moves first: X (the agent) or O")
    return cast(Mark, text)
