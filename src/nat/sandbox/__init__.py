"""Runs what comes with a model (chat templates, tokenizers, patterns) in a child process with limits."""
