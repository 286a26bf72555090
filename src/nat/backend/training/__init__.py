"""The learner: groups of rollouts with rewards in, new weights out; nothing here knows HTTP or threads."""
