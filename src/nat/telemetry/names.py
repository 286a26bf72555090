"""The names of spans' attributes and events, as strings of our own: both conventions are still in development.

`gen_ai.*` are OpenTelemetry's semantic conventions for generative AI, `nat.*` are ours and the toolkit's, the others
are OpenInference's.
"""

OPERATION = "gen_ai.operation.name"
CHAT, EXECUTE_TOOL, INVOKE_WORKFLOW = "chat", "execute_tool", "invoke_workflow"
PROVIDER = "gen_ai.provider.name"
WORKFLOW_NAME = "gen_ai.workflow.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
TOOL_NAME = "gen_ai.tool.name"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
ERROR_TYPE = "error.type"

EVALUATION = "gen_ai.evaluation.result"
EVALUATION_NAME = "gen_ai.evaluation.name"
EVALUATION_SCORE = "gen_ai.evaluation.score.value"
EVALUATION_LABEL = "gen_ai.evaluation.score.label"
EVALUATION_WHY = "gen_ai.evaluation.explanation"

SPAN_KIND = "openinference.span.kind"
KIND_AGENT, KIND_CHAIN, KIND_LLM, KIND_TOOL = "AGENT", "CHAIN", "LLM", "TOOL"
INPUT, INPUT_TYPE = "input.value", "input.mime_type"
OUTPUT, OUTPUT_TYPE = "output.value", "output.mime_type"
LLM_MODEL = "llm.model_name"
LLM_PROVIDER = "llm.provider"
LLM_INPUT = "llm.input_messages"
LLM_OUTPUT = "llm.output_messages"
LLM_TOOLS = "llm.tools"
LLM_PROMPT_TOKENS = "llm.token_count.prompt"
LLM_COMPLETION_TOKENS = "llm.token_count.completion"
LLM_TOTAL_TOKENS = "llm.token_count.total"
OI_TOOL_NAME = "tool.name"
OI_TOOL_ARGUMENTS = "tool.parameters"

FUNCTION_NAME = "nat.function.name"
LLM_NAME = "nat.llm.name"
RUN_ID = "nat.finetune.run_id"
PURPOSE = "nat.finetune.purpose"
EPOCH = "nat.finetune.epoch"
EXAMPLE_ID = "nat.finetune.example_id"
GENERATION = "nat.finetune.generation"
WEIGHT_VERSION = "nat.finetune.weight_version"
SEED = "nat.finetune.seed"
REWARD = "nat.finetune.reward"
LEFT_OUT = "nat.finetune.left_out"
SCORE_OF = "nat.evaluation."
"""Prefix of an evaluator's name: its score of the rollout."""

_CONTENT = frozenset(
    (
        *(INPUT, OUTPUT, INPUT_MESSAGES, OUTPUT_MESSAGES, TOOL_DEFINITIONS),
        *(TOOL_ARGUMENTS, TOOL_RESULT, OI_TOOL_ARGUMENTS, EVALUATION_WHY),
    )
)
_OF_CONTENT = tuple(f"{prefix}." for prefix in (LLM_INPUT, LLM_OUTPUT, LLM_TOOLS))


def is_content(name: str) -> bool:
    """True for attributes with what the model or the workflow was given and has answered."""
    return name in _CONTENT or name.startswith(_OF_CONTENT)
