import pytest

from nat.config.load import parse_config
from nat.config.secrets import environment_secrets, is_secret_key, redacted, secrets_in
from nat.secrets import REDACTED, redact

SECRET_KEYS = (
    "api_key apiKey x-api-key X-Api-Key access_key aws_secret_access_key hf_token OPENAI_API_KEY client_secret "
    "Password passwd Authorization Proxy-Authorization default_headers cookie private_key OPENWEATHER_KEY KEY db_pwd "
    "SENTRY_DSN credentials auth_tokens SLACK_WEBHOOK key auth X-Auth connection_string connectionString sas_url "
    "PGPASS db_pass SMTP_PASS basic_auth x-functions-key service_key AZURE_STORAGE_CONNECTION_STRING root_pw"
)
OTHER_KEYS = (
    "max_tokens micro_batch_tokens tokens_trained token_ids eos_token_id tokenizer token_level question_key id_key "
    "answer_key model name key_metric sort_key primary_key keyboard keys keywords author authors auth_mode "
    "pass_rate passage first_pass compass bypass database_url connection_timeout"
)


@pytest.mark.parametrize("key", SECRET_KEYS.split())
def test_names_of_secrets(key):
    """Names of secrets are recognised in any spelling."""
    assert is_secret_key(key)


@pytest.mark.parametrize("key", OTHER_KEYS.split())
def test_names_of_other_things(key):
    """Token counts, column names and tokenizers are no secrets."""
    assert not is_secret_key(key)


@pytest.mark.parametrize(
    ("tree", "found"),
    [
        ({"api_key": "value-of-1"}, {"value-of-1"}),
        ({"credentials": {"user": "me-myself-1"}}, {"me-myself-1"}),
        ({"password": 12345678}, {"12345678"}),
        ({"headers": {"X": "Token value-of-1"}}, {"Token value-of-1", "value-of-1"}),
        ({"url": "https://me:pass-w@host/x"}, {"me:pass-w", "pass-w"}),
        ({"url": "https://h/x?api-version=2024-02-01&api_key=value-1"}, {"value-1"}),
        ({"command": "run --api-key value-1 --max-tokens 12345678"}, {"value-1"}),
        ({"command": ["run", "--token", "value-1", "other-1"]}, {"value-1"}),
        ({"command": "API_KEY='value-1' SIZE=12345678 run"}, {"value-1"}),
        ({"prompt": "send Authorization: Bearer value-of-1"}, {"value-of-1"}),
        ({"prompt": "The password: swordfish, token = one word"}, set()),
        ({"prompt": "Basic arithmetic; sorted(key=operator.itemgetter(1))"}, set()),
        ({"auth": "value-of-1", "evaluators": {"key": {"_type": "exact_match"}}}, {"value-of-1"}),
        ({"max_tokens": 100, "seed": 12345678, "flag": True}, set()),
    ],
)
def test_secrets_in_a_tree(tree, found):
    """Secrets are found under secret names, in URLs, and in options and variables of a command."""
    assert set(secrets_in(tree)) == found


def test_logins_of_the_environment_count():
    """A URL's password is a secret whatever its variable is called; a user's name alone is not."""
    environ = {"DATABASE_URL": "postgres://me:pass%2Fword-1@db/x", "REMOTE": "ssh://someone@host"}
    assert list(environment_secrets(environ)) == ["me:pass%2Fword-1", "pass%2Fword-1", "pass/word-1"]


def test_the_working_folder_is_no_password():
    """PWD would put stars into every path that a run writes or logs."""
    assert list(environment_secrets({"PWD": "/home/me/agents", "OLDPWD": "/home/me", "DB_PWD": "hunter22"})) == [
        "hunter22"
    ]


def test_loading_a_configuration_registers_its_secrets():
    """The names decide: those of keys in the YAML, and of variables, used or not."""
    environ = {"ODD": "odd-value-1", "PLAIN": "plain-value-1", "HF_TOKEN": "hf-token-1"}
    texts = {"token": "${ODD}", "b": "${PLAIN}", "api_key": "literal-1"}
    tree = {"llms": {"x": {"_type": "openai", "model_name": "m", "base_url": "http://h", "extra_body": texts}}}
    parse_config(tree, environ=environ)
    assert redact("odd-value-1 hf-token-1 literal-1 plain-value-1") == f"{REDACTED} {REDACTED} {REDACTED} plain-value-1"


def test_texts_under_secret_names_are_stars_at_any_depth():
    """A count of tokens stays readable."""
    tree = {"a": [{"api_key": "x"}], "b": {"hf_token": {"inner": ["y"]}}, "max_tokens": 256}
    assert redacted(tree) == {"a": [{"api_key": REDACTED}], "b": {"hf_token": {"inner": [REDACTED]}}, "max_tokens": 256}
