"""The HTTP library that the installed OpenAI SDK is built on, as `httpx`.

Newer versions of the SDK use httpx2, older ones httpx; both have the same classes. The newer SDK accepts a client of
the other library too, but then each call costs a third more.
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
