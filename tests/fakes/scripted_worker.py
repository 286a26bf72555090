"""A worker whose model samples scripted tokens; the rest of the server is real."""

from types import SimpleNamespace

from nat.backend.inference.sequence import Delta, Request
from nat.backend.inference.worker import EnginePool
from nat.backend.model import LoadedModel


class ScriptedWorker:
    """Answers choice i of every request with `texts[i]`, then the end-of-sequence token."""

    scores_prompts = True

    def __init__(self, loaded: LoadedModel, *texts: str, by_letter: bool = False) -> None:
        """Script the texts; `by_letter` samples each text letter by letter, as its tokenizer would not split it."""
        self.loaded = loaded
        self.policy_version = "scripted@3"
        self.engine = SimpleNamespace(loaded=loaded, policy_version=self.policy_version)
        self.pool = EnginePool(self.engine)
        self.prompts: list[str] = []
        self.cancelled: list[Request] = []
        self._texts = texts
        self.by_letter = by_letter

    def names(self) -> list[str]:
        return self.pool.names()

    def knows(self, name: str) -> bool:
        return self.pool.knows(name)

    def submit(self, request: Request) -> None:
        tokenizer = self.engine.loaded.tokenizer
        request.policy_version = self.policy_version
        for sequence, text in zip(request.sequences, self._texts, strict=True):
            self.prompts.append(tokenizer.hf.decode(sequence.prompt_ids))
            pieces = list(text) if self.by_letter else [text]
            for token_id in [*(i for piece in pieces for i in tokenizer.encode(piece)), tokenizer.eos_token_id]:
                sequence.token_ids.append(token_id)
                sequence.logprobs.append(-0.5)
                ended = token_id == tokenizer.eos_token_id
                if sequence.text is not None:
                    ended = sequence.text.push(token_id) or ended
                if request.stream:
                    shown = sequence.text.finish() if ended else sequence.text.take()
                    reason = "stop" if ended else None
                    request.listener.on_deltas([Delta(sequence.index, [token_id], [-0.5], [], shown, reason)])
                if ended:
                    break
            sequence.finish_reason = "stop"
        request.listener.on_finished()

    def cancel(self, request: Request) -> None:
        self.cancelled.append(request)
