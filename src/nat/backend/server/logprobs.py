"""Log probabilities in the two shapes of the OpenAI API, and those of prompts in vLLM's."""

from typing import Any

from nat.backend.inference.sequence import ScoredToken
from nat.backend.tokenizer import ChatTokenizer, TokenText

Json = dict[str, Any]
Ranked = list[tuple[int, float]]


class LogprobWriter:
    """Writes tokens as text, or as `token_id:<id>` if the request wants the ids there."""

    def __init__(self, tokenizer: ChatTokenizer, *, as_token_ids: bool) -> None:
        self._tokenizer = tokenizer
        self._as_token_ids = as_token_ids

    def chat(self, token_ids: list[int], logprobs: list[float], top: list[Ranked]) -> Json:
        """One entry per sampled token, end-of-sequence tokens included."""
        content = []
        for i, token in enumerate(zip(token_ids, logprobs, strict=True)):
            entry = self._token(*token)
            entry["top_logprobs"] = [self._token(*other) for other in top[i]] if top else []
            content.append(entry)
        return {"content": content, "refusal": None}

    def text(self, token_ids: list[int], logprobs: list[float], top: list[Ranked], *, offset: int) -> Json:
        """Parallel lists over the sampled tokens; `offset` is where the first one begins in the choice's text."""
        offsets = []
        for token_id in token_ids:
            offsets.append(offset)
            offset += len(self._tokenizer.decode([token_id]))
        return {
            "tokens": [self._read(token_id).text for token_id in token_ids],
            "token_logprobs": logprobs,
            "top_logprobs": [{self._read(i).text: value for i, value in ranked} for ranked in top] or None,
            "text_offset": offsets,
        }

    def prompt(self, scores: list[list[ScoredToken]]) -> list[dict[int, Json] | None]:
        """For each token of a prompt, itself and alternatives by id, in vLLM's shape; nothing predicts the first."""
        return [
            None,
            *(
                {
                    each.token_id: {
                        "logprob": each.logprob,
                        "rank": each.rank,
                        "decoded_token": self._read(each.token_id).text,
                    }
                    for each in entry
                }
                for entry in scores
            ),
        ]

    def _token(self, token_id: int, logprob: float) -> Json:
        """`bytes` is null if they are unknown."""
        token = self._read(token_id)
        return {"token": token.text, "logprob": logprob, "bytes": token.data}

    def _read(self, token_id: int) -> TokenText:
        token = self._tokenizer.token_text(token_id)
        return TokenText(f"token_id:{token_id}", token.data) if self._as_token_ids else token
