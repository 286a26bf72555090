"""The import paths of the toolkit's ART plug-in; the code is in `nat.art.client`."""
