"""The certificate of `nat fits` as people and programs read it."""

import json

import yaml

from nat.reports.certificate_page import certificate_json, certificate_page
from nat.sizing.certificate import Certificate, Layers, Reading, Rehearsal, Way
from nat.sizing.forecast import Speed
from nat.sizing.memory import PredictedMemory
from nat.wire.openai_responses import BrokenPrefix

MEMORY = PredictedMemory(title="LoRA, rank 16", parts={"weights": 10**9}, total=10**9, host=10**8, longest_row=4100)
BLOCK = {"_type": "local", "model": "owner/name", "max_seq_length": 4096, "lora": {"rank": 16}}
FITS = Certificate(
    model="owner/name",
    device="a GPU of 24.0 GB",
    workload="16 chats at a time",
    room=22 * 10**9,
    revision="c0ffee",
    family="qwen3",
    architecture="Qwen3ForCausalLM",
    num_parameters=8_190_000_000,
    context=40960,
    layers=Layers(),
    words=Reading(
        format="found in the chat template", writes_calls=True, reads_thinking=True, misread={"null": "as 0"}
    ),
    conversations=(
        Rehearsal(title="a loop", answers=3, rows=1),
        Rehearsal(title="two questions", answers=4, rows=2, drift=(BrokenPrefix.TEMPLATE_REWRITES,)),
    ),
    ways=(Way(memory=MEMORY, settings={"lora": {"rank": 16}}),),
    block=BLOCK,
)


def test_a_certificate_ends_with_a_block_to_paste():
    """Everything that was found has a line, and the YAML reads back."""
    page = certificate_page(FITS)
    for text in (
        "qwen3 (Qwen3ForCausalLM), 8.19 billion weights, commit c0ffee; context 40,960 tokens",
        "✓ a small model of this class samples and trains",
        "format: found in the chat template; tool calls are read; thinking is told apart",
        "misread: null: as 0",
        "a loop: 3 answers, 1 row per rollout; each turn continues the tokens of the last",
        "two questions: 4 answers, 2 rows per rollout; drift: template_rewrites",
        "1.0 GB, 100 MB of the host; fits: max_seq_length up to 4,100",
        "✓ owner/name: it fits by prediction; what has a ✓ is proven",
    ):
        assert text in page
    assert yaml.safe_load(page.partition("For the YAML:")[2]) == {"llms": {"student": BLOCK}}


def test_the_speed_is_shown_if_it_was_measured():
    """Else the page tells how to measure it, or why that failed."""
    speed = Speed(
        chats=16,
        prompt_tokens_per_second=1234.5,
        step_seconds=0.25,
        trained_tokens=512,
        trained_tokens_per_second=543.2,
        optimizer_seconds=1,
    )
    page = certificate_page(FITS.model_copy(update={"speed": speed}))
    assert (
        "some of its layers, with 16 chats: 1,234 prompt and 64 sampled tokens, 543 trained tokens per second" in page
    )
    assert "not measured: `--time` does it here" in certificate_page(FITS)
    assert "not measured: no memory" in certificate_page(FITS.model_copy(update={"untimed": "no memory"}))


def test_a_refusal_has_its_reasons_and_no_block():
    """Each reason stands once in the verdict."""
    refused = FITS.model_copy(
        update={
            "layers": Layers(refusal="layers of kind conv; use another"),
            "words": Reading(refusal="no chat template"),
            "conversations": (Rehearsal(title="a loop", answers=3, problem="the server read nothing"),),
            "ways": (Way(memory=MEMORY, settings={}, problem="LoRA takes too much"),),
            "block": None,
        }
    )
    page = certificate_page(refused)
    reasons = [
        "layers of kind conv; use another",
        "no chat template",
        "a loop: the server read nothing",
        "it is not known to fit: LoRA takes too much",
    ]
    assert f"✗ owner/name: {'; '.join(reasons)}" in page
    assert "does not fit" in page
    assert "For the YAML" not in page
    assert refused.problems == reasons


def test_what_was_judged_by_the_configuration_alone_says_so():
    """It is no proof."""
    page = certificate_page(FITS.model_copy(update={"layers": Layers(untried="no such sizes")}))
    assert "not tried; loading the model will tell: no such sizes" in page


def test_a_template_without_calls_is_named():
    """It suits agents without tools."""
    page = certificate_page(FITS.model_copy(update={"words": Reading(format="Hermes", warning="no calls are written")}))
    assert "✓ format: Hermes; for agents without tools only: no calls are written" in page


def test_json_has_the_record_and_the_verdict():
    """A program reads the same."""
    shown = json.loads(certificate_json(FITS))
    assert (shown["fits"], shown["problems"], shown["block"]) == (True, [], BLOCK)
    assert Certificate.model_validate({key: shown[key] for key in Certificate.model_fields}) == FITS


def test_a_conversation_that_was_not_played_is_no_problem():
    """It is neither proven nor refused."""
    found = FITS.model_copy(update={"conversations": (Rehearsal(title="a question", answers=1, untried="no words"),)})
    assert "Conversation  not played: no words" in certificate_page(found)
    assert found.problems == []
