"""What turns returns into a loss: one file for each algorithm, and the registry that finds those of plug-ins."""
