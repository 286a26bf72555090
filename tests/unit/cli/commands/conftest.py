from collections.abc import AsyncIterator

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer


@pytest.fixture
async def project(tmp_path) -> AsyncIterator[FinetuningProject]:
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        with project.registered():
            yield project
