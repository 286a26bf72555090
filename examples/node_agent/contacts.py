"""Who can be called, and how people say it."""

NAMES = ("anna", "boris", "clara", "david", "elena", "felix", "greta", "hugo", "ines", "jonas", "klara", "leo")
NUMBERS = 9
VERBS = ("ring", "call", "phone")


def number_of(name: str) -> int:
    """Neighbours in the alphabet do not share a number: to know it, one has to open the contact."""
    return 1 + NAMES.index(name) * 7 % NUMBERS
