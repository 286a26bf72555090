"""The pages of `nat ui`: what they show, where they lead, and that a rollout's text is data."""

import re
from html import unescape
from html.parser import HTMLParser

import httpx
import pytest

from fakes.attacks import TEXTS, TITLE, add_attacks
from fakes.run_records import NOON, epoch_record
from fakes.runs_on_disk import CONFIG, EVIL, conversation, make_run
from nat.dashboard.app import create_app
from nat.dashboard.runs import slug_of
from nat.runs.journal import Journal
from nat.runs.liveness import LOCK_NAME, marked_alive
from nat.runs.records import Phase, RunState


def client(root):
    return httpx.AsyncClient(transport=httpx.ASGITransport(create_app(root)), base_url="http://127.0.0.1")


async def page(root, path, status=200):
    async with client(root) as browser:
        response = await browser.get(path)
    assert response.status_code == status, response.text
    return response.text


class Parsed(HTMLParser):
    """The elements of a page, and the attributes that could act."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.attributes = set(), [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value for name, value in attrs if name in {"href", "src", "action", "hx-get"}]


@pytest.fixture
def run_dir(tmp_path):
    return make_run(tmp_path, "run-1")


@pytest.fixture
def here(run_dir):
    return f"/runs/{slug_of(run_dir)}"


async def test_all_links_lead_somewhere(run_dir, here):
    """Every page that links lead to from the list of runs exists."""
    make_run(run_dir.parent, "run-2", solved=(1, 2))
    seen, queue = set(), ["/", f"/compare?a={here[6:]}&b={slug_of(run_dir.parent / 'run-2')}"]
    async with client(run_dir.parent) as browser:
        while queue:
            path = queue.pop()
            if path in seen:
                continue
            seen.add(path)
            response = await browser.get(path)
            assert response.status_code == 200, path
            if "html" in response.headers["content-type"]:
                links = (link.partition("#")[0] for link in Parsed(response.text).links)
                queue += [link for link in links if link.startswith("/") and link != "/compare"]
    assert {re.sub(r"~\w+", "", path) for path in seen} >= {
        "/runs/run-1",
        "/runs/run-1/held-out",
        "/runs/run-1/train/3",
        "/runs/run-1/train/3/rollout?id=d&generation=0",
        "/runs/run-1/validation/0/example?id=held-0",
    }


async def test_a_run_says_in_words_what_its_charts_show(run_dir, here):
    """Each chart has a label with its numbers and a table of them; conditions have their healthy ranges."""
    text = await page(run_dir.parent, here)
    assert "Training reward 0.300 → 0.500; held-out score 0.200 → 0.800." in text
    assert "Improved: 0.200 → 0.800 on the same 10 held-out examples" in text
    assert "train/approx_kl 0.01 → 0.01." in text
    assert text.count('role="img"') == text.count("<figure") == text.count("<details")


async def test_findings_are_read_after_the_page(run_dir, here):
    """The page has the place for them, and the fragment the words of the diagnosis."""
    assert f'hx-get="{here}/findings" hx-trigger="load"' in await page(run_dir.parent, here)
    assert "No cause found" in await page(run_dir.parent, f"{here}/findings")
    with Journal.open(run_dir) as journal:
        for epoch in range(4):
            journal.record(epoch_record(epoch, 0.0, max_reward=0.0, groups_without_difference=24))
    text = await page(run_dir.parent, f"{here}/findings")
    assert "The score is always the same" in text
    assert "What to do." in text


async def test_an_epoch_shows_its_groups_and_its_histogram(run_dir, here):
    """Rewards by generation, what was left out and why, and the bins with their rollouts."""
    text = await page(run_dir.parent, f"{here}/train/1")
    assert 'aria-label="generation 1: reward 0.250"' in text
    assert 'aria-label="generation 0: reward 0.500, left out: its group has no difference in reward"' in text
    assert "4 rollouts with a reward; most, 1, have 0.25." in text
    assert "1 rollouts without a reward" in text
    assert "left out: the workflow raised an error" in text


async def test_a_rollout_is_a_conversation(run_dir, here):
    """Turns, tool calls, what was trained, and tokens by their ids where no tokenizer is found."""
    text = await page(run_dir.parent, f"{here}/train/1/rollout?id=d&generation=0")
    assert "trained on 4 sampled tokens in 1 row" in text
    assert "calls weather c1" in text
    assert '<span class="badge">trained, 3 tokens</span>' in text
    assert "Token ids stand for their text: no tokenizer.json" in text
    assert 'class="t6" title="probability 0.368, log -1.000"' in text


async def test_held_out_examples_before_and_after(run_dir, here):
    """By default the first and the last validation: what was asked and expected, both answers, and what changed."""
    with Journal.open(run_dir) as journal:
        after = conversation("held-3", 1.0, "What is held-3?", answer="Rome", expected="Rome")
        journal.record_rollouts(Phase.VALIDATION, 3, [after])
    text = await page(run_dir.parent, f"{here}/held-out")
    assert "6 examples rose and 0 fell, of 10" in text
    row = text[text.index(">held-3<") : text.index("</tr>", text.index(">held-3<"))]
    assert re.findall(r'<td class="words">(.*?)</td>', row) == ["What is held-3?", "4", "4", "Rome"]
    assert "1 examples rose and 0 fell, of 10" in await page(run_dir.parent, f"{here}/held-out?before=1&after=2")
    with Journal.open(run_dir) as journal:
        last = journal.validations()[-1]
        journal.record(last.model_copy(update={"scores": {**last.scores, "held-0": None, "held-1": None}}))
    text = await page(run_dir.parent, f"{here}/held-out")
    assert "0.200 → 0.600: 6 examples rose and 0 fell, of 10. 2 fail on one side only" in text


async def test_a_run_that_trains_tells_its_news(tmp_path):
    """A browser that has seen the state gets nothing; after an epoch or an end it reads the results again."""
    run_dir = make_run(tmp_path, "run-1", state=RunState.RUNNING)
    here = f"/runs/{slug_of(run_dir)}"
    async with client(tmp_path) as browser:
        with marked_alive(run_dir):
            first = (await browser.get(here)).text
        news = unescape(re.search(r'hx-get="([^"]*news[^"]*)" hx-trigger="every 2s"', first)[1])
        with marked_alive(run_dir):
            assert (await browser.get(news)).status_code == 204
        with Journal.open(run_dir) as journal:
            journal.set_state(RunState.COMPLETED, at=NOON)
        then = await browser.get(news)
        assert then.headers["HX-Trigger-After-Swap"] == "news"
        assert "completed" in then.text
        assert "every 2s" not in then.text


async def test_a_run_that_was_killed_says_so_and_shows_what_it_has(tmp_path):
    """No process holds its lock; its page does not wait for news."""
    run_dir = make_run(tmp_path, "run-1", state=RunState.RUNNING)
    (run_dir / LOCK_NAME).touch()
    text = await page(tmp_path, f"/runs/{slug_of(run_dir)}")
    assert "Its process has ended without recording why" in text
    assert "Training reward 0.300 → 0.500" in text
    assert "every 2s" not in text


@pytest.mark.parametrize(
    "path",
    [
        "/runs/none",
        "/runs/..%2F..",
        "{}/train/99",
        "{}/train/0",
        "{}/other/1",
        f"{{}}/train/{'9' * 5000}",
        "{}/train/-1",
        "{}/train/1/rollout?id=unknown",
        "/compare?a=x&b=y",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/nothing",
    ],
)
async def test_what_is_not_there_is_said_on_a_page(run_dir, here, path):
    """The status is 404, and nothing outside the runs can be read."""
    assert "<h1>Not found</h1>" in await page(run_dir.parent, path.format(here), 404)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_nothing_can_be_changed(run_dir, here, method):
    """Pages answer GET and HEAD only."""
    async with client(run_dir.parent) as browser:
        for path in ("/", here, f"{here}/train/1", "/static/dashboard.js"):
            assert (await browser.request(method, path)).status_code == 405


async def test_an_unreadable_run_does_not_hide_the_others(run_dir):
    """It is listed with its reason."""
    broken = run_dir.parent / "broken"
    broken.mkdir()
    (broken / "journal.sqlite").write_bytes(b"no database")
    text = await page(run_dir.parent, "/")
    assert "run-1" in text
    assert "cannot be read" in text


async def test_no_text_of_a_rollout_takes_effect(run_dir, here):
    """Whatever a rollout has in its texts, a page has the same elements and attributes, and leads to itself only."""
    add_attacks(run_dir)
    plain = [Parsed(await page(run_dir.parent, f"{here}/train/1{rest}")) for rest in _PAGES_OF_D]
    name = "%3Cb%3E" + httpx.QueryParams({"x": TEXTS[0]}).__str__()[2:]
    async with client(run_dir.parent) as browser:
        for generation in range(len(TEXTS) + 2):
            pages = (f"/example?id={name}", "", f"/rollout?id={name}&generation={generation}")
            for path in pages:
                response = await browser.get(f"{here}/train/8{path}")
                assert response.status_code == 200, response.text
                found = Parsed(response.text)
                assert found.tags <= set.union(*(each.tags for each in plain)) | {"code"}  # of the note on a cut text
                assert found.attributes <= set.union(*(each.attributes for each in plain)) | {"tabindex"}
                assert all(re.match("/[^/]|/$|#", link) for link in found.links)
                assert not set(response.text) & set("\x00\x1b\x07\u202e\u2066\u2028\ufeff\U000e0041\x9b\r")
                assert len(response.content) < 2_000_000
    assert TITLE in unescape(response.text)  # as text


async def test_no_name_of_a_run_takes_effect(tmp_path):
    """Ids, phases, models, messages and settings come from a journal that may be of others."""
    evil = f"<img src=x onerror=1>{EVIL}"
    student = {"_type": "local", "model": evil, evil: evil}
    fields = {"config": CONFIG | {"llms": {"student": student}}, "message": evil, "names": [evil, "b"]}
    runs = [
        make_run(tmp_path, "run-1", solved=(0, 1, 2), phases=[evil, "file"], **fields),
        make_run(tmp_path, "<b>run", solved=(0, 1)),
    ]
    first, second = (slug_of(folder) for folder in runs)
    compare = f"/compare?a={first}&b={second}"
    for path in ("/", f"/runs/{first}", f"/runs/{first}/held-out", f"/runs/{first}/findings", compare):
        text = await page(tmp_path, path)
        assert not Parsed(text).tags & {"img", "b"}
        assert not set(text) & set("\x1b\x07\u202e\x9b\r")


_PAGES_OF_D = ("/rollout?id=d&generation=0", "/rollout?id=c", "/rollout?id=a", "/example?id=a", "")
