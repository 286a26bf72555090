"""Models of a chat without weights: they answer what they were asked, and tests see when they are loaded and freed."""

import asyncio
from contextlib import asynccontextmanager

from nat.errors import BackendError, ModelUnavailable


class ChatModels:
    """Takes the place of `served`; an answer waits at its end while `pause` is not set."""

    def __init__(self, answer="heard: {}", *, broken=()):
        self.answer = answer
        self.broken = broken
        """Titles of models that cannot be loaded."""
        self.loaded, self.asked = [], []
        self.loading, self.pause = asyncio.Event(), asyncio.Event()
        self.loading.set()
        self.pause.set()
        self.fails = False

    @asynccontextmanager
    async def __call__(self, side):
        await self.loading.wait()
        if side.title in self.broken:
            raise ModelUnavailable(f"{side.model} is <b>no</b> model", hint="copy its files")

        async def speak(reply, messages, temperature):
            self.asked.append((side.title, list(messages), temperature))
            reply.text += self.answer.format(messages[-1]["content"])
            await self.pause.wait()
            if self.fails:
                raise BackendError("the model has fallen over")
            reply.text += f" ({side.title})"

        self.loaded.append(side.model)
        try:
            yield speak
        finally:
            self.loaded.remove(side.model)
