"""How a model writes its answers: the format of its calls and its thinking, found, proved and read. Pure."""
