"""The learner: it turns groups of rollouts with rewards into new weights."""
