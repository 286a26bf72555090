"""A plug-in package as its author would write it from the guide, knowing nothing of our internals."""
