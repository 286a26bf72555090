"""vLLM as the sampling engine: in its own process, on the learner's weights after each update."""
