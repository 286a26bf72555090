"""Tasks that the defaults of training were not chosen on: a long dialogue, a continuous reward, a rare success."""
