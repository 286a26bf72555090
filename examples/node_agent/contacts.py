"""Contacts, and wordings of a request to call one."""

NAMES = ("anna", "boris", "clara", "david", "elena", "felix", "greta", "hugo", "ines", "jonas", "klara", "leo")
NUMBERS = 9
VERBS = ("ring", "call", "phone")


def number_of(name: str) -> int:
    """The number of a contact; neighbours in the alphabet differ, so the contact must be opened."""
    return 1 + NAMES.index(name) * 7 % NUMBERS
