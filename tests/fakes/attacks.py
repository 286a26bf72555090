"""Rollouts whose texts try to act in a page, for tests about what a browser makes of them."""

from fakes.run_records import rollout_record
from fakes.runs_on_disk import EVIL, thread
from fakes.training_rows import row_of
from nat.runs.journal import Journal
from nat.runs.records import Phase

TITLE = "owned by a rollout"
"""The page's title, if an attack takes effect."""
RUNS = f"document.title='{TITLE}'"
TEXTS = (
    f"<script>{RUNS}</script>",
    f'<img src=x onerror="{RUNS}">',
    f"</pre></article><svg onload={RUNS}>",
    f'"><a href="javascript:{RUNS}" autofocus onfocus={RUNS}>click</a>',
    f"javascript:{RUNS}",
    f"<div hx-get='/' hx-trigger='load' hx-on:htmx:load=\"{RUNS}\">",
    "<style>body{display:none}</style><link rel=stylesheet href=//example.org/x.css>",
    "<meta http-equiv=refresh content='0;url=https://example.org/'>",
    "<base href=https://example.org/><form action=//example.org><button>Continue",
    "<iframe srcdoc='<script>parent.document.title=1</script>'></iframe>",
    "{{ 7 * 7 }} {% raw %} ${7 * 7} <%= 7 * 7 %>",
    "</title></style></script><!-- <![CDATA[",
    "https://example.org/ http://example.org",
    EVIL,
    "\x00\x1b[31mred\x1b]8;;https://example.org\x1b\\link",
    "\u202e\u2066\u2069\u200b\u2028\ufeff\U000e0041",
    "&lt;script&gt; &#x3c;b&#x3e;",
)
WORD = "W" * 2**20
"""One word of a megabyte."""
SURROGATE = "lone \ud800 surrogate"


def hostile_rollouts():
    """Every text in every place of a rollout, as a generation each of one example."""
    return [_hostile(text, number) for number, text in enumerate((*TEXTS, WORD, SURROGATE))]


def _hostile(text, generation):
    call = {"id": text, "function": {"name": text, "arguments": text}}
    messages = [
        {"role": "user", "content": [{"type": text}, {"type": "text", "text": text}]},
        {"role": text, "name": text, "content": text, "reasoning_content": text, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": text, "content": text},
    ]
    return rollout_record(
        f"<b>{TEXTS[0]}",
        generation,
        reward=generation / 20,
        conversations=[thread(messages, 1)],
        output=text,
        error=text,
        reasoning={text: text},
        lost_calls={text: 1},
        rows=[row_of([1, 2, 3], [None, -0.5, -2.0])],
        num_calls=1,
    )


def add_attacks(run_dir, epoch=7):
    """Let a run have the hostile rollouts in an epoch of their own."""
    with Journal.open(run_dir) as journal:
        journal.record_rollouts(Phase.TRAIN, epoch, hostile_rollouts())
