import pytest

from nat.art.client.config import ARTBackendConfig
from nat.art.client.routing import notice, sampling_warnings, served_as, trained_llms
from nat.data_models.llm import ModelEndpoint
from nat.errors import BackendUnreachable, ConfigError

BACKEND = ARTBackendConfig(ip="localhost", port=7623, name="my_run", base_model="Qwen/tiny")
HERE = "http://localhost:8000/v1"


def llm(
    key: str, model: str, base_url: str | None = "http://127.0.0.1:8000/v1", **defaults
) -> dict[str, ModelEndpoint]:
    return {key: ModelEndpoint(model, base_url, defaults)}


def found(*llms: dict[str, ModelEndpoint], target: str | None = None) -> list[str]:
    return [*trained_llms({k: v for one in llms for k, v in one.items()}, BACKEND, inference_url=HERE, target=target)]


@pytest.mark.parametrize("model", ["my_run", "my_run@3", "Qwen/tiny"])
def test_an_llm_may_name_the_run_or_the_base_model(model):
    """Both names mean the trained model for LLMs that call the training server."""
    assert found(llm("agent", model)) == ["agent"]


def test_another_name_on_the_same_server_is_left_alone():
    """Another model on the same server is not redirected, even if its name starts like the run's."""
    assert found(llm("agent", "Qwen/tiny"), llm("judge", "judge"), llm("other", "my_run_2")) == ["agent"]


def test_the_base_model_can_be_a_judge():
    """If one LLM names the run, the base model's name means the base model."""
    assert found(llm("agent", "my_run"), llm("judge", "Qwen/tiny")) == ["agent"]


@pytest.mark.parametrize("url", ["http://localhost:8001/v1", "http://10.0.0.5:8000/v1", None, "nonsense"])
def test_an_llm_elsewhere_is_an_error(url):
    """Its answers would come from an untrained model; the error names its server, its model and the remedy."""
    with pytest.raises(ConfigError) as error:
        found(llm("agent", "Qwen/tiny", url))
    assert f"llms.agent: requests Qwen/tiny from {url or 'OpenAI'}, which is not the trained model" in str(error.value)
    assert f"`base_url: {HERE}`" in str(error.value)
    assert "`model_name: my_run`" in str(error.value)


def test_no_llm_at_all_is_an_error():
    """Without an LLM there are no answers to train on."""
    with pytest.raises(ConfigError, match="llms: empty, so nothing uses the trained model"):
        found()


def test_the_target_model_must_be_one_that_is_trained():
    """Training on a judge's answers would train nothing; unknown names are checked by the builder."""
    both = llm("agent", "Qwen/tiny"), llm("judge", "judge")
    with pytest.raises(ConfigError, match=r"finetuning\.target_model: 'judge'"):
        found(*both, target="judge")
    for target in ("agent", "Qwen/tiny", "my_run", None):
        assert found(*both, target=target) == ["agent"]


def test_the_plain_name_is_used_where_it_is_served():
    """The plain name means the newest weights on ART's servers up to 0.5.7 and on ours."""
    assert served_as(["Qwen/tiny", "my_run", "my_run@4"], BACKEND, inference_url=HERE) == "my_run"


def test_the_newest_step_is_used_where_only_steps_are_served():
    """Servers from 0.5.10 on have no plain name; step 10 is newer than step 9."""
    names = ["Qwen/tiny", "my_run@9", "my_run@10", "my_run_2@11", "my_run@x"]
    assert served_as(names, BACKEND, inference_url=HERE) == "my_run@10"


def test_a_server_without_the_model_is_another_server():
    """The inference server does not serve the prepared model."""
    with pytest.raises(BackendUnreachable, match=r"does not serve 'my_run'; it serves Qwen/tiny"):
        served_as(["Qwen/tiny"], BACKEND, inference_url=HERE)


def test_a_redirected_llm_is_named():
    """One line reports that the requests name another model than the YAML."""
    text = notice("agent", ModelEndpoint("Qwen/tiny", HERE, {}), "my_run")
    assert text.startswith("llms.agent names Qwen/tiny")
    assert "use my_run" in text


def test_a_temperature_is_a_warning():
    """The guide's own file has temperature 0.4, so it runs; a warning explains what each server does with it."""
    (warned,) = sampling_warnings(llm("agent", "m", temperature=0.4))
    assert "llms.agent samples with temperature 0.4." in warned
    assert "ART's own server trains it as if it were sampled at 1" in warned
    assert sampling_warnings(llm("agent", "m", temperature=1.0, top_p=1.0) | llm("other", "m")) == []


def test_untrainable_sampling_is_an_error():
    """The error comes before the first rollout and names the LLM's key, the field and the remedy."""
    with pytest.raises(ConfigError) as error:
        sampling_warnings(llm("agent", "m", temperature=0.4, top_p=0.9))
    assert "llms.agent: answers sampled with top_p=0.9 cannot be trained on" in str(error.value)
    assert "sampling_in_training" in str(error.value)
