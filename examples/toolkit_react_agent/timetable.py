"""Towns, the platforms of their trains, and wordings of the question for one."""

TOWNS = (
    *("athens", "berlin", "bergen", "bern", "bilbao", "bologna", "bremen", "cadiz", "cologne", "dublin", "florence"),
    *("geneva", "ghent", "graz", "lille", "lisbon", "lyon", "madrid", "malaga", "milan", "munich", "nantes", "naples"),
    *("nice", "oslo", "porto", "prague", "rome", "seville", "turin", "vienna", "zurich"),
)
PLATFORMS = 10
QUESTIONS = ("which platform for {town}", "where is the train to {town}", "how do I reach {town}")


def platform_to(town: str) -> int:
    """The platform of the trains to a town; neighbours in the alphabet differ, so it must be looked up."""
    return 1 + TOWNS.index(town) * 7 % PLATFORMS
