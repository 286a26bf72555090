"""/tokenize and /detokenize, in vLLM's shape."""

import pytest


async def test_text_becomes_ids_and_ids_become_text(client, loaded):
    """Ids are those of a prompt; the text of ids includes special tokens, and unknown ids have none."""
    answer = (await client.post("/tokenize", json={"model": "tiny", "prompt": "the end"})).json()
    ids = loaded.tokenizer.encode("the end")
    assert answer == {"count": len(ids), "max_model_len": 512, "tokens": ids, "token_strs": None}
    asked = [*ids, loaded.tokenizer.eos_token_id, 10**6]
    text = (await client.post("/detokenize", json={"model": "tiny", "tokens": asked})).json()["prompt"]
    assert text == "the end<|im_end|>"


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/tokenize", {"prompt": "x", "model": "other"}, 404, "not served here"),
        ("/tokenize", {"messages": []}, 400, "prompt"),
        ("/detokenize", {"tokens": [-1]}, 400, "-1 is no token id"),
        ("/detokenize", {"tokens": [2**40]}, 400, "no token id"),
        ("/detokenize", {"tokens": ["a"]}, 400, "tokens"),
    ],
)
async def test_wrong_requests_are_refused(client, path, body, status, message):
    """Long texts, unknown models, ids out of range and too many of them are errors that name what was wrong."""
    answer = await client.post(path, json=body)
    assert answer.status_code == status
    assert message in answer.json()["error"]["message"]
