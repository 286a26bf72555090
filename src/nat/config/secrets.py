"""Which keys hold secrets, and how a value under one is shown."""

import re

REDACTED = "**********"

_SECRET_KEY = re.compile(r"api_?key|token(?!iz)|secret|password|passwd|credential|authorization", re.IGNORECASE)


def is_secret_key(key: object) -> bool:
    """True for api_key, hf_token, client_secret, password and their like."""
    return _SECRET_KEY.search(str(key)) is not None
