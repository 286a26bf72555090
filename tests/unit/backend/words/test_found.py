import pytest

from fakes.call_templates import TEMPLATES, Template, template
from nat.backend.words.choice import HERMES, TOKENIZER, YAML, choose
from nat.backend.words.formats import FormatRefused
from nat.backend.words.found import ORIGIN, found
from nat.backend.words.proof import prove

SILENT = template("")
"""Writes no calls."""
HERMES_TEMPLATE = dict(HERMES.template)


@pytest.mark.parametrize("name", TEMPLATES)
def test_each_format_is_found_and_proved(name):
    """What a template writes, of each kind, is read back: found in the template, whole and in pieces."""
    source = TEMPLATES[name]
    proof = prove(found(Template(source), source), Template(source))
    assert proof.failed == {}
    assert proof.reads_calls


def test_the_declared_format_comes_first():
    """The YAML wins over the tokenizer's own format, and that over the template."""
    source = TEMPLATES["hermes"]
    render = Template(source)
    own = {"marks": ["<|im_end|>"], "own": HERMES_TEMPLATE}
    assert choose(render, source, declared=HERMES_TEMPLATE, **own).format.origin == YAML
    assert choose(render, source, **own).format.origin == TOKENIZER
    assert choose(render, source).format.origin == ORIGIN


def test_a_declared_format_must_read_the_template():
    """The YAML's format is refused if it misreads a plain call of the model's own template."""
    with pytest.raises(FormatRefused, match="misreads"):
        choose(Template(TEMPLATES["llama"]), TEMPLATES["llama"], declared=HERMES_TEMPLATE)


def test_a_tokenizers_format_that_misreads_is_passed_over():
    """A wrong format in the model's files is named, and what is found is used."""
    words = choose(Template(TEMPLATES["llama"]), TEMPLATES["llama"], own=HERMES_TEMPLATE)
    assert words.format.origin == ORIGIN
    assert words.tried[0].startswith(TOKENIZER)
    assert words.refusal is None


@pytest.mark.parametrize(
    "pattern", [{"open_pattern": "(a+)+$"}, {"open": "<call>", "content_args": {"tag_pattern": "(a+)+$"}}]
)
def test_patterns_of_a_models_folder_are_not_run(pattern):
    """A regular expression could take any time with what the model says, so its writer could stop the server."""
    source = TEMPLATES["hermes"]
    own = {**HERMES_TEMPLATE, "fields": {**HERMES_TEMPLATE["fields"], "tool_calls": {"close": "</call>", **pattern}}}
    words = choose(Template(source), source, own=own)
    assert words.format.origin == ORIGIN
    assert words.tried[0].startswith(f"{TOKENIZER}: its patterns")


def test_a_template_that_writes_no_calls_is_named():
    """Calls are then read as most models write them, with a word of what was tried and what to set."""
    words = choose(Template(SILENT), SILENT)
    assert words.format.origin == HERMES.origin
    assert "does not write calls" in words.refusal
    assert "response_template" in words.refusal


def test_a_registered_family_is_known_by_its_special_token():
    """The registry serves templates that write no calls."""
    words = choose(Template(SILENT), SILENT, marks=["<|tool_call_start|>"])
    assert (words.format.origin, words.refusal) == ("LFM2", None)
