"""The example's functions, strategies and evaluator, for the configuration beside this file."""

import random
import uuid
from typing import Any

from pydantic import BaseModel, Field

from nat.builder.builder import Builder, EvalBuilder
from nat.builder.context import Context
from nat.builder.evaluator import EvaluatorInfo
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_evaluator, register_function, register_ttc_strategy
from nat.data_models.component_ref import FunctionRef, LLMRef, TTCStrategyRef
from nat.data_models.evaluator_config_base import EvaluatorBaseConfig
from nat.data_models.function import FunctionBaseConfig
from nat.data_models.intermediate_step import IntermediateStepPayload, IntermediateStepType, TTCEventData
from nat.data_models.ttc_strategy import TTCStrategyBaseConfig
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.eval.evaluator.evaluator_model import EvalOutputItem
from nat.experimental.test_time_compute.models.stage_enums import PipelineTypeEnum, StageTypeEnum
from nat.experimental.test_time_compute.models.strategy_base import StrategyBase
from nat.experimental.test_time_compute.models.ttc_item import TTCItem
from tic_tac_toe.game import LINES, Board, read_move

SYSTEM = "You play tic-tac-toe as {symbol}. Answer with the number of a free cell."


class ChooseMoveConfig(FunctionBaseConfig, name="choose_move"):
    llm: LLMRef | None = Field(default=None, description="Moves at random without one.")
    max_retries: int = 2


class MoveSelectorConfig(FunctionBaseConfig, name="ttc_move_selector"):
    search: TTCStrategyRef
    scorer: TTCStrategyRef
    selector: TTCStrategyRef


class SearchConfig(TTCStrategyBaseConfig, name="multi_candidate_move_search"):
    choose_move_fn: FunctionRef
    num_candidates: int = Field(default=3, ge=1)


class ScorerConfig(TTCStrategyBaseConfig, name="board_position_scorer"):
    pass


class WorkflowConfig(FunctionBaseConfig, name="dpo_tic_tac_toe"):
    trained_ttc_move_selector_fn: FunctionRef
    opponent_ttc_move_selector_fn: FunctionRef


class OutcomeConfig(EvaluatorBaseConfig, name="dpo_game_outcome"):
    pass


class Position(BaseModel):
    cells: tuple[str, ...]
    symbol: str
    turn_index: int = 0


class Move(BaseModel):
    cell: int
    raw_response: str
    messages: list[dict[str, str]]
    """With the answer at the end, as the toolkit's example has it."""


class Searcher(StrategyBase):
    """Calls the function once per candidate."""

    choose: Any

    async def build_components(self, builder: Builder) -> None:
        self.choose = await builder.get_function(self.config.choose_move_fn)

    def supported_pipeline_types(self):
        return [PipelineTypeEnum.AGENT_EXECUTION, PipelineTypeEnum.CUSTOM]

    def stage_type(self):
        return StageTypeEnum.SEARCH

    async def ainvoke(self, items, original_prompt=None, agent_context=None, **kwargs):
        wanted = [item for item in items for _ in range(self.config.num_candidates)]
        return [TTCItem(input=item.input, output=await self.choose.ainvoke(item.input)) for item in wanted]


class Scorer(StrategyBase):
    """A win is worth most, then the middle, then a corner."""

    async def build_components(self, builder: Builder) -> None:
        pass

    def supported_pipeline_types(self):
        return [PipelineTypeEnum.AGENT_EXECUTION, PipelineTypeEnum.CUSTOM]

    def stage_type(self):
        return StageTypeEnum.SCORING

    async def ainvoke(self, items, original_prompt=None, agent_context=None, **kwargs):
        for item in items:
            board = Board(item.input["cells"]).place(item.input["symbol"], item.output.cell)
            lines = sum(item.output.cell - 1 in line for line in LINES)
            item.score = 1.0 if board.winner else lines / 10
        return items


class OutcomeEvaluator(BaseEvaluator):
    async def evaluate_item(self, item):
        score = {"Win!": 1.0, "Draw!": 0.5, "Lose!": 0.0}[item.output_obj]
        return EvalOutputItem(id=item.id, score=score, reasoning=item.output_obj)


def register_components() -> None:
    """Run the decorators."""
    _register_choose_move()
    _register_move_selector()
    _register_game()


def _register_choose_move() -> None:
    @register_function(config_type=ChooseMoveConfig)
    async def choose_move(config: ChooseMoveConfig, builder: Builder):
        client = None if config.llm is None else await builder.get_llm(config.llm, wrapper_type="openai")
        dice = random.Random(0)

        async def choose(position: Position) -> Move:
            board = Board(position.cells)
            messages = [{"role": "system", "content": SYSTEM.format(symbol=position.symbol)}]
            messages.append({"role": "user", "content": str(board)})
            for _ in range(1 + config.max_retries):
                if client is None:
                    text = str(dice.choice(board.free))
                else:
                    reply = await client.chat.completions.create(model=client.model_name, messages=messages)
                    text = reply.choices[0].message.content
                messages.append({"role": "assistant", "content": text})
                if (cell := read_move(text, board)) is not None:
                    return Move(cell=cell, raw_response=text, messages=messages)
                messages.append({"role": "user", "content": f"That is no free cell. The board:\n{board}"})
            raise RuntimeError("no valid move")

        yield FunctionInfo.from_fn(choose, description="One move")


def _register_move_selector() -> None:
    @register_function(config_type=MoveSelectorConfig)
    async def ttc_move_selector(config: MoveSelectorConfig, builder: Builder):
        async def strategy(name, stage):
            return await builder.get_ttc_strategy(
                strategy_name=name, pipeline_type=PipelineTypeEnum.AGENT_EXECUTION, stage_type=stage
            )

        searcher = await strategy(config.search, StageTypeEnum.SEARCH)
        scorer = await strategy(config.scorer, StageTypeEnum.SCORING)
        selector = await strategy(config.selector, StageTypeEnum.SELECTION)

        async def select(position: Position) -> int:
            steps = Context.get().intermediate_step_manager
            turn_id = f"turn_{position.turn_index}_{uuid.uuid4().hex[:8]}"
            found = await searcher.ainvoke([TTCItem(input=position.model_dump())])
            scored = await scorer.ainvoke(found)
            [selected] = await selector.ainvoke(scored)
            for index, item in enumerate(scored):
                move: Move = item.output
                data = TTCEventData(
                    turn_id=turn_id,
                    turn_index=position.turn_index,
                    candidate_index=index,
                    input=move.messages,
                    output=move.raw_response,
                    score=item.score,
                )
                step = {"name": "dpo_candidate_move", "UUID": str(uuid.uuid4()), "data": data}
                step["metadata"] = {"player": position.symbol, "is_selected": item is selected}
                steps.push_intermediate_step(IntermediateStepPayload(event_type=IntermediateStepType.TTC_START, **step))
                steps.push_intermediate_step(IntermediateStepPayload(event_type=IntermediateStepType.TTC_END, **step))
            return selected.output.cell

        yield FunctionInfo.from_fn(select, description="The best of some moves")


def _register_game() -> None:
    @register_ttc_strategy(config_type=SearchConfig)
    async def search(config: SearchConfig, builder: Builder):
        searcher = Searcher(config)
        await searcher.build_components(builder)
        yield searcher

    @register_ttc_strategy(config_type=ScorerConfig)
    async def scorer(config: ScorerConfig, builder: Builder):
        yield Scorer(config)

    @register_function(config_type=WorkflowConfig)
    async def dpo_tic_tac_toe(config: WorkflowConfig, builder: Builder):
        trained = await builder.get_function(config.trained_ttc_move_selector_fn)
        opponent = await builder.get_function(config.opponent_ttc_move_selector_fn)

        async def play(role: str) -> str:
            board, turn = Board(), 0
            while not board.over:
                symbol = "XO"[turn % 2]
                player = trained if symbol == role else opponent
                position = Position(cells=board.cells, symbol=symbol, turn_index=turn)
                board = board.place(symbol, await player.ainvoke(position))
                turn += 1
            return "Draw!" if board.winner is None else "Win!" if board.winner == role else "Lose!"

        yield FunctionInfo.from_fn(play, description="A game")

    @register_evaluator(config_type=OutcomeConfig)
    async def dpo_game_outcome(config: OutcomeConfig, builder: EvalBuilder):
        yield EvaluatorInfo(config=config, evaluate_fn=OutcomeEvaluator().evaluate, description="Outcome of a game")
