"""When a finetuning run stops because it cannot learn, and when it warns."""

from pydantic import BaseModel, ConfigDict, Field


class GuardsConfig(BaseModel):
    """Thresholds under `finetuning.guards`; the first three end the run, the others are warnings in its log."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    epochs_without_signal: int = Field(default=3, ge=1)
    """End the run after this many epochs in a row in which no group had a difference in reward."""
    collapse_share: float = Field(default=0.5, ge=0, lt=1)
    """End the run when the mean reward, measured from the worst reward seen, falls below this share of what it was in
    the first epochs; 0 turns the check off."""
    collapse_epochs: int = Field(default=3, ge=1)
    """Epochs that are averaged at the start, and again now, to tell a collapse from chance."""
    max_equal_groups: float = Field(default=0.8, ge=0, le=1)
    """Warn when more than this share of the groups had no difference in reward, in each of the last five epochs."""
    min_effective_samples: float = Field(default=0.3, ge=0, le=1)
    """Warn when the effective sample size, (Σw)²/Σw² over the number of weights w, falls below this share."""
    max_clip_fraction: float = Field(default=0.3, ge=0, le=1)
    """Warn when more than this share of the trained tokens was clipped: the step went too far."""
    max_truncated: float = Field(default=0.2, ge=0, le=1)
    """Warn when more than this share of the rollouts hit a token limit."""
    max_entropy_drop: float = Field(default=0.5, gt=0, le=1)
    """Warn when the entropy per token lost more than this share within twenty epochs."""
