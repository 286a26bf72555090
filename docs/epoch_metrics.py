"""The metrics of an epoch, each with what it is; `nat.finetuning.metrics` computes them."""

from collections.abc import Mapping

from nat.finetuning.metrics import BEGINNING, LOST_CALLS, PRICE, SAME_ANSWER, SAME_SCORE, STALE_ROWS
from nat.runs.records import RELATIVE

EPOCH: Mapping[str, str] = {
    "reward/mean": "Mean reward of all trajectories of the epoch, before selection; `avg_reward`.",
    "reward/std": "Standard deviation (population) of the same rewards.",
    "reward/spread_in_group": "Largest difference between rewards (or returns) of a group; mean of all groups.",
    "reward/equal_groups": "Share of all groups whose rollouts are all alike, which carry no learning signal.",
    "reward/equal_groups_lowest": "Share of all groups whose rollouts all have the epoch's lowest reward.",
    "reward/equal_groups_highest": "Share of all groups whose rollouts all have the epoch's highest reward.",
    "reward/compared": "Rollouts with a score, less their examples: degrees of freedom of the next.",
    "reward/example_variance": "Variance of the score between the rollouts of an example; pooled over all examples.",
    "reward/repeats": "Rollouts whose conversations and output equal those of another rollout of their example.",
    "reward/repeat_variance": "Variance of the score between such equal rollouts: noise of the evaluator, or of what "
    "it sees besides.",
    "reward/row_repeats": "Rollouts whose training rows equal those of another rollout of their example.",
    "reward/row_repeat_variance": "Variance of the score between these: what the trained tokens do not decide.",
    "reward/length_correlation": "Correlation of score and sampled tokens, inside examples and among rollouts with "
    "equally many calls.",
    "reward/truncated_lowest": "Share of the truncated rollouts that have the epoch's lowest score.",
    "reward/whole_lowest": "Share of the other rollouts that have it, if any rollout is truncated.",
    "reward/beside_<evaluator>": "Mean score of the rollouts by an evaluator that is not the reward.",
    RELATIVE: "1 if the scores compare the generations of an example, so that their mean says nothing about progress; "
    "absent otherwise.",
    PRICE: "What the calls of agent and evaluators cost in the epoch, by `finetuning.budget.prices`.",
    "rollout/failed": "Share of rollouts that raised an error, timed out or got no score.",
    "rollout/failed_calls": "Failed attempts at an LLM call, per rollout, failed rollouts included.",
    "rollout/calls": "Answered LLM calls, per rollout that had one.",
    "rollout/conversations": "Conversations, per rollout that called a model.",
    "rollout/prompt_tokens": "Prompt tokens of all calls, per rollout whose server reports token ids.",
    "rollout/completion_tokens": "Sampled tokens of all calls, per rollout whose server reports them.",
    "rollout/truncated": "Share of the rollouts with calls in which an answer of the target hit its token limit.",
    "rollout/tool_errors": "Share of the results of tools that begin as an error.",
    f"{LOST_CALLS}<cause>": "Answers with a tool call that could not be used, in all rollouts: `cut_off` by the token "
    "limit, `unclosed`, `malformed`, of an `unknown_tool` (the agent gets it), or `no_format` is known for the calls.",
    "rollout/without_calls": "Share of the rollouts without an error in which no LLM call was seen.",
    "rollout/cached": "The part of them whose output is that of another rollout of the example, which had calls.",
    SAME_ANSWER: "Share of the rollouts with the most frequent answer, of an epoch with six prompts or more. Of a "
    f"cut-off answer the first {BEGINNING} characters count.",
    SAME_SCORE: "Mean score of these rollouts.",
    "rollout/trained_tokens": "Share of the sampled tokens of all calls that training rows have.",
    "rollout/tokens_per_second": "Sampled tokens of all rollouts per second of `time/rollout`.",
    "drift/rows_per_rollout": "Training rows per rollout that has rows; 1 is ideal.",
    "drift/broken_prefixes": "Calls that did not continue the tokens before them, in all rollouts; 0 is ideal.",
    "drift/broken_by_<cause>": "Calls that did not continue the tokens before them for one cause, in all rollouts.",
    "drift/calls_without_logprobs": "Calls of the target without log probabilities, in all trajectories.",
    "drift/untrainable_calls": "Calls of the target that were left out because of their sampling, in all rollouts.",
    "drift/untempered_calls": "Trained calls whose log probabilities are at another temperature than their sampling.",
    "drift/policy_versions": "Different weights that sampled the answers of the rollouts with rows; 1 is ideal.",
    "drift/staleness": "Updates between the weights that sampled an answer and those that its job began with; mean of "
    "the answers. It and the next three metrics exist only with `max_staleness`.",
    "drift/staleness_max": "The most updates between the weights of an answer and those that its job began with.",
    STALE_ROWS: "Share of the rows with an answer from earlier weights than those that the job began with.",
    "drift/dropped_groups": "Groups with a rollout that was left out because an answer was older than `max_staleness`.",
    "train/submitted_groups": "Groups submitted to the job; `filtered_groups`.",
    "train/submitted_rollouts": "Rollouts submitted to the job.",
    "train/submitted_rows": "Rows submitted to the job.",
    "train/submitted_tokens": "Sampled tokens submitted to the job.",
    "time/epoch": "Seconds of the epoch, without validation and without what overlapped with the epoch before.",
    "time/rollout": "Seconds of the rollouts and their scoring.",
    "time/submit": "Seconds until the backend had accepted the job.",
    "time/train": "Seconds until the job ended.",
    "time/overlapped": "The part of `time/train` in which rollouts of later epochs were played (`max_staleness`).",
    "time/waiting_for_weights": "The part of `time/train` in which no rollouts were played, because all that "
    "`max_staleness` allows had been.",
    "time/waiting_for_rollouts": "Seconds in which the learner waited for the rollouts of the epoch (`max_staleness`).",
}
