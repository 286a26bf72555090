import pytest

from nat.backend.server.guard import BearerKey


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/chat/completions", "/nowhere"])
@pytest.mark.parametrize("key", [None, "Bearer sk-wrong", "sk-test", "Bearer "])
async def test_every_path_needs_the_key(connect, worker, path, key):
    """Without the bearer key nothing is said, not even which paths there are."""
    async with connect(worker, headers={"authorization": key} if key else {}) as client:
        answer = await client.get(path)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"


async def test_a_server_without_a_key_is_refused(connect, worker):
    """An empty key would let everyone in."""
    async with connect(worker) as client:
        assert (await client.get("/health")).status_code == 200
    with pytest.raises(ValueError, match="needs an API key"):
        BearerKey(None, api_key="")


async def test_a_body_over_the_limit_is_refused(connect, worker):
    """By the announced size, and by the real one where none is announced."""

    async def in_pieces():
        for _ in range(20):
            yield b" " * 10

    async with connect(worker, max_body_bytes=100) as client:
        announced = await client.post("/v1/completions", content=b" " * 101)
        streamed = await client.post("/v1/completions", content=in_pieces())
    for answer in (announced, streamed):
        assert answer.status_code == 413
        assert "larger than 100 bytes" in answer.json()["error"]["message"]
