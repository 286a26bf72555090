from dataclasses import replace

import pytest
from tokenizers.processors import TemplateProcessing

from fakes.scripted_worker import ScriptedWorker
from fakes.sse import chunks_of
from fakes.tiny_model import tiny_tokenizer
from nat.backend.tokenizer import ChatTokenizer


async def ask(client, **fields):
    answer = await client.post("/v1/completions", json={"model": "tiny", "max_tokens": 5} | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("prompts", [["the end", "an"], [[1, 2, 3], [4]]])
async def test_each_prompt_gets_its_choices(client, prompts):
    """Each of the prompts gets n choices, in order; the usage counts each prompt once."""
    answer = await ask(client, prompt=prompts, n=2, return_token_ids=True, ignore_eos=True)
    ids = [choice["prompt_token_ids"] for choice in answer["choices"]]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert answer["usage"] == {
        "prompt_tokens": len(ids[0]) + len(ids[2]),
        "completion_tokens": 20,
        "total_tokens": len(ids[0]) + len(ids[2]) + 20,
    }


async def test_a_stream_equals_the_whole_answer(client):
    """Text, ids and usage are the same either way; prompt ids come once per choice."""
    asked = {"prompt": ["the end", "an"], "seed": 9, "max_tokens": 30, "return_token_ids": True, "logprobs": 1}
    whole = await ask(client, **asked)
    options = {"model": "tiny", "stream": True, "stream_options": {"include_usage": True}}
    chunks = chunks_of((await client.post("/v1/completions", json=asked | options)).text)
    assert chunks[-1]["usage"] == whole["usage"]
    for choice in whole["choices"]:
        mine = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
        assert "".join(c["text"] for c in mine) == choice["text"]
        assert [t for c in mine for t in c["token_ids"]] == choice["token_ids"]
        assert [t for c in mine for t in c["logprobs"]["token_logprobs"]] == choice["logprobs"]["token_logprobs"]
        assert [c["prompt_token_ids"] for c in mine if "prompt_token_ids" in c] == [choice["prompt_token_ids"]]
        assert [c["finish_reason"] for c in mine if c["finish_reason"]] == [choice["finish_reason"]]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        *(
            ([], "no tokens"),
            ("", "no tokens"),
            ({}, "prompt: "),
            ([1, "a"], "prompt: "),
        ),
        *(([1, 99999], "token id 99999 is outside"), ([1] * 510, "context has 512")),
    ],
)
async def test_invalid_prompts_are_refused(client, prompt, message):
    """Empty prompts, unknown ids and too long prompts are errors with the numbers."""
    answer = await client.post("/v1/completions", json={"model": "tiny", "prompt": prompt, "max_tokens": 5})
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_rendered_chat_gets_no_second_beginning(connect, loaded, caplog, stream):
    """`add_special_tokens: false` is vLLM's; without it, a doubled beginning-of-text is warned of once."""
    hf = tiny_tokenizer()
    hf.add_special_tokens({"bos_token": "<s>"})
    start = hf.bos_token_id
    hf.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", start)])
    worker = ScriptedWorker(replace(loaded, tokenizer=ChatTokenizer(hf)), "the")
    prompts = []
    async with connect(worker) as client:
        for text, special in (("the", True), ("the", False), ("<s>the", False), ("<s>the", True), ("<s>the", True)):
            body = {"model": "scripted", "prompt": text, "add_special_tokens": special, "return_token_ids": True}
            answer = await client.post("/v1/completions", json=body | {"stream": stream})
            [choice, *_] = (chunks_of(answer.text)[0] if stream else answer.json())["choices"]
            prompts.append(choice["prompt_token_ids"].count(start))
    assert prompts == [1, 0, 1, 2, 2]
    assert ["<s> twice" in each and "add_special_tokens" in each for each in caplog.messages] == [True]


async def test_prompts_are_scored_in_vllms_shape(client, loaded):
    """Each token after the first has its log probability, rank and text by its id, then the most likely others."""
    ids = loaded.tokenizer.encode("the end")
    (choice,) = (await ask(client, prompt=ids, prompt_logprobs=2, max_tokens=1))["choices"]
    first, *others = choice["prompt_logprobs"]
    assert first is None
    for token, entry in zip(ids[1:], others, strict=True):
        assert next(iter(entry)) == str(token)
        assert {frozenset(each) for each in entry.values()} == {frozenset({"logprob", "rank", "decoded_token"})}
        assert entry[str(token)]["decoded_token"] == loaded.tokenizer.token_text(token).text
        assert {each["rank"] for each in entry.values()} >= {1, 2}
    (plain,) = (await ask(client, prompt=ids, max_tokens=1))["choices"]
    assert "prompt_logprobs" not in plain


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"prompt_logprobs": 0, "n": 2}, "n=1"),
        ({"prompt_logprobs": 0, "stream": True}, "stream=false"),
    ],
)
async def test_scores_that_cannot_be_given_are_refused(client, fields, message):
    """Numbers out of range, several choices, streams and more scores than fit into a response are errors."""
    answer = await client.post("/v1/completions", json={"model": "tiny", "prompt": "x", "max_tokens": 1} | fields)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
