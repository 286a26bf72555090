"""Dataset formats: each reads one file into rows, and leaves ids, keys and filters to `nat.eval.dataset`."""
