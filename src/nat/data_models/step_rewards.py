"""Under which keys the metadata of a step says what the step was worth."""

REWARD = "reward"
"""A number, in the metadata of a step that ends."""
REWARDED_STEP = "reward_step"
"""UUID of the step that the reward is for, if it is for another one."""
