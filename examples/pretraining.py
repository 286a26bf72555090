"""`nat.backend.pretraining` for the `make_model.py` of every example, on a pinned instruction set.

Sums then have a fixed order; another kind of processor may still give other weights.
"""

import logging
import os
import sys

# The libraries read these when torch is imported, which is not before here.
os.environ["MKL_CBWR"] = "AVX2,STRICT"
os.environ["ATEN_CPU_CAPABILITY"] = "avx2"
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"

from nat.backend.pretraining import (
    ASSISTANT,
    CONVERSATIONS_PER_STEP,
    END,
    MAX_TOKENS,
    TOOL,
    UNKNOWN,
    USER,
    Schedule,
    assistant_loss,
    make_llama,
    make_tokenizer,
    write_chat_model,
    write_model,
)

logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)

__all__ = [
    "ASSISTANT",
    "CONVERSATIONS_PER_STEP",
    "END",
    "MAX_TOKENS",
    "TOOL",
    "UNKNOWN",
    "USER",
    "Schedule",
    "assistant_loss",
    "make_llama",
    "make_tokenizer",
    "write_chat_model",
    "write_model",
]
