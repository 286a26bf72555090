"""Direct preference optimization: trajectory builder, trainer adapter and trainer."""
