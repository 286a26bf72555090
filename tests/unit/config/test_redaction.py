import pytest

from nat.config.redaction import redacted
from nat.config.secrets import REDACTED, is_secret_key


@pytest.mark.parametrize("key", ["api_key", "hf_token", "OPENAI_API_KEY", "client_secret", "Password", "Authorization"])
def test_texts_under_secret_keys_are_stars(key):
    """Whatever sounds like a secret is not saved, however deep it lies."""
    assert redacted({"a": [{key: "x"}], "b": {key: {"inner": ["y"]}}}) == {
        "a": [{key: REDACTED}],
        "b": {key: {"inner": [REDACTED]}},
    }


@pytest.mark.parametrize("key", ["max_tokens", "micro_batch_tokens"])
def test_numbers_are_no_secrets(key):
    """A count of tokens stays readable."""
    assert redacted({key: 256}) == {key: 256}


def test_a_tokenizer_is_no_token():
    """Words that only contain a secret word are shown."""
    assert not is_secret_key("tokenizer")
    assert is_secret_key("token")


def test_user_names_in_urls_are_stars():
    """A URL with credentials keeps its host."""
    assert redacted({"base_url": "https://me:pw@host:80/v1"}) == {"base_url": f"https://{REDACTED}@host:80/v1"}


def test_nothing_stays_nothing():
    """A key that is not set is shown as not set."""
    assert redacted({"api_key": None, "token": ""}) == {"api_key": None, "token": ""}
