"""A plug-in package as an author would write it from the guide, without knowledge of our internals."""
