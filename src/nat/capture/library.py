"""The HTTP library that the installed OpenAI SDK is built on, as `httpx`.

That is httpx2 for the SDK's newer versions and httpx for its older ones. Both have the same classes. The newer SDK
takes a client of the other library too, but each call then costs a third more.
"""

import importlib
from typing import TYPE_CHECKING

from openai import DefaultAsyncHttpxClient

if TYPE_CHECKING:
    import httpx2 as httpx
else:
    _client = DefaultAsyncHttpxClient.__base__
    httpx = importlib.import_module(_client.__module__.partition(".")[0])

__all__ = ["httpx"]
