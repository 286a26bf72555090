"""Whether a model thinks before it answers, in the words that its family understands. Pure."""

import re
from typing import Any

from pydantic import BaseModel, ConfigDict

_NEMOTRON = re.compile(r"nvidia/(?:llama|nvidia).*nemotron", re.IGNORECASE)
_FIRST_NEMOTRON = re.compile(r"nvidia/llama.*(?:v1[._-][01]|v1$)", re.IGNORECASE)


class ThinkingMixin(BaseModel):
    """Whether a model thinks before it answers."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    thinking: bool | None = None
    """Let the model think before it answers, or not. NVIDIA's Nemotron models get a text in the system message, other
    models `enable_thinking` and `thinking` as variables of their chat template. Default: as the server does."""

    @property
    def thinking_system_prompt(self) -> str | None:
        """The text in the system message; None if nothing is set, or for models of other families."""
        model = str(getattr(self, "model_name", ""))  # the config that this is mixed into
        if self.thinking is None or not _NEMOTRON.match(model):
            return None
        if _FIRST_NEMOTRON.match(model):
            return f"detailed thinking {'on' if self.thinking else 'off'}"
        return "/think" if self.thinking else "/no_think"

    @property
    def thinking_fields(self) -> dict[str, Any]:
        """Fields of a chat request, for models of other families."""
        if self.thinking is None or self.thinking_system_prompt is not None:
            return {}
        return {"chat_template_kwargs": {"enable_thinking": self.thinking, "thinking": self.thinking}}
