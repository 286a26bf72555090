"""Errors of calls to vLLM."""

from dataclasses import dataclass

import httpx
import pytest

from nat.backend.vllm.checks import check_server, check_version
from nat.backend.vllm.client import refused
from nat.errors import EngineNotStarted
from nat.secrets import known_secrets

SECRET = "hunter2-is-a-secret"


@pytest.fixture(autouse=True)
def _known():
    known_secrets.remember([SECRET])
    yield
    known_secrets.forget()


@dataclass
class Server:
    """Another server in place of vLLM, whose list of models is a text with a secret."""

    version: str = "0.32.0"

    def get(self, path):
        return httpx.Response(200, text=self.version if path == "/version" else "x" * 60 + SECRET)

    def knows(self, _):
        return True


@pytest.mark.parametrize("before", range(480, 500, 4))
def test_no_part_of_a_secret_stays_where_an_answer_is_cut(before):
    """Half a secret is not recognised, so the answer is redacted before it is cut."""
    answer = httpx.Response(500, text="x" * before + SECRET, request=httpx.Request("POST", "http://vllm/generate"))
    assert SECRET[:4] not in refused(answer).message


def test_no_part_of_a_secret_stays_where_a_version_or_a_list_is_cut():
    """The same for what another server answers in place of vLLM."""
    with pytest.raises(EngineNotStarted) as of_version:
        check_version(Server(version="x" * 60 + SECRET))
    with pytest.raises(EngineNotStarted) as of_list:
        check_server(Server(), context=8)
    assert all(SECRET[:4] not in str(error.value) for error in (of_version, of_list))
