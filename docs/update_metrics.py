"""The metrics of an update: the backend reports these names and no others; an epoch has them under `train/`.

"Tokens" are sampled tokens that carry loss unless stated otherwise. "Of all passes": with `num_iterations` above 1, a
token counts once in each pass, with its values in that pass.
"""

from collections.abc import Mapping

from nat.wire.training import CHECK_CALLS, CHECK_TOKENS, LEFT_OUT, TRAINED_CALLS, TRAINED_TOKENS

UPDATE: Mapping[str, str] = {
    "trained_groups": "Groups that carried loss; the other submitted groups had no difference in reward.",
    "trained_rollouts": "Rollouts that carried loss.",
    "trained_rows": "Rows that carried loss.",
    "trained_tokens": "Tokens, each counted once; `tokens_trained` of the summary sums them over all updates.",
    "advantage_size": "Mean absolute advantage, as the loss uses it, of the tokens.",
    "zero_advantages": "Share of the submitted rollouts without an answer that has an advantage.",
    "truncated_fraction": "Share of the submitted rollouts in which an answer hit its token limit.",
    "row_tokens": "Tokens of the trained rows, prompts included, each row up to the token before its last sampled one.",
    "packed_tokens": "Tokens of these rows that one training pass computed, shared prefixes once; mean of all passes.",
    "unique_tokens": "The fewest tokens that a pass over these rows could have computed.",
    "optimizer_steps": "Optimizer steps that changed the weights.",
    "skipped_steps": "Optimizer steps with a gradient of zero, which changed no weight.",
    "loss": "`policy_loss` plus `beta` times the KL divergence to the reference; mean of the optimizer steps.",
    "policy_loss": "The policy term of the loss; mean of the optimizer steps.",
    "grad_norm": "Norm of the gradient before clipping; mean of the optimizer steps, 0 for skipped ones.",
    "update_ratio": "Norm of a step's change of the served weights over their norm; mean as for `grad_norm`.",
    "learning_rate": "Mean of the optimizer steps.",
    "entropy": "Entropy in nats of each token's distribution; mean of the tokens of all passes.",
    "clip_fraction_low": "Share of the tokens of all passes clipped at the lower end.",
    "clip_fraction_high": "Share of the tokens of all passes clipped at the upper end.",
    "effective_sample_size": "(Σw)²/(n·Σw²) with w = π/μ, learner over sampler, for the n sampled tokens of all "
    "passes; missing where all tokens are from texts.",
    "logprob_diff_mean": "Mean |Δ log p| between the learner before the update and the sampler.",
    "logprob_diff_max": "The largest such difference.",
    "sampler_kl": "Estimate (k3) of the KL divergence per sampled token from the sampler to the learner "
    "before the update.",
    "reference_kl": "Estimate (k3) of the KL divergence per token from the policy to the reference, over the tokens of "
    "all passes; only where `beta` or `kl_penalty_coef` needs the reference.",
    "approx_kl": "Estimate (k3) of the KL divergence per token from the policy before the update to that after it, "
    "over the tokens of a sixteenth of the rows, up to 32 short ones, drawn at random; not for texts from a file.",
    "unasked_kl": "The part of `approx_kl` on tokens whose probability did not move the way that their advantage asks "
    "for: good ones that fell, bad ones that rose. With a loss over whole answers or a teacher, all of it.",
    "kept_share": "Share of the way from the old weights that the update kept: below 1 if the whole way would have "
    "raised `unasked_kl` above `max_kl`. `learning_rate` and `update_ratio` are those of the kept way.",
    "shortenings": "Attempts at a shorter way, up to 5, until `unasked_kl` was within `max_kl`; 0 if all is kept.",
    "kl_per_step": "`approx_kl` per optimizer step.",
    "usual_learning_rate": "The default learning rate of these weights; `learning_rate` is the one that was used.",
    "served_diff_mean": "Mean |Δ log p| between sampler and learner after the update, over the tokens of at most eight "
    "of the shorter rows.",
    "served_diff_max": "The largest such difference.",
    "policy_step": "Optimizer steps since the backend's first update, including this one.",
    f"{LEFT_OUT}<message>": "1 if the chat template has left out a message of this role, a tool call, or text beside "
    "one; else absent.",
    "seconds": "Seconds of the update inside the backend, without saving.",
    "tokens_per_second": "`row_tokens` per second of the update.",
}
"""Description by name."""

OF_COMPLETIONS: Mapping[str, str] = {
    "pairs": "Pairs of a better and a worse rollout that were compared; of `dpo`.",
    "pairs_left_out": "Pairs of different rewards that were left out: no answer of the model is the first difference.",
    "rewards_chosen": "Implicit reward beta · (log π - log π_ref) of the chosen answers; mean of the optimizer steps, "
    "as all of `rewards_…` and `logps_…`; of `dpo` and `kto`.",
    "rewards_rejected": "Implicit reward of the rejected answers.",
    "rewards_margin": "`rewards_chosen` less `rewards_rejected`, over pairs.",
    "rewards_accuracy": "Share of the pairs whose chosen answer has the higher implicit reward.",
    "logps_chosen": "Log probability of the chosen answers, each the sum over its tokens. If it falls for long, the "
    "model unlearns good answers, too: set `sft_loss_weight`.",
    "logps_rejected": "Log probability of the rejected answers, each the sum over its tokens.",
    "mismatched_kl": "Mean log π - log π_ref of answers to other prompts, the baseline of `kto`.",
}
"""Those that only algorithms have which compare whole answers, `dpo` and `kto`."""

OF_TEACHER: Mapping[str, str] = {
    "teacher_kl": "Reverse KL divergence per token from the model before the update to the teacher: the mean of "
    "log(model / teacher) over the tokens, each between -20 and 20. It should fall.",
    "teacher_calls": "Requests to the teacher's server, one for each row.",
    "teacher_tokens": "Tokens of these rows.",
    "teacher_seconds": "Seconds of these requests, as a part of `time/submit`.",
    "teacher_unscored": "Tokens that the teacher's context did not reach, which teach nothing.",
}
"""Those that only `distill` has."""

OF_SERVER: Mapping[str, str] = {
    TRAINED_CALLS: "Batches that a Tinker server was sent for their gradient.",
    TRAINED_TOKENS: "Tokens of these batches, with the empty rows that servers which compile get.",
    CHECK_CALLS: "Requests to score rows, before the update and after it.",
    CHECK_TOKENS: "Tokens of these rows.",
}
"""Those that only updates on a Tinker server have."""
