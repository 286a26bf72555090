"""One of NeMo Customizer's services: lists of many pages, and what to do about its errors."""

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import httpx
from pydantic import BaseModel

from nat.http.service import Json, ServiceClient

_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
_RETRIES = 3
_PAGE_SIZE = 100


class _Pagination(BaseModel):
    total_pages: int | None = None


class _Page(BaseModel):
    """A part of a list, with the fields that are used."""

    data: list[Json] | None = None
    pagination: _Pagination | None = None


class ServiceConnection(ServiceClient):
    """One service at one address."""

    def __init__(self, base_url: str, token: str, *, service: str, key_field: str, **options: Any) -> None:
        """`key_field` is the field of the adapter that holds `token`; `options` are those of `ServiceClient`."""
        super().__init__(base_url, token, name=service, retries=_RETRIES, timeout=_TIMEOUT, **options)
        self._key_field = key_field

    async def json(self, method: str, path: str, **options: Any) -> Json:
        """The object that the service answers with."""
        return await self.read(Json, method, path, wanted="a JSON object", **options)

    async def listed(self, path: str) -> AsyncIterator[Json]:
        """The entries of a list, of all of its pages."""
        page = 1
        while True:
            asked = {"page": page, "page_size": _PAGE_SIZE}
            answer = await self.read(_Page, "GET", path, wanted="a list", params=asked)
            for entry in answer.data or ():
                yield entry
            total = None if answer.pagination is None else answer.pagination.total_pages
            if not answer.data or total is None or page >= total:
                return
            page += 1

    def hint(self, status: int | None) -> str:
        if status is None:
            return f"check the address of {self.name} in the trainer adapter, and that the service runs"
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return f"set `{self._key_field}` of the trainer adapter to a token that this service accepts"
        if status == HTTPStatus.NOT_FOUND:
            return f"check that {self.name} listens at this address, and the names in the trainer adapter"
        return super().hint(status)
