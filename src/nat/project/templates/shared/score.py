"""The score of an answer, which training raises: put what you want in `score`."""


def score(item, output):
    """1 for the expected answer alone, 0.5 if it is one of several words, else 0.

    Partial credit gives the model something to improve on before it succeeds. If this
    raises, the answer is left out and counted.
    """
    words, expected = str(output).split(), str(item.expected_output_obj)
    if words == [expected]:
        return 1.0
    return 0.5 if expected in words else 0.0
