from nat.wire.extras import install_hint, missing_of_extra


def test_the_missing_distributions_of_an_extra_are_named():
    """Whatever markers and extras the requirements have: no agent framework is in .venv."""
    assert missing_of_extra("crewai") == ["crewai"]
    assert missing_of_extra("llama-index") == ["llama-index-core", "llama-index-llms-openai-like"]


def test_several_extras_are_installed_at_once():
    """One command, for PyPI and for a clone."""
    assert install_hint("local", "adk") == (
        "pip install 'nat-finetuning-harness[local,adk]', or in a clone: pip install -e '.[local,adk]'"
    )
