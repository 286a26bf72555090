import pytest

from fakes.call_templates import DONE, EACH, TEMPLATES, Template, template
from nat.backend.words.choice import TOKENIZER, YAML, choose
from nat.backend.words.families import HERMES
from nat.backend.words.formats import Format, FormatRefused
from nat.backend.words.found import ORIGIN, NotFound, found
from nat.backend.words.proof import ANSWERS, misread, prove
from nat.backend.words.samples import answer

SILENT = template("")
"""Writes no calls."""
ODD = template(
    "{% for c in m.tool_calls or [] %}CALL {{ c.function.name }} WITH {{ c.function.arguments.zqa }}{% endfor %}"
)
HERMES_TEMPLATE = dict(HERMES.template)


@pytest.mark.parametrize("name", TEMPLATES)
def test_each_format_is_found_and_proved(name):
    """What a template writes, of each kind, is read back: found in the template, whole and in pieces."""
    source = TEMPLATES[name]
    proof = prove(found(Template(source), source), Template(source))
    assert proof.failed == {}
    assert proof.reads_calls


@pytest.mark.parametrize("name", TEMPLATES)
def test_another_familys_format_does_not_pass(name):
    """A format that cannot read a template's calls is told apart by the proof."""
    other = Format(
        {"start_anchor": "x", "fields": {"content": {}, "tool_calls": {"open": "<x>", "close": "</x>"}}}, "x"
    )
    assert not prove(other, Template(TEMPLATES[name])).reads_calls


def test_white_space_in_empty_thinking_is_no_failure():
    """Qwen3 writes `<think>`, two line feeds and `</think>` where an answer has no thinking; pieces may show them."""
    thinking = "<think>\n{{ m.reasoning_content or '' }}\n</think>\n\n"
    source = template(f"{EACH}\n<tool_call>\n{{{{ f | tojson }}}}\n</tool_call>{DONE}", before=thinking)
    words = choose(Template(source), source)
    assert (words.format.origin, words.format.reasoning) == (ORIGIN, "reasoning_content")
    assert words.proof.failed == {}


def test_the_proof_says_what_was_misread():
    """The report shows what was written and what was read."""
    written = answer(Template(TEMPLATES["llama"]), ANSWERS["one call"])
    problem = misread(HERMES, written, ANSWERS["one call"])
    assert problem is not None
    assert "zqfirst" in problem


def test_a_format_that_runs_half_a_call_does_not_pass():
    """A mark that closes a call too early is a failure, even if whole calls are read."""
    source = TEMPLATES["coder"]
    words = found(Template(source), source)
    early = {
        **words.template["fields"]["tool_calls"],
        "close": "</parameter>\n",
        "content_args": {"tag_pattern": "(?P<key>x)"},
    }
    fields = {**words.template["fields"], "tool_calls": early}
    assert not prove(Format({**words.template, "fields": fields}, "x"), Template(source)).reads_calls


def test_the_declared_format_comes_first():
    """The YAML wins over the tokenizer's own format, and that over the template."""
    source = TEMPLATES["hermes"]
    render = Template(source)
    own = {"marks": ["<|im_end|>"], "own": HERMES_TEMPLATE}
    assert choose(render, source, declared=HERMES_TEMPLATE, **own).format.origin == YAML
    assert choose(render, source, **own).format.origin == TOKENIZER
    assert choose(render, source).format.origin == ORIGIN


@pytest.mark.parametrize(
    "declared", [{}, {"fields": {"content": {}}}, {"start_anchor": "x", "fields": {"x": {"open": 1}}}]
)
def test_a_declared_format_that_is_none_is_refused(declared):
    """A mistake in the YAML is an error, and nothing else is tried."""
    with pytest.raises(FormatRefused, match="the YAML"):
        choose(Template(TEMPLATES["hermes"]), TEMPLATES["hermes"], declared=declared)


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


def test_a_format_of_no_known_form_is_named():
    """A template whose calls cannot be read is refused in words."""
    with pytest.raises(NotFound, match="no form"):
        found(Template(ODD), ODD)
    assert "no form" in choose(Template(ODD), ODD).refusal


def test_content_may_have_marks_of_its_own():
    """Formats of others may put content between marks; text outside of them is not lost."""
    fields = {**HERMES_TEMPLATE["fields"], "content": {"open": "<say>", "close": "</say>"}}
    words = Format({"start_anchor": "x", "fields": fields}, TOKENIZER)
    assert words.fields["content"].close_literals == ["<say>", "</say>"]
