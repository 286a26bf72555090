from pydantic import BaseModel

from nat.data_models.optimizable import OptimizableField, OptimizableMixin, SearchSpace
from nat.data_models.retry_mixin import RetryMixin


class Client(RetryMixin, OptimizableMixin, BaseModel):
    url: str = OptimizableField(default="http://localhost", space=SearchSpace(values=["a"]), max_length=40)


def test_configs_of_the_toolkit_load_and_their_marks_are_not_dumped():
    """Plug-ins read these fields; requests to a server do not contain them."""
    config = Client(num_retries=2, optimizable_params=["url"])
    assert (config.do_auto_retry, config.num_retries, config.retry_on_status_codes[0]) == (True, 2, 429)
    assert config.model_dump() == {"url": "http://localhost"}
