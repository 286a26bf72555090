"""A plug-in as its author writes it from the documentation of the toolkit's release 1.9, without knowledge of ours."""
