import pytest

from nat.data_models.rollout_failure import FirstFailure, counted, one_line, total
from nat.errors import traceback_of
from nat.secrets import known_secrets

WORDS = "the workflow raised an error"


def failure(traceback, cause=WORDS):
    return FirstFailure(rollout="item a", cause=cause, error="E", traceback=traceback)


def test_failures_are_counted_by_cause_with_the_most_frequent_error():
    """Each cause has a line, the most frequent first, that says if its error is not that of all."""
    failures = [("slow", "T"), ("raised", "KeyError: 'b'"), ("raised", "KeyError: 'a'"), ("raised", "KeyError: 'a'")]
    assert list(map(str, counted(failures))) == ["3 x raised, e.g. KeyError: 'a'", "1 x slow: T"]


@pytest.mark.parametrize("shorten", [one_line, lambda text: traceback_of(RuntimeError(text))])
def test_a_shortened_error_contains_no_part_of_a_secret(shorten):
    """Secrets are redacted before the text is cut, since a partial key would not be recognised."""
    secret = "".join(chr(ord("a") + n % 26) + str(n % 10) for n in range(100))
    known_secrets.remember([secret])
    for place in (*range(250, 410, 15), *range(9_700, 10_100, 15)):
        few, many = "." * place, "." * 20_000
        for shown in (shorten(few + secret + many), shorten(many + secret + few)):
            assert "…" in shown
            assert not [at for at in range(len(secret) - 4) if secret[at : at + 4] in shown], place


def test_counts_of_epochs_add_up_with_the_first_error():
    """The summary keeps the first error, as an example if later ones differ."""
    first, second = counted([("raised", "first")]), counted([("raised", "second"), ("slow", None)])
    assert list(map(str, total([first, second]))) == ["2 x raised, e.g. first", "1 x slow"]
    assert list(map(str, total([first, first]))) == ["2 x raised: first"]
    assert list(map(str, total([first, second, first]))) == ["3 x raised, e.g. first", "1 x slow"]


def test_failures_are_grouped_by_their_place_in_the_code():
    """Errors that differ only in an item's name are the same; another line or cause is another failure."""
    here = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    x[k]\nKeyError: {}'
    there = here.replace("line 3", "line 4")
    assert failure(here.format("'a'")).way == failure(here.format("'b'")).way
    assert failure(here).way != failure(there).way
    assert failure(None).way != failure(None, cause="slow").way
