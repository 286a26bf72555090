"""The chat with two models: what its page says, what its buttons do, and when the models are freed."""

import asyncio
from urllib.parse import urlencode

import httpx
import pytest

from fakes.attacks import TEXTS
from fakes.chat_models import ChatModels
from fakes.run_records import rollout_record
from fakes.runs_on_disk import make_run
from nat.dashboard.app import create_app
from nat.dashboard.chat import MOST_MESSAGE, MOST_SYSTEM, MOST_TURNS, ChatDesk
from nat.dashboard.runs import slug_of
from nat.runs.journal import Journal
from nat.runs.records import Phase
from unit.dashboard.test_app import Parsed
from unit.dashboard.test_chat_models import keep


class Browser:
    """Somebody at the page of a run's chat."""

    def __init__(self, http, run_dir):
        self.http = http
        self.here = f"/runs/{slug_of(run_dir)}/chat"

    async def page(self):
        response = await self.http.get(self.here)
        assert response.status_code == 200
        return response.text

    async def press(self, button, **form):
        content = urlencode(form)
        response = await self.http.post(f"{self.here}/{button}", content=content)
        assert response.status_code == 200, response.text
        return response.text

    async def say(self, message, system="", temperature="0.5"):
        return await self.press("say", message=message, system=system, temperature=temperature)

    async def until(self, words, *, gone=False):
        """The page once it has these words, or has them no more."""
        async with asyncio.timeout(10):
            while (words in (text := await self.page())) is gone:  # noqa: ASYNC110 - a browser asks again, too
                await asyncio.sleep(0.01)
        return text

    async def loaded(self):
        await self.press("load")
        return await self.until("Message to both")

    async def heard(self, message, **more):
        await self.say(message, **more)
        return await self.until('id="stop"', gone=True)


@pytest.fixture
def models():
    return ChatModels()


@pytest.fixture
async def desk(models):
    async with ChatDesk(models) as desk:
        yield desk
    assert models.loaded == []


@pytest.fixture
def run_dir(tmp_path):
    run_dir = make_run(tmp_path, "run-1")
    keep(run_dir, "step_4")
    return run_dir


@pytest.fixture
async def browser(run_dir, desk):
    transport = httpx.ASGITransport(create_app(run_dir.parent, desk))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        yield Browser(http, run_dir)


async def test_nothing_is_loaded_before_somebody_asks(browser, models):
    """The page says which models these are, and waits for the button."""
    text = await browser.page()
    assert "the model that the run started from, models/small" in text
    assert "Load both models" in text
    assert models.loaded == []


async def test_while_it_loads_the_page_says_so_and_asks_again(browser, models):
    """A browser that has seen the state gets nothing until there are news, then the form."""
    models.loading.clear()
    text = await browser.press("load")
    assert "Loading both models, now “Untrained” …" in text
    assert "Both models" not in text
    news = next(link for link in Parsed(text).links if "news" in link)
    assert (await browser.http.get(news)).status_code == 204
    models.loading.set()
    await browser.until("Message to both")
    assert (await browser.http.get(news)).headers["hx-retarget"] == "#chat"
    assert len(models.loaded) == 2


async def test_both_models_answer_and_know_their_own_answers(browser, models):
    """In a second turn, each has its own conversation; system prompt and temperature are those of the form."""
    text = await browser.loaded()
    text = await browser.heard("one\r\ntwo", system="Be brief.", temperature="0")
    assert text.count("heard: one\ntwo (") == 2
    text = await browser.heard("three", system="Be brief.", temperature="1.5")
    assert "Both models" not in text  # a page of its own has nothing to announce
    system, first = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "one\ntwo"}
    for title in ("Untrained", "Trained"):
        answered = {"role": "assistant", "content": f"heard: one\ntwo ({title})"}
        now = {"role": "user", "content": "three"}
        assert [each[1:] for each in models.asked if each[0] == title] == [
            ([system, first], 0.0),
            ([system, first, answered, now], 1.5),
        ]


async def test_the_system_prompt_is_the_recorded_one(browser, run_dir):
    """The first system message of a rollout of the last epoch."""
    messages = [{"role": "system", "content": "</textarea>Play well."}, {"role": "user", "content": "Go."}]
    with Journal.open(run_dir) as journal:
        journal.record_rollouts(Phase.TRAIN, 8, [rollout_record("a", messages=messages)])
    assert ">&lt;/textarea&gt;Play well.</textarea>" in await browser.loaded()


async def test_one_answer_at_a_time(browser, models):
    """A second message is refused, and its text stays in the form; the parts of the first appear as they come."""
    await browser.loaded()
    models.pause.clear()
    text = await browser.say("first")
    assert "Both models answer …" in text
    text = await browser.say("second")
    assert "Not sent: the models have not ended their answers; wait, or stop them." in text
    assert ">second</textarea>" in text
    assert "heard: first" in text
    assert [asked[1][-1]["content"] for asked in models.asked] == ["first", "first"]


async def test_stop_keeps_what_is_there(browser, models):
    """The next message goes on from there."""
    await browser.loaded()
    models.pause.clear()
    await browser.say("first")
    await browser.until("heard: first")
    text = await browser.press("stop")
    assert text.count("stopped") == 2
    assert 'id="stop"' not in text
    models.pause.set()
    await browser.heard("second")
    assert models.asked[-1][1][1] == {"role": "assistant", "content": "heard: first"}


async def test_start_anew_forgets(browser, models):
    """The models stay loaded, and know nothing of what was said, even if they were still answering."""
    await browser.loaded()
    models.pause.clear()
    await browser.say("first")
    assert "first" not in await browser.press("anew")
    models.pause.set()
    await browser.heard("second")
    assert len(models.asked[-1][1]) == 1


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"message": ""}, "message: "),
        ({"message": "x" * (MOST_MESSAGE + 1)}, "message: "),
        ({"message": "x", "system": "x" * (MOST_SYSTEM + 1)}, "system: "),
        *(
            ({"message": "x", "temperature": each}, "temperature: ")
            for each in ("", "hot", "-0.1", "2.1", "nan", "inf")
        ),
    ],
)
async def test_bounds_of_a_message(browser, models, form, why):
    """What is refused reaches no model, and the page names the field."""
    await browser.loaded()
    assert f"Not sent: {why}" in await browser.say(**form)
    assert models.asked == []


async def test_bounds_of_a_chat_and_of_a_form(browser, models):
    """The number of turns, and the bytes of a request."""
    await browser.loaded()
    for number in range(MOST_TURNS):
        await browser.heard(str(number))
    assert f"a chat has at most {MOST_TURNS} messages; start anew" in await browser.say("more")
    assert len(models.asked) == 2 * MOST_TURNS
    for body in (b"x" * 10**6, b"&".join([b"a=1"] * 100)):
        assert (await browser.http.post(f"{browser.here}/say", content=body)).status_code == 400


async def test_a_failing_answer_is_said(browser, models):
    """The other turns go on without it."""
    await browser.loaded()
    models.fails = True
    assert (await browser.heard("first")).count("no answer: the model has fallen over") == 2
    models.fails = False
    assert "heard: second (Trained)" in await browser.heard("second")


async def test_a_folder_that_does_not_load_says_why(browser, models):
    """With what to do; the other model is freed, and one may try again."""
    models.broken = ("Trained",)
    await browser.press("load")
    text = await browser.until("The models are not loaded")
    assert "“Trained” cannot be loaded" in text
    assert "is &lt;b&gt;no&lt;/b&gt; model" in text
    assert "copy its files" in text
    assert models.loaded == []
    assert "the models are not loaded" in await browser.say("too late")
    models.broken = ()
    await browser.loaded()


async def test_a_run_without_weights_says_what_keeps_some(browser, run_dir, models):
    """There is no button, and pressing it anyway does nothing."""
    make_run(run_dir.parent, "run-2")
    other = Browser(browser.http, run_dir.parent / "run-2")
    for text in (await other.page(), await other.press("load")):
        assert "has no trained weights" in text
        assert "save_every" in text
        assert "Load both models" not in text
    assert models.loaded == []


async def test_one_pair_at_a_time(browser, run_dir, models):
    """The page of another run says that these are freed; loading its models frees them, pressing there does not."""
    second = make_run(run_dir.parent, "run-2")
    keep(second, "step_4")
    other = Browser(browser.http, second)
    await browser.loaded()
    assert "The models of run-1 are freed first." in await other.page()
    await asyncio.gather(*(other.press(button) for button in ("free", "stop", "anew")))
    assert len(models.loaded) == 2
    await asyncio.gather(other.press("load"), other.press("load"))
    await other.until("Message to both")
    assert models.loaded == ["models/small", str(second / "checkpoints" / "step_4")]
    assert "Load both models" in await browser.page()


@pytest.mark.parametrize("ready", [True, False])
async def test_the_models_are_freed_by_a_button(browser, models, ready):
    """Also while they load."""
    if ready:
        await browser.loaded()
    else:
        models.loading.clear()
        await browser.press("load")
    assert "Load both models" in await browser.press("free")
    assert models.loaded == []


async def test_idle_models_are_freed(run_dir, models):
    """Not before an answer has ended; the conversation stays readable."""
    async with ChatDesk(models, idle_seconds=0.2) as desk:
        transport = httpx.ASGITransport(create_app(run_dir.parent, desk))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            browser = Browser(http, run_dir)
            await browser.loaded()
            models.pause.clear()
            await browser.say("first")
            await asyncio.sleep(0.5)
            assert len(models.loaded) == 2
            models.pause.set()
            text = await browser.until("they were not used for")
            assert "heard: first" in text
            assert "Load both models" in text
            assert models.loaded == []
            assert "the models are not loaded" in await browser.say("second")


async def test_an_answer_that_was_stopped_is_a_use(run_dir, models):
    """The time without use begins anew, as after one that has ended."""
    async with ChatDesk(models, idle_seconds=1.0) as desk:
        transport = httpx.ASGITransport(create_app(run_dir.parent, desk))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            browser = Browser(http, run_dir)
            await browser.loaded()
            models.pause.clear()
            await asyncio.sleep(0.7)
            await browser.say("first")
            await browser.press("stop")
            await asyncio.sleep(0.7)
            assert len(models.loaded) == 2


async def test_no_answer_takes_effect(browser, models):
    """Whatever a model or a user writes, a page has the same elements and attributes, and no control character."""
    await browser.loaded()
    plain = Parsed(await browser.heard("hello"))
    models.answer = "{}"
    for text in TEXTS:
        found = Parsed(page := await browser.heard(text, system=text))
        assert found.tags == plain.tags
        assert found.attributes == plain.attributes
        assert found.links == plain.links
        assert not set(page) & set("\x00\x1b\x07\u202e\u2066\u2028\ufeff\x9b\r")
        await browser.press("anew")


async def test_a_button_that_is_not_there_does_nothing(browser, models):
    """Nor does a run that is not there."""
    await browser.loaded()
    await browser.press("delete")
    assert len(models.loaded) == 2
    assert (await browser.http.post("/runs/none/chat/load")).status_code == 404
