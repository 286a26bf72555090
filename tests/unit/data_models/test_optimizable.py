import pytest
from pydantic import BaseModel, ValidationError

from nat.data_models.optimizable import OptimizableField, OptimizableMixin, SearchSpace
from nat.data_models.retry_mixin import RetryMixin


class Tuned(BaseModel):
    heat: float = OptimizableField(default=0.5, space=SearchSpace(low=0.0, high=1.0), description="How hot", ge=0)
    words: str = OptimizableField(default="be brief", space=SearchSpace(is_prompt=True))


class Client(RetryMixin, OptimizableMixin, BaseModel):
    url: str = "http://localhost"


def test_a_mark_changes_nothing_but_the_schema():
    """The field keeps default, bounds and description; its schema has the mark and the search space."""
    assert Tuned().heat == 0.5
    with pytest.raises(ValidationError):
        Tuned(heat=-1)
    schema = Tuned.model_json_schema()["properties"]
    assert schema["heat"]["description"] == "How hot"
    assert schema["heat"]["optimizable"] is True
    assert schema["heat"]["search_space"] == {"low": 0.0, "high": 1.0, "log": False, "is_prompt": False}
    assert schema["words"]["search_space"]["is_prompt"] is True


def test_a_space_is_a_list_or_a_range():
    """Giving both a list and a range is an error."""
    with pytest.raises(ValidationError, match="not both"):
        SearchSpace(values=[1], low=0)


def test_fields_of_mixins_are_not_dumped():
    """Plug-ins read these fields; requests to a server do not contain them."""
    config = Client(num_retries=2, optimizable_params=["url"])
    assert (config.do_auto_retry, config.num_retries, config.retry_on_status_codes[0]) == (True, 2, 429)
    assert config.model_dump() == {"url": "http://localhost"}
