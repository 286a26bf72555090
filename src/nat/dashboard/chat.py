"""A chat with both models of one run at a time: what they answer to the same messages, and when they are freed."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import BaseModel, Field, StringConstraints

from nat.dashboard.chat_models import MOST_TEMPERATURE, ModelPair, Reply, Serve, Speaker, served
from nat.errors import NatError, describe_error
from nat.http.asgi import cancel_and_wait

logger = logging.getLogger(__name__)

MOST_MESSAGE = 8000
"""Characters of a message."""
MOST_SYSTEM = 20_000
"""Characters of a system prompt."""
MOST_TURNS = 20
IDLE_SECONDS = 600.0
"""After the last message, the models are freed."""


class Question(BaseModel):
    """What both models are asked."""

    message: Annotated[str, StringConstraints(min_length=1, max_length=MOST_MESSAGE)]
    system: Annotated[str, StringConstraints(max_length=MOST_SYSTEM)] = ""
    temperature: float = Field(ge=0, le=MOST_TEMPERATURE, allow_inf_nan=False)


class ChatRefused(NatError):
    """A question that is not answered now; the models stay."""


@dataclass(frozen=True)
class AnsweredTurn:
    """A message, and both answers."""

    message: str
    replies: Sequence[Reply]


class OpenChat:
    """The conversation with the models of one run; its beginning loads them."""

    def __init__(self, run: str, pair: ModelPair, serve: Serve, idle_seconds: float) -> None:
        """`run` is the run's name in links."""
        self.run, self.pair = run, pair
        self.loading: str | None = pair.sides[0].title
        """The model that is being loaded."""
        self.ended: NatError | None = None
        """Why the models are not there any more."""
        self.system, self.temperature = pair.system, pair.temperature
        self.turns: list[AnsweredTurn] = []
        self._speakers: list[Speaker] = []
        self._answering: asyncio.Task[None] | None = None
        self._idle_seconds, self._used = idle_seconds, asyncio.Event()
        self._life = asyncio.create_task(self._live(serve))

    @property
    def ready(self) -> bool:
        return self.loading is None and self.ended is None

    @property
    def answering(self) -> bool:
        return self._answering is not None and not self._answering.done()

    @property
    def seen(self) -> str:
        """Changes whenever the page does."""
        replies = [reply for turn in self.turns for reply in turn.replies]
        size = sum(len(each.text + each.thinking + each.note) for each in replies)
        return f"{self.loading}-{self.ready}-{len(self.turns)}-{size}-{self.answering}"

    def ask(self, question: Question) -> None:
        """Have both models answer.

        Raises:
            ChatRefused: they are not there or still answer, or the conversation is too long.

        """
        if not self.ready:
            raise ChatRefused("the models are not loaded")
        if self.answering:
            raise ChatRefused("the models have not ended their answers; wait, or stop them")
        if len(self.turns) == MOST_TURNS:
            raise ChatRefused(f"a chat has at most {MOST_TURNS} messages; start anew")
        self.system, self.temperature = question.system, question.temperature
        turn = AnsweredTurn(question.message, [Reply(side.title) for side in self.pair.sides])
        self.turns.append(turn)
        self._answering = asyncio.create_task(self._answer(turn))

    async def stop(self) -> None:
        """Stop the answers; what is there stays."""
        if self._answering is not None:
            await cancel_and_wait(self._answering)

    async def start_anew(self) -> None:
        """Forget the conversation."""
        await self.stop()
        self.turns.clear()

    async def close(self) -> None:
        """Free the models."""
        await self.stop()
        await cancel_and_wait(self._life)

    async def _live(self, serve: Serve) -> None:
        """Load the models, and free them when they are not used, or the task is cancelled."""
        try:
            async with AsyncExitStack() as stack:
                for side in self.pair.sides:
                    self.loading = side.title
                    self._speakers.append(await stack.enter_async_context(serve(side)))
                self.loading = None
                await self._unused()
                self.ended = NatError(f"they were not used for {self._idle_seconds / 60:g} minutes")
        except Exception as error:
            if not isinstance(error, NatError):
                logger.exception("the models of a chat failed")
            message, hint = (
                (error.message, error.hint) if isinstance(error, NatError) else (describe_error(error), None)
            )
            self.ended = NatError(f"“{self.loading}” cannot be loaded: {message}", hint=hint)
        finally:
            self.loading = None

    async def _unused(self) -> None:
        while True:
            self._used.clear()
            try:
                async with asyncio.timeout(self._idle_seconds):  # `wait_for` of Python 3.11 may lose a cancellation
                    await self._used.wait()
            except TimeoutError:
                if not self.answering:
                    return

    async def _answer(self, turn: AnsweredTurn) -> None:
        try:
            async with asyncio.TaskGroup() as both:
                for place, reply in enumerate(turn.replies):
                    both.create_task(self._reply(reply, place))
        finally:
            self._used.set()

    async def _reply(self, reply: Reply, place: int) -> None:
        try:
            await self._speakers[place](reply, self._messages(place), self.temperature)
        except NatError as error:
            reply.note = f"no answer: {error.message}"
        except asyncio.CancelledError:
            reply.note = "stopped"
            raise

    def _messages(self, place: int) -> list[dict[str, str]]:
        """The conversation as one of the models knows it, without messages that it has not answered."""
        said = [{"role": "system", "content": self.system}] if self.system else []
        *before, now = self.turns
        for turn in before:
            if text := turn.replies[place].text:
                said += [{"role": "user", "content": turn.message}, {"role": "assistant", "content": text}]
        return [*said, {"role": "user", "content": now.message}]


class ChatDesk:
    """Has the chat of one run at a time."""

    def __init__(self, serve: Serve = served, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self.chat: OpenChat | None = None
        self._serve, self._idle_seconds = serve, idle_seconds

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.free()

    async def open(self, run: str, pair: ModelPair) -> None:
        """Load a run's models in place of any others; those of the same run stay, if they are there."""
        if self.chat is None or self.chat.run != run or self.chat.ended is not None:
            await self._put(OpenChat(run, pair, self._serve, self._idle_seconds))

    async def free(self) -> None:
        await self._put(None)

    async def _put(self, chat: OpenChat | None) -> None:
        before, self.chat = self.chat, chat  # before anything is awaited, so that two requests leave no chat behind
        if before is not None:
            await before.close()
