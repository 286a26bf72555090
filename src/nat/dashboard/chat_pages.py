"""The page of a run's chat, and its buttons; they change what `nat ui` has in memory, and no run."""

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from nat.dashboard.chat import MOST_MESSAGE, MOST_SYSTEM, ChatDesk, ChatRefused, OpenChat, Question
from nat.dashboard.chat_models import MOST_TEMPERATURE, ModelPair, pair_of
from nat.dashboard.rendering import render
from nat.dashboard.runs import Runs
from nat.dashboard.views import Links
from nat.errors import JournalError, findings_of
from nat.http.errors import ApiError
from nat.http.limits import read_body
from nat.runs.journal import reading

_MOST = {"message": MOST_MESSAGE, "system": MOST_SYSTEM, "temperature": MOST_TEMPERATURE}
_MOST_BYTES = 12 * (MOST_MESSAGE + MOST_SYSTEM) + 1000
"""Of a form: a character has up to four bytes, and each of them three letters."""


class ChatPages:
    """One method for the page, one for its news, and one for the buttons."""

    def __init__(self, runs: Runs, desk: ChatDesk) -> None:
        self._runs, self._desk = runs, desk

    def routes(self) -> list[Route]:
        here = "/runs/{slug}/chat"
        return [
            Route(here, self.page, methods=["GET"]),
            Route(f"{here}/news", self.news, methods=["GET"]),
            Route(here + "/{button:str}", self.press, methods=["POST"]),
        ]

    async def page(self, request: Request) -> Response:
        return await self._shown(request, "chat.html", announce=False)

    async def news(self, request: Request) -> Response:
        """What has changed since the browser last asked; of a conversation without the form, where somebody types."""
        chat = self._chat(request)
        if chat is not None and request.query_params.get("seen") == chat.seen:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        talks = chat is not None and chat.ready and "talks" in request.query_params
        template = "_conversation.html" if talks else "_chat.html"
        response = await self._shown(request, template, announce=chat is None or not chat.answering)
        response.headers["HX-Retarget"] = "#conversation" if talks else "#chat"
        return response

    async def press(self, request: Request) -> Response:
        chat = self._chat(request)
        match request.path_params["button"]:
            case "load":
                with suppress(JournalError):  # the page says why
                    await self._desk.open(request.path_params["slug"], await self._pair(request))
            case "say" if chat is not None:
                return await self._say(request, chat)
            case "stop" if chat is not None:
                await chat.stop()
            case "anew" if chat is not None:
                await chat.start_anew()
            case "free" if chat is not None:
                await self._desk.free()
        return await self._shown(request, "_chat.html")

    async def _say(self, request: Request, chat: OpenChat) -> Response:
        fields = await _form(request)
        notice, kept = "", ""
        try:
            chat.ask(Question.model_validate(fields))
        except (ValidationError, ChatRefused) as error:
            notice = error.message if isinstance(error, ChatRefused) else str(findings_of(error)[0])
            kept = fields.get("message", "")
        return await self._shown(request, "_chat.html", notice=notice, message=kept)

    def _chat(self, request: Request) -> OpenChat | None:
        """The chat, if it is this run's."""
        chat = self._desk.chat
        return chat if chat is not None and chat.run == request.path_params["slug"] else None

    async def _pair(self, request: Request) -> ModelPair:
        def read() -> ModelPair:
            with reading(self._runs.folder(request.path_params["slug"])) as journal:
                return pair_of(journal)

        return await asyncio.to_thread(read)

    async def _shown(self, request: Request, template: str, **more: Any) -> Response:
        slug, chat, other = request.path_params["slug"], self._chat(request), self._desk.chat
        folder, why = await asyncio.to_thread(self._runs.folder, slug), None
        try:
            pair = await self._pair(request) if chat is None else chat.pair
        except JournalError as error:
            pair, why = None, error
        values = {
            "links": Links(f"/runs/{slug}"),
            "run": folder.name,
            "chat": chat,
            "pair": pair,
            "why": why,
            "other": other.run.partition("~")[0]
            if other is not None and other is not chat and not other.ended
            else None,
            "most": _MOST,
        }
        return HTMLResponse(render(template, **{"notice": "", "message": "", "announce": True, **values, **more}))


async def _form(request: Request) -> dict[str, str]:
    """The fields that a browser sends, whose line breaks may be two characters."""
    try:
        body = await read_body(request.scope, request.receive, max_bytes=_MOST_BYTES)
        fields = parse_qsl(body.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=10)
    except (ApiError, ValueError) as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from error
    return {name: text.replace("\r\n", "\n") for name, text in fields}
