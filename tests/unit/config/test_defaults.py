import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nat.config import parse_config
from nat.config.defaults import NAMES, missing_components, with_defaults
from nat.config.sources import parse_yaml
from nat.data_models.common import TypedBaseModel
from nat.errors import ConfigError

LOCAL = {"_type": "local", "model": "some_model"}
OPENAI = {"_type": "openai", "model_name": "gpt"}
ART = {"_type": "openpipe_art_trainer_adapter", "backend": {"ip": "localhost", "port": 1}}
LONG = """
llms: {student: {_type: local, model: some_model}}
trajectory_builders: {rollouts: {_type: local_traj_builder}}
trainer_adapters: {weights: {_type: local_trainer_adapter, llm: student}}
trainers: {trainer: {_type: local_trainer}}
finetuning: {enabled: true, trainer: trainer, trajectory_builder: rollouts, trainer_adapter: weights}
"""


def short(finetuning=None, **sections):
    return {"llms": {"student": LOCAL}, **sections, "finetuning": {"enabled": True, **(finetuning or {})}}


def types_of(config, part):
    return {name: component.type for name, component in getattr(config, f"{part}s").items()}


def test_all_follows_from_the_local_llm():
    """A YAML without the three components is the same configuration as one that spells them out."""
    assert parse_config(short()) == parse_config(parse_yaml(LONG))


@pytest.mark.parametrize("part", NAMES)
def test_what_is_written_wins_and_the_rest_follows(part):
    """Each part can be left out on its own: its name, its component, or both."""
    complete = parse_config(parse_yaml(LONG))
    unnamed = parse_yaml(LONG)
    del unnamed["finetuning"][part]
    assert parse_config(unnamed) == complete
    del unnamed[f"{part}s"]
    assert parse_config(unnamed) == complete


def test_the_only_component_of_a_section_needs_neither_name_nor_type():
    """Its settings are enough; the name under which they stand is free, and `llm` follows as well."""
    config = parse_config(short(trainer_adapters={"mine": {"training": {"algorithm": "grpo"}}}))
    adapter = config.trainer_adapters["mine"]
    assert (config.finetuning.trainer_adapter, adapter.llm, adapter.training.algorithm) == ("mine", "student", "grpo")
    assert list(config.trainer_adapters) == ["mine"]


@pytest.mark.parametrize("name", ["weights", "any_other"])
def test_overrides_reach_what_follows(name):
    """`-o` on a component that the YAML leaves out sets its key."""
    config = parse_config(short(), [(f"trainer_adapters.{name}.training.learning_rate", "1e-3")])
    assert config.trainer_adapters[name].training.learning_rate == 1e-3
    config = parse_config(short(), [("trajectory_builders.rollouts.num_generations", "4")])
    assert config.trajectory_builders["rollouts"].num_generations == 4


def test_an_override_of_a_component_that_is_not_used_is_an_error():
    """Where `finetuning` names the adapter, a mistyped name is not taken for a second one."""
    with pytest.raises(ConfigError, match=r"trainer_adapters\.wieghts\._type: this key is required"):
        parse_config(parse_yaml(LONG), [("trainer_adapters.wieghts.training.learning_rate", "1e-3")])


@pytest.mark.parametrize(
    ("finetuning", "adapter"),
    [({"target_model": "b"}, {}), ({"target_model": "named"}, {}), ({}, {"weights": {"llm": "b"}})],
)
def test_one_of_several_llms(finetuning, adapter):
    """`target_model` names the LLM to train, by its key or its model's name; so does the adapter's `llm`."""
    llms = {"a": LOCAL, "b": {**LOCAL, "model_name": "named"}}
    config = parse_config(short(finetuning, llms=llms, trainer_adapters=adapter))
    assert config.trainer_adapters["weights"].llm == "b"


def test_an_adapter_decides_builder_and_trainer():
    """Those of ART go with its adapter, whatever the LLM is."""
    config = parse_config(short(llms={"student": OPENAI}, trainer_adapters={"art": ART}))
    assert types_of(config, "trajectory_builder") == {"rollouts": "openpipe_art_traj_builder"}
    assert types_of(config, "trainer") == {"trainer": "openpipe_art_trainer"}


def test_phases_that_name_nothing_share_what_follows():
    """A component that a phase names is that phase's own, so it is not the only one of the others."""
    demos = {"rollouts": {"_type": "dataset_traj_builder", "file_path": "demos.jsonl"}}
    phases = [{"name": "imitate", "num_epochs": 3, "trajectory_builder": "rollouts", "trainer_adapter": "sft"}]
    adapters = {"sft": {"training": {"algorithm": "sft"}}}
    tree = short(trajectory_builders=demos, trainer_adapters=adapters)
    tree["finetuning"]["phases"] = [*phases, {"name": "play", "num_epochs": 5}]
    config = parse_config(tree)
    assert types_of(config, "trajectory_builder")["rollouts_2"] == "local_traj_builder"
    imitate, play = config.finetuning.each_phase
    assert (imitate.trajectory_builder, imitate.trainer_adapter) == ("rollouts", "sft")
    assert (play.trajectory_builder, play.trainer_adapter, play.trainer) == ("rollouts_2", "weights", "trainer")


@pytest.mark.parametrize(
    ("finetuning", "sections", "said"),
    [
        (
            {},
            {"llms": {}},
            "finetuning.trainer_adapter: not set, and it follows from the LLM of `_type: local`",
        ),
        ({}, {"llms": {"a": OPENAI}}, "the only one: a is of type openai. Name"),
        (
            {},
            {"llms": {"a": LOCAL, "b": LOCAL}},
            "the only one: a is of type local, b is of type local. Name",
        ),
        ({"target_model": "studnt"}, {"llms": {"student": LOCAL, "b": LOCAL}}, "Did you mean 'student'?"),
        (
            {"target_model": "a"},
            {"llms": {"a": OPENAI, "b": LOCAL}},
            "a is of type openai, b is of type local, and target_model is 'a'.",
        ),
        (
            {},
            {"trainers": {"a": {"_type": "local_trainer"}, "b": {"_type": "local_trainer"}}},
            "finetuning.trainer: not set, and trainers has a, b.",
        ),
    ],
)
def test_what_does_not_follow_is_one_message(finetuning, sections, said):
    """Only a run needs it, so the file loads; the message says what was seen and what to write."""
    config = parse_config(short(finetuning, **sections))
    (message,) = missing_components(config)
    assert said in message


def test_a_file_that_does_not_train_gets_nothing():
    """Without `enabled`, only components that are there are completed, so that one file serves other commands too."""
    config = parse_config(short({"enabled": False}, trainer_adapters={"mine": {"timeout": 3}}))
    assert config.trainer_adapters["mine"].llm == "student"
    assert config.trainers == {}
    assert parse_config({"llms": {"student": LOCAL}}).trainer_adapters == {}


KEYS = [
    *NAMES,
    *(f"{part}s" for part in NAMES),
    "llms",
    "finetuning",
    "phases",
    "enabled",
    "_type",
    "llm",
    "a",
    "weights",
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["a", "local", "local_trainer_adapter", "weights"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS) | st.integers(0, 1), inner),
    max_leaves=20,
)


@example({"trainer_adapters": {0: {"_type": "a"}}})
@given(st.dictionaries(st.sampled_from(KEYS), VALUES))
def test_any_tree_keeps_what_it_says(tree):
    """Whatever a file contains, nothing raises here, and every component with a type stays as it was."""
    completed = with_defaults(tree)
    for part in NAMES:
        section = tree.get(f"{part}s")
        for name, raw in section.items() if isinstance(section, dict) else ():
            if isinstance(raw, dict) and TypedBaseModel.discriminator(raw) is not None:
                now = {str(key): value for key, value in completed[f"{part}s"].items()}
                assert now[str(name)].items() >= raw.items()


SEVERAL = """
llms:
  planner: {_type: local, model: m, model_name: planner}
  worker: {_type: local, model: m, model_name: small}
  judge: {_type: openai, model_name: gpt}
trajectory_builders: {rollouts: {_type: local_traj_builder}}
trainer_adapters:
  planner: {_type: local_trainer_adapter, llm: planner}
  weights: {_type: local_trainer_adapter, llm: worker, training: {algorithm: rloo}}
  team:
    _type: team_trainer_adapter
    roles: {plan: {adapter: planner}, work: {adapter: weights, reward: brevity}}
trainers: {trainer: {_type: local_trainer}}
eval: {evaluators: {brevity: {_type: exact_match}}}
finetuning: {enabled: true, trainer: trainer, trajectory_builder: rollouts, trainer_adapter: team}
"""


def test_roles_are_short_for_a_component():
    """`finetuning.trainer_adapters` names an LLM or an adapter for each role; models of one folder get other names."""
    tree = parse_yaml(SEVERAL)
    del tree["trajectory_builders"], tree["trainers"], tree["llms"]["planner"]["model_name"]
    tree["trainer_adapters"] = {"weights": {"llm": "worker", "training": {"algorithm": "rloo"}}}
    roles = {"plan": "planner", "work": {"adapter": "weights", "reward": "brevity"}}
    tree["finetuning"] = {"enabled": True, "trainer_adapters": roles}
    assert parse_config(tree) == parse_config(parse_yaml(SEVERAL))


def test_a_role_without_an_adapter_is_an_error():
    """The message names what there is."""
    tree = short({"trainer_adapters": {"plan": "planer"}})
    with pytest.raises(ConfigError, match="planer"):
        parse_config(tree)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"trainer_adapters": {}}, r"expected an LLM for each role, such as \{planner: llm\}.*, got \{\}"),
        ({"trainer_adapters": "student"}, r"expected an LLM for each role, such as \{planner: llm\}.*, got student"),
        ({"trainer_adapters": {"a": "student"}, "trainer_adapter": "b"}, "no trainer_adapter beside it"),
    ],
)
def test_roles_that_are_none_are_an_error(given, message):
    """It says what roles are, not that the key is unknown."""
    with pytest.raises(ConfigError, match=message):
        parse_config(short(given))
