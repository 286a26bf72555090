import pytest
from fastapi import APIRouter

from nat.errors import BackendError, ModelBusy, ModelNotPrepared, ModelNotServed


async def test_the_model_is_listed_by_its_name_and_its_version(client):
    """The plain name always means the newest weights."""
    cards = (await client.get("/v1/models")).json()["data"]
    assert [card["id"] for card in cards] == ["tiny", "tiny@4"]
    assert cards[0]["max_model_len"] == 512


async def test_health_names_the_policy_version(client):
    """Whoever watches can see an update arrive."""
    assert (await client.get("/health")).json() == {"status": "ok", "policy_version": "tiny@4"}


async def test_unknown_paths_and_methods_answer_in_openais_shape(client):
    """Clients show the message of `error`; those of FastAPI servers look for `detail`."""
    for answer, status in ((await client.get("/v1/nowhere"), 404), (await client.get("/v1/completions"), 405)):
        assert answer.status_code == status
        assert answer.json()["error"]["message"].startswith("GET /v1/")
        assert answer.json()["detail"] == answer.json()["error"]["message"]


async def test_routers_of_others_stand_behind_the_same_doors(connect, worker):
    """Their crashes, too, are answers in OpenAI's shape."""
    router = APIRouter()

    @router.get("/v1/extra")
    async def extra():
        return {"extra": 1 // 0}

    async with connect(worker, extra_routers=[router]) as client:
        answer = await client.get("/v1/extra")
        assert answer.status_code == 500
        assert "ZeroDivisionError" in answer.json()["error"]["message"]
        assert (await client.get("/v1/extra", headers={"authorization": ""})).status_code == 401


@pytest.mark.parametrize(
    ("error", "status"), [(ModelBusy, 409), (ModelNotPrepared, 400), (ModelNotServed, 404), (BackendError, 500)]
)
async def test_what_the_backend_refuses_has_a_status_and_a_remedy(connect, worker, error, status):
    """The client reads what was seen and what to do, in one line."""
    router = APIRouter()

    @router.get("/v1/extra")
    async def extra():
        raise error("it is so", hint="do this")

    async with connect(worker, extra_routers=[router]) as client:
        answer = await client.get("/v1/extra")
    assert (answer.status_code, answer.json()["detail"]) == (status, "it is so; do this")
