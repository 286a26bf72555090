"""Tic-tac-toe for a language model: the rules, the opponent, the agent, its reward."""
