"""Other import paths of `nat.eval`, as later versions of the toolkit have them."""
