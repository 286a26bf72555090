"""Dataset formats: each reads a file into rows; `nat.eval.dataset` applies ids, keys and filters."""
