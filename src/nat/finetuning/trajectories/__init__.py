"""From an evaluation's rollouts to groups of trajectories; every module but `builder` is a pure step.

calls → select → credit → returns → messages (conversations) → episodes → rows → outcome → groups
"""
