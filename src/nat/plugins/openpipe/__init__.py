"""Aliases for plug-ins: the code of ART is in `nat.art.client`."""
