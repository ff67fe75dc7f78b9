"""The race of the kNN evaluation."""

from collections.abc import Iterator

import torch
from sklearn.neighbors import KNeighborsClassifier
from torch.nn.functional import normalize

from bench.lines import KNN, KNN_DIM, KNN_NEIGHBOURS, KNN_TEST, KNN_TRAIN
from bench.race import Race, timed
from manyview.evaluate.features import Features
from manyview.evaluate.knn import Knn

CLASSES = 10


def races(quick: bool) -> Iterator[Race]:
    train, test = (features(count // (10 if quick else 1), seed) for seed, count in enumerate((KNN_TRAIN, KNN_TEST)))
    bank, known, queries, wanted = (
        tensor.numpy() for tensor in (train.embeddings, train.labels, test.embeddings, test.labels)
    )

    def theirs() -> float:
        classifier = KNeighborsClassifier(KNN_NEIGHBOURS, algorithm="brute", metric="euclidean").fit(bank, known)
        return float(classifier.score(queries, wanted))

    yield Race(
        {"manyview": timed(lambda: Knn(KNN_NEIGHBOURS).score(train, test)), "scikit-learn": timed(theirs)},
        (KNN,),
        threads=2,
        repeats=3 if quick else 5,
        facts={"neighbours": KNN_NEIGHBOURS},
    )


def features(count: int, seed: int) -> Features:
    """Unit vectors around one direction per class, for which the Euclidean order of neighbours is the cosine's."""
    directions = torch.randn(CLASSES, KNN_DIM, generator=torch.Generator().manual_seed(1))
    source = torch.Generator().manual_seed(2 + seed)
    labels = torch.randint(CLASSES, (count,), generator=source)
    embeddings = directions[labels] + 2 * torch.randn(count, KNN_DIM, generator=source)
    return Features(normalize(embeddings, dim=1), labels, torch.arange(count))
