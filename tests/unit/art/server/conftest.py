"""ART's routes on fake models, with the tokens and the chat template of a tiny model."""

import httpx
import pytest

from fakes.art_models import FakeArtModels
from fakes.keys import KEY
from fakes.running_server import running
from fakes.scripted_worker import ScriptedWorker
from fakes.tiny_fixtures import loaded, make_learner, tiny_dir
from nat.art.server.routes import control_router
from nat.art.server.served_answers import ServedAnswers
from nat.art.server.serverless import serverless_router
from nat.art.server.submissions import Submissions
from nat.backend.server.app import create_app

__all__ = ["loaded", "make_learner", "tiny_dir"]


@pytest.fixture
def models(loaded, tmp_path):
    return FakeArtModels(loaded, tmp_path)


@pytest.fixture
def served():
    return ServedAnswers()


@pytest.fixture
def routers(models, served):
    """ART's own routes."""
    submissions = Submissions(models, served)
    return [
        control_router(submissions, inference_port=8000, api_key=KEY, host="127.0.0.1"),
        serverless_router(submissions, base_model="tiny"),
    ]


@pytest.fixture
def app(loaded, served, routers):
    """The application as `nat backend serve --inference_port 8000` composes it, with the well-known key."""
    return create_app(
        ScriptedWorker(loaded, "an"), api_key=KEY, well_known_key=True, answers=served, extra_routers=routers
    )


@pytest.fixture
async def client(app):
    """A client without a key, as ART's clients call control routes."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app, raise_app_exceptions=False), base_url="http://gpu-box:7623"
    ) as client:
        yield client


@pytest.fixture
async def wire(app):
    """The same over a real socket, which shows how connections end."""
    async with running(app) as client:
        yield client
