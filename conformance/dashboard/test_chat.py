"""The chat of `nat ui` in Chromium: with the keyboard alone, axe, both colour schemes, a narrow window, and attacks."""

from pathlib import Path

import pytest
from conformance.dashboard.visits import chromium, visiting

from fakes.attacks import TEXTS, TITLE
from fakes.chat_models import ChatModels
from fakes.runs_on_disk import make_run
from nat.dashboard.runs import slug_of

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium on PATH; Debian's package is `chromium`")

OPENED = [["wait", "#message"]]
LOADED = [["click", "#load"], *OPENED]


@pytest.fixture
def run_dir(tmp_path):
    run_dir = make_run(tmp_path, "run-1")
    (run_dir / "model").mkdir()
    (run_dir / "model" / "config.json").write_text("{}")
    return run_dir


def chat(run_dir: Path) -> str:
    return f"/runs/{slug_of(run_dir)}/chat"


def said(message: str, answer: str) -> list[list[str]]:
    """Send a message and wait for both answers."""
    return [["fill", "#message", message], ["press", "Control+Enter"], ["wait", f".answers >> text={answer}"]]


async def test_a_conversation_with_the_keyboard_alone(run_dir):
    """Enter loads the models, Ctrl+Enter sends; the focus is in the message again, and the state is announced."""
    models = ChatModels()
    models.loading.clear()
    load = [["focus", "#load"], ["press", "Enter"], ["wait", "text=Loading both models"]]
    first = {"path": chat(run_dir), "acts": load}
    talk = [*OPENED, *said("one", "heard: one (Trained)"), *said("two", "heard: two (Trained)")]
    ended = ["wait", "#chat-state:text-is('Both models have answered.')"]
    system = [["focus", "summary"], ["press", "Enter"], ["fill", "textarea[name=system]", "Be \u200bbrief."]]
    second = {"path": chat(run_dir), "acts": [*OPENED, *system, *talk, ended, ["press", "x"]]}
    async with visiting(run_dir.parent, models) as visits:
        (loading,) = await visits(first)
        models.loading.set()
        (page,) = await visits(second)
    assert "Loading both models, now “Untrained” …" in loading["text"]
    assert page["violations"] == []
    assert page["said"] == []
    asked = [messages for title, messages, _ in models.asked if title == "Trained"][-1]
    assert [each["content"] for each in asked] == ["Be \u200bbrief.", "one", "heard: one (Trained)", "two"]


async def test_stop_and_start_anew(run_dir):
    """An answer that goes on appears and can be stopped; then the chat begins again."""
    models = ChatModels()
    models.pause.clear()
    stopped = [*said("one", "heard: one"), ["click", "#stop"], ["wait", "text=stopped"]]
    anew = [["click", "text=Start anew"], ["wait", "#chat-state:text-is('Both models are loaded.')"]]
    async with visiting(run_dir.parent, models) as visits:
        one, two = await visits(
            {"path": chat(run_dir), "acts": [*LOADED, *stopped]}, {"path": chat(run_dir), "acts": [*OPENED, *anew]}
        )
    assert one["text"].count("stopped") == 2
    assert one["said"] == two["said"] == []
    assert "heard" not in two["text"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
async def test_each_state_is_accessible_and_fits(run_dir, width, scheme):
    """Axe has no complaint, nothing is wider than the window, and the policy has refused nothing."""
    models = ChatModels("W" * 300 + "\nline" * 300 + " {}")
    look = {"path": chat(run_dir), "width": width, "scheme": scheme}
    none = make_run(run_dir.parent, "run-2")
    states = [
        look | {"path": chat(none)},
        look,
        look | {"acts": [*LOADED, ["click", "summary"]]},
        look | {"acts": said("one", "one (Trained)")},
        look | {"acts": [["fill", "#message", "  "], ["click", "text=Send"]]},
    ]
    async with visiting(run_dir.parent, models) as visits:
        found = await visits(*states)
        models.broken = ("Trained",)
        found += await visits(look | {"acts": [["click", "text=Free the models"], ["wait", "#load"]]})
        found += await visits(look | {"acts": [["click", "#load"], ["wait", "text=What to do"]]})
    for number, page in enumerate(found):
        assert page["violations"] == [], number
        assert page["overflow"] <= 0, number
        assert (page["said"], page["outside"]) == ([], []), number


async def test_an_answer_full_of_attacks_is_text(run_dir):
    """No script, style, link, refresh or control character of an answer or of a message takes effect."""
    models = ChatModels("{}")
    acts = list(LOADED)
    for number, text in enumerate(TEXTS):
        message = text.replace("\x00", "")  # no keyboard writes it
        answered = ["wait", f":nth-match(.answers, {number + 1}) >> text=(Trained)"]
        acts += [["fill", "#message", message], ["click", "text=Send"], answered]
    async with visiting(run_dir.parent, models) as visits:
        (page,) = await visits({"path": chat(run_dir), "width": 360, "acts": acts})
    assert len(models.asked) == 2 * len(TEXTS)
    assert page["title"] != TITLE
    assert (page["said"], page["outside"], page["violations"]) == ([], [], [])
    assert page["overflow"] <= 0
    assert not set(page["text"]) & set("\x1b\x00\u202e")
