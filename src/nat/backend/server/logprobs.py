"""Log probabilities in the two shapes of the OpenAI API, and those of prompts in vLLM's."""

from nat.backend.inference.sequence import ScoredToken
from nat.backend.tokenizer import ChatTokenizer, TokenText
from nat.wire.openai_responses import Alternative, ChatLogprobs, PromptLogprob, TextLogprobs, TokenLogprob

Ranked = list[tuple[int, float]]


class LogprobWriter:
    """Writes tokens as text, or as `token_id:<id>` if the request wants the ids there."""

    def __init__(self, tokenizer: ChatTokenizer, *, as_token_ids: bool) -> None:
        self._tokenizer = tokenizer
        self._as_token_ids = as_token_ids

    def chat(self, token_ids: list[int], logprobs: list[float], top: list[Ranked]) -> ChatLogprobs:
        content = []
        for i, (token_id, logprob) in enumerate(zip(token_ids, logprobs, strict=True)):
            token = self._read(token_id)
            ranked = [(self._read(other), value) for other, value in top[i]] if top else []
            others = [Alternative.model_construct(token=o.text, logprob=v, bytes=o.data) for o, v in ranked]
            content.append(
                TokenLogprob.model_construct(token=token.text, logprob=logprob, bytes=token.data, top_logprobs=others)
            )
        return ChatLogprobs.model_construct(content=content, refusal=None)

    def text(self, token_ids: list[int], logprobs: list[float], top: list[Ranked], *, offset: int) -> TextLogprobs:
        """`offset` is where the first token begins in the choice's text, in characters."""
        tokens = [self._read(token_id).text for token_id in token_ids]
        offsets = []
        for token_id in token_ids:
            offsets.append(offset)
            offset += len(self._tokenizer.decode([token_id]))
        alternatives = [{self._read(i).text: value for i, value in ranked} for ranked in top]
        return TextLogprobs(
            tokens=tokens, token_logprobs=logprobs, top_logprobs=alternatives or None, text_offset=offsets
        )

    def prompt(self, scores: list[list[ScoredToken]]) -> list[dict[int, PromptLogprob] | None]:
        """Scores of a prompt's tokens in vLLM's shape, with null for the first token."""
        return [
            None,
            *(
                {
                    each.token_id: PromptLogprob.model_construct(
                        logprob=each.logprob, rank=each.rank, decoded_token=self._read(each.token_id).text
                    )
                    for each in entry
                }
                for entry in scores
            ),
        ]

    def _read(self, token_id: int) -> TokenText:
        token = self._tokenizer.token_text(token_id)
        return TokenText(f"token_id:{token_id}", token.data) if self._as_token_ids else token
