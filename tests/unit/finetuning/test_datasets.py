from nat.finetuning.datasets import num_shared


def games(prefix, *contents):
    return [(f"{prefix}{n}", content) for n, content in enumerate(contents)]


def test_the_same_content_is_the_same_example_under_any_id():
    """A held-out example counts once, however often it is trained on."""
    training = games("train-", "a", "b", "c", "a")
    assert num_shared(training, games("held-", "x", "a", "c", "y")) == 2
    assert num_shared(training, games("held-", "x", "y")) == 0


def test_games_that_begin_alike_are_told_apart_by_their_ids():
    """Each is seeded by its id: the first move of all of them is no content that could be learned by heart."""
    training = games("train-", *"XOXOXO")
    assert num_shared(training, games("held-", *"XOXO")) == 0
    assert num_shared(training, training[:4]) == 4
