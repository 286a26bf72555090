"""Write data/: sentences of product reviews that people rated, from the source distribution of vaderSentiment.

Its licence is MIT; the sentences and ratings are described in Hutto and Gilbert, "VADER", ICWSM 2014.
"""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

from examples.real.packages import Package, downloaded
from examples.real.rows import Row, write

PACKAGE = Package(
    "vaderSentiment==3.3.2", "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9", source=True
)
ARCHIVE = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
SENTENCES = "hutto_ICWSM_2014/amazonReviewSnippets_GroundTruth.txt"
CLEAR = 1.5
"""The mean of twenty ratings from -4 to 4 beyond which a sentence has a clear sentiment."""
SHORTEST, LONGEST = 20, 120
"""Characters of a sentence."""
QUESTION = """\
Read the sentence of a review and say whether it is positive or negative. Answer with one word, positive or negative.

Sentence: {text}
Sentiment:"""


def rows(seed: int = 7) -> Iterator[Row]:
    """Rows that are positive and negative in turn."""
    random, by_answer = Random(seed), _sentences()
    shuffled = [random.sample(sorted(texts), len(texts)) for texts in by_answer.values()]
    for pair in zip(*shuffled, strict=False):
        for answer, text in zip(by_answer, pair, strict=True):
            yield {"question": QUESTION.format(text=text), "answer": answer}


def _sentences() -> dict[str, set[str]]:
    """The sentences with a clear sentiment, by the answer."""
    found: dict[str, set[str]] = {"positive": set(), "negative": set()}
    for line in _file().splitlines():
        _, rating, text = line.split("\t")
        if SHORTEST <= len(text) <= LONGEST and abs(float(rating)) >= CLEAR:
            found["positive" if float(rating) > 0 else "negative"].add(text.strip())
    return found


def _file() -> str:
    with tarfile.open(downloaded(PACKAGE)) as package, package.extractfile(ARCHIVE) as inner:  # type: ignore[union-attr]
        content = io.BytesIO(inner.read())
    with tarfile.open(fileobj=content) as archive, archive.extractfile(SENTENCES) as sentences:  # type: ignore[union-attr]
        return sentences.read().decode("utf-8")


if __name__ == "__main__":
    write(Path(__file__).parent, rows())
