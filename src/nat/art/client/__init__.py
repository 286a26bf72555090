"""Train with an ART server over HTTP: the trajectory builder, the trainer adapter and the trainer."""
