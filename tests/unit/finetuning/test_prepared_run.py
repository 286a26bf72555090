from nat.finetuning.prepared_run import num_shared


def games(prefix, *contents):
    return [(f"{prefix}{n}", content) for n, content in enumerate(contents)]


def test_the_same_content_is_the_same_example_under_any_id():
    """A held-out example in the training data counts once, however often it is trained on."""
    training = games("train-", "a", "b", "c", "a")
    assert num_shared(training, games("held-", "x", "a", "c", "y")) == 2
    assert num_shared(training, games("held-", "x", "y")) == 0


def test_equal_games_are_distinguished_by_their_ids():
    """Their ids seed the games, so equal first moves are no shared content."""
    training = games("train-", *"XOXOXO")
    assert num_shared(training, games("held-", *"XOXO")) == 0
    assert num_shared(training, training[:4]) == 4
