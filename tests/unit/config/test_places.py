import pytest

from nat.config.places import places_of
from nat.registry.catalog import pushed_catalog


def test_each_key_has_the_places_that_take_it():
    """Keys of components stand where the file has such a component, under the name that it has there."""
    tree = {
        "llms": {"student": {"_type": "local"}, "broken": {"_type": "unknown"}, "worse": 3},
        "trainer_adapters": {"weights": {"_type": "local_trainer_adapter"}},
    }
    with pushed_catalog() as catalog:
        places = places_of(tree, catalog)
    assert places["lora"] == [("llms", "student")]
    assert places["learning_rate"] == [("trainer_adapters", "weights", "training")]
    assert places["max_truncated"] == [("finetuning", "guards")]
    assert places["evaluators"] == [("eval",)]
    assert "num_generations" not in places
    assert "_type" not in places


@pytest.mark.parametrize("section", [True, 5, -1.5, "text", ["text"]])
def test_a_section_that_is_no_mapping_has_no_components(section):
    """What is wrong with it is said elsewhere."""
    with pushed_catalog() as catalog:
        places = places_of({"trainer_adapters": section, "finetuning": {"trackers": section}}, catalog)
    assert places == places_of({}, catalog)
