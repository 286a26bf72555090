"""Play against the model: `python -m tic_tac_toe.play [CHECKPOINT DIRECTORY]`, from the repository's root."""

import asyncio
import random
import sys
from pathlib import Path

from nat.builder.workflow_builder import WorkflowBuilder
from nat.config.load import load_config
from tic_tac_toe.agent import AGENT, OPPONENT, play_game
from tic_tac_toe.opponent import HumanOpponent
from tic_tac_toe.workflow import player_of

CONFIG = Path(__file__).parents[2] / "configs" / "finetune.yml"


async def play(overrides: list[tuple[str, str]]) -> None:
    """Play one game against the person at the terminal; a random side opens."""
    async with WorkflowBuilder.from_config(load_config(CONFIG, overrides)) as builder:
        player = player_of(await builder.get_llm("player", wrapper_type="openai"))
        game = await play_game(player, HumanOpponent(), random.choice((AGENT, OPPONENT)))
    print("", *game.board, f"The model said {', '.join(game.answers)}: {game.outcome}.", sep="\n")


if __name__ == "__main__":
    asyncio.run(play([("llms.player.model", directory) for directory in sys.argv[1:2]]))
