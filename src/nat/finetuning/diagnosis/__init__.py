"""What keeps a run from learning? Records → a window of epochs → conditions → findings, each with its remedy."""
