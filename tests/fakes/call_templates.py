"""Chat templates of our own writing, in the formats of public model families."""

# ruff: noqa: RUF001 - DeepSeek's marks have a wide bar

from collections.abc import Sequence
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

START, END = "<|im_start|>assistant\n", "<|im_end|>\n"
THINK = "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
EACH, DONE = "{% for c in m.tool_calls or [] %}{% set f = c.function %}", "{% endfor %}"


def template(
    calls: str, *, start: str = START, end: str = END, before: str = "", after: str = "{{ m.content }}"
) -> str:
    """A template whose answers are `start`, `before`, the content, the calls and `end`."""
    return (
        "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
        "{% for m in messages %}{% if m.role == 'assistant' %}"
        f"{start}{before}{after}{calls}{end}"
        "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
        f"{{% if add_generation_prompt %}}{start}{{% endif %}}"
    )


def tags(name: str, argument: str, close: str, *, before: str = "\n", around: tuple[str, str] = ("", "")) -> str:
    """Calls whose arguments stand between tags."""
    items = "{% for k, v in f.arguments.items() %}{% set text = v if v is string else v | tojson %}"
    inside = f"{EACH}{before}{name}{items}{argument}{DONE}{close}{DONE}"
    return f"{{% if m.tool_calls %}}{around[0]}{inside}{around[1]}{{% endif %}}"


SECTION = "<|calls_begin|>", "<|calls_end|>"
TEMPLATES = {
    "hermes": template(
        f"{EACH}\n<tool_call>\n{{{{ f | tojson }}}}\n</tool_call>{DONE}",
        before=THINK,
    ),
    "llama": template(
        "{% if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('one call only') }}{% endif %}"
        "{% set f = m.tool_calls[0].function %}"
        '{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}{% endif %}',
        start="<|start_header_id|>assistant<|end_header_id|>\n\n",
        end="<|eot_id|>",
        after="{{ m.content if not m.tool_calls }}",
    ),
    "mistral": template(
        f"{EACH}[TOOL_CALLS]{{{{ f.name }}}}[CALL_ID]{{{{ c.id }}}}[ARGS]{{{{ f.arguments | tojson }}}}{DONE}",
        start="",
        end="</s>",
    ),
    "mistral list": template(
        f"{{% if m.tool_calls %}}[TOOL_CALLS] [{EACH}{{% if not loop.first %}}, {{% endif %}}"
        '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}, "id": "{{ c.id }}"}'
        f"{DONE}]{{% endif %}}",
        start="",
        end="</s>",
    ),
    "coder": template(
        tags(
            "<tool_call>\n<function={{ f.name }}>\n",
            "<parameter={{ k }}>\n{{ v | tojson if v is sequence and v is not string else v }}\n</parameter>\n",
            "</function>\n</tool_call>",
        ),
        before=THINK,
    ),
    "deepseek": template(
        f"{{% if m.tool_calls %}}<｜tool▁calls▁begin｜>{EACH}<｜tool▁call▁begin｜>function<｜tool▁sep｜>"
        f"{{{{ f.name }}}}\n```json\n{{{{ f.arguments | tojson }}}}\n```<｜tool▁call▁end｜>\n"
        f"{DONE}<｜tool▁calls▁end｜>{{% endif %}}",
        start="<｜Assistant｜>",
        end="<｜end▁of▁sentence｜>",
    ),
    "glm": template(
        tags(
            "<tool_call>{{ f.name }}\n",
            "<arg_key>{{ k }}</arg_key>\n<arg_value>{{ text }}</arg_value>\n",
            "</tool_call>",
        ),
        start="<|assistant|>",
        before="\n<think>{{ m.reasoning_content }}</think>\n",
        end="",
    ),
    "minimax": template(
        tags(
            '<invoke name="{{ f.name }}">\n',
            '<parameter name="{{ k }}">{{ text }}</parameter>\n',
            "</invoke>",
            around=("\n<calls>", "\n</calls>"),
        ),
        start="]~b]ai\n",
        end="[e~[\n",
    ),
    "typed tags": template(
        tags(
            '<｜D｜invoke name="{{ f.name }}">\n',
            '<｜D｜parameter name="{{ k }}" string="{{ (v is string) | tojson }}">{{ text }}</｜D｜parameter>\n',
            "</｜D｜invoke>\n",
            around=("\n\n<｜D｜calls>", "</｜D｜calls>"),
        ),
        end="<｜end▁of▁sentence｜>",
    ),
    "kimi": template(
        f"{{% if m.tool_calls %}}{SECTION[0]}{EACH}<|call_begin|>{{{{ c.id }}}}<|arguments|>"
        f"{{{{ f.arguments | tojson }}}}<|call_end|>{DONE}{SECTION[1]}{{% endif %}}",
    ),
    "gpt-oss": (
        "{% for m in messages %}{% if m.role == 'assistant' %}{% if m.reasoning_content %}"
        "<|start|>assistant<|channel|>analysis<|message|>{{ m.reasoning_content }}<|end|>{% endif %}"
        "{% if m.tool_calls %}{% set f = m.tool_calls[0].function %}"
        "<|start|>assistant to=functions.{{ f.name }}<|channel|>commentary json<|message|>{{ f.arguments | tojson }}"
        "<|call|>{% else %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|return|>{% endif %}"
        "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
    ),
    "python": template(
        f"{{% if m.tool_calls %}}<|tool_call_start|>[{EACH}{{% if not loop.first %}}, {{% endif %}}{{{{ f.name }}}}("
        "{% for k, v in f.arguments.items() %}{% if not loop.first %}, {% endif %}{{ k }}={{ v | tojson }}{% endfor %})"
        f"{DONE}]<|tool_call_end|>{{% endif %}}",
    ),
    "lax": template(
        f"{EACH}<|tool_call>call:{{{{ f.name ~ '{{' }}}}"
        "{% for k, v in f.arguments.items() %}{% if not loop.first %},{% endif %}"
        "{{ k }}:{{ '<|\"|>' ~ v ~ '<|\"|>' if v is string else v | tojson }}{% endfor %}"
        f"}}<tool_call|>{DONE}",
        start="<|turn>model\n",
        end="<turn|>\n",
    ),
    "cohere": template(
        f"{{% if m.tool_calls %}}<|START_ACTION|>[{EACH}{{% if not loop.first %}},{{% endif %}}\n"
        '    {"tool_call_id": "{{ loop.index0 }}", "tool_name": "{{ f.name }}", '
        '"parameters": {{ f.arguments | tojson }}}'
        f"{DONE}\n]<|END_ACTION|>{{% endif %}}",
        before="{% if m.reasoning_content %}<|START_THINKING|>{{ m.reasoning_content }}<|END_THINKING|>{% endif %}",
    ),
    "lines": template(
        f"{{% if m.tool_calls %}}\n<tool_calls>\n{EACH}{{{{ f | tojson }}}}\n{DONE}</tool_calls>{{% endif %}}",
        end="<end_of_sentence>\n",
    ),
    "name as key": template(
        f"{{% if m.tool_calls %}}<|tools_prefix|>[{EACH}{{% if not loop.first %}}, {{% endif %}}"
        f'{{"{{{{ f.name }}}}": {{{{ f.arguments | tojson }}}}}}{DONE}]<|tools_suffix|>{{% endif %}}',
    ),
    "functions": template(
        f"{EACH}<function={{{{ f.name }}}}>{{{{ f.arguments | tojson }}}}</function>{DONE}",
    ),
}


class Template:
    """A template that renders without a tokenizer."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __call__(self, messages: Sequence[dict[str, Any]], *, tools: Sequence[dict[str, Any]], for_answer: bool) -> str:
        options = {"tools": tools, "chat_template": self.source, "add_generation_prompt": for_answer}
        try:
            return render_jinja_template([messages], **options)[0][0]
        except Exception as error:
            raise ValueError(str(error)) from error
