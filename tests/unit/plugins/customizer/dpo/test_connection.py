"""Requests to one of NeMo Customizer's services."""

import httpx
import pytest

from nat.errors import BackendError
from nat.http.service import ServiceRefused
from nat.plugins.customizer.dpo.connection import ServiceConnection


def connection(answers):
    """A connection to a server that gives these answers in order, and its requests."""
    seen = []

    def handle(request):
        seen.append(request)
        return answers.pop(0)

    options = {"service": "the service", "key_field": "api_key", "transport": httpx.MockTransport(handle)}
    return ServiceConnection("http://service", "", **options), seen


async def test_a_wrong_token_names_the_field():
    """The hint says which field holds the token."""
    one, _ = connection([httpx.Response(401)])
    with pytest.raises(ServiceRefused) as raised:
        await one.send("GET", "/x")
    assert raised.value.hint == "set `api_key` of the trainer adapter to a token that this service accepts"


async def test_lists_are_read_to_the_end():
    """All pages of a list are read; a list without pages is one page."""
    pages = [{"data": [{"n": n}], "pagination": {"page": n, "total_pages": 3}} for n in (1, 2, 3)]
    one, seen = connection([httpx.Response(200, json=page) for page in pages])
    assert [each["n"] async for each in one.listed("/x")] == [1, 2, 3]
    assert [request.url.params["page"] for request in seen] == ["1", "2", "3"]
    other, _ = connection([httpx.Response(200, json={"data": [{"n": 1}]})])
    assert [each["n"] async for each in other.listed("/x")] == [1]


@pytest.mark.parametrize("answer", [{"data": 7}, {"data": ["a"]}, {"pagination": {"total_pages": "many"}}, []])
async def test_what_is_no_list_is_an_error_of_the_service(answer):
    """Another program may listen there."""
    one, _ = connection([httpx.Response(200, json=answer)])
    with pytest.raises(BackendError, match=r"the answer to GET http://service/x\?.* is not a list"):
        [each async for each in one.listed("/x")]
