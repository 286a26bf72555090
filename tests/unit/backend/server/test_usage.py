"""What an answer says of its tokens."""


async def test_prompt_tokens_that_were_not_computed_again_are_told(client):
    """As OpenAI words it, `cached_tokens`; an answer without any says nothing."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "told once " * 5}], "max_tokens": 2}
    first, second = [(await client.post("/v1/chat/completions", json=body)).json()["usage"] for _ in range(2)]
    assert "prompt_tokens_details" not in first
    assert second["prompt_tokens_details"] == {"cached_tokens": second["prompt_tokens"] - 1}
