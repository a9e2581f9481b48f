import gzip
import math
import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from seqlab.data.store import Column, write_stores
from seqlab.metrics import linear
from seqlab.metrics.linear import STRENGTH, LinearFloor

NOTHING = np.empty(0, dtype=np.int64)


def separable(num_texts=60):
    """Of three classes each has a token of its own among noise."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, size=num_texts)
    return [random.permutation(np.append(random.integers(3, 20, size=8), label)) for label in labels], labels


def noisy(seed, num_texts=400):
    """Two thirds of class 0; a third of the tokens lean towards the class, and a tenth of the labels are wrong."""
    random = np.random.default_rng(seed)
    labels = (random.random(num_texts) < 1 / 3).astype(np.int64)
    lengths = random.integers(1, 60, size=num_texts)
    texts = [
        np.where(random.random(n) < 1 / 3, 20 * y, 0) + random.integers(0, 40, size=n)
        for n, y in zip(lengths, labels, strict=True)
    ]
    return texts, np.where(random.random(num_texts) < 0.1, 1 - labels, labels)


def test_it_learns_what_can_be_separated():
    texts, labels = separable()
    floor = LinearFloor.fit(texts, labels, num_classes=3)
    assert (floor.predict(texts) == labels).all()
    assert floor.predict([np.array([1])]).tolist() == [1]


def test_it_beats_the_majority_on_noise():
    floor = LinearFloor.fit(*noisy(0), num_classes=2)
    texts, labels = noisy(1)
    assert (floor.predict(texts) == labels).mean() > (labels == 0).mean() + 0.1


def test_a_bigram_tells_what_its_tokens_cannot():
    """`0 1` and `1 0` apart, with the same tokens in every text."""
    random = np.random.default_rng(0)
    labels = np.arange(80) % 2
    texts = [
        np.concatenate([noise[:4], [y, 1 - y], noise[4:]])
        for y, noise in zip(labels, random.integers(2, 9, size=(80, 8)), strict=True)
    ]
    assert (LinearFloor.fit(texts[:40], labels[:40], num_classes=2).predict(texts[40:]) == labels[40:]).mean() > 0.9


def test_features_equal_the_formula():
    texts = [[5, 7, 5, 7], [5, 7], [7, 9], [5, 5]]
    bags = [Counter([*text, *pairwise(text)]) for text in texts]
    df = Counter(feature for bag in bags for feature in bag)
    values = {f: math.log(1 + bags[0][f]) * (math.log(5 / (1 + df[f])) + 1) for f in bags[0] if df[f] >= 2}
    length = math.hypot(*values.values())

    floor = LinearFloor.fit(texts, np.array([0, 0, 1, 0]), num_classes=2)
    _, seen = floor._row(texts[0])

    assert set(values) == {5, 7, (5, 7)}
    np.testing.assert_allclose(seen, [values[f] / length for f in (5, 7, (5, 7))], rtol=1e-6)


def test_it_comes_near_the_best_weights():
    """Oracle: the convex objective, minimised in full batches by L-BFGS."""
    texts, labels = noisy(0)
    floor = LinearFloor.fit(texts, labels, num_classes=2)
    x = np.zeros((len(texts), len(floor.features)))
    for row, text in enumerate(texts):
        places, values = floor._row(text)
        x[row, places] = values

    def objective(flat):
        parameters = torch.tensor(flat, dtype=torch.float64, requires_grad=True)
        weight, bias = parameters[:-2].view(-1, 2), parameters[-2:]
        loss = torch.nn.functional.cross_entropy(torch.tensor(x) @ weight + bias, torch.tensor(labels))
        loss = loss + weight.square().sum() / (2 * STRENGTH * len(texts))
        loss.backward()
        return loss.item(), parameters.grad.numpy()

    best = minimize(objective, np.zeros(2 * len(floor.features) + 2), jac=True, method="L-BFGS-B").fun
    ours, _ = objective(torch.cat([floor.weight.flatten(), floor.bias]).numpy())
    assert best <= ours < 1.05 * best


def test_the_seed_decides_alone():
    texts, labels = noisy(0)
    torch.manual_seed(1)
    first = LinearFloor.fit(texts, labels, num_classes=2, seed=3)
    torch.manual_seed(2)
    again = LinearFloor.fit(texts, labels, num_classes=2, seed=3)
    other = LinearFloor.fit(texts, labels, num_classes=2, seed=4)
    assert first.weight.equal(again.weight)
    assert first.bias.equal(again.bias)
    assert not first.weight.equal(other.weight)


def test_a_store_is_read_as_a_list_is(tmp_path):
    texts, labels = noisy(0)
    (store,) = write_stores([Column(tmp_path / "texts", 60)], ((text,) for text in texts))
    from_store = LinearFloor.fit(store, labels.astype(np.uint16), num_classes=2)
    from_lists = LinearFloor.fit([text.tolist() for text in texts], labels, num_classes=2)
    assert from_store.weight.equal(from_lists.weight)
    np.testing.assert_array_equal(from_store.predict(store), from_lists.predict(texts))


def test_unknown_labels_are_left_out():
    texts, labels = separable()
    hidden = np.where(np.arange(len(labels)) % 3 == 0, -1, labels)
    left_out = LinearFloor.fit(texts, hidden, num_classes=3)
    never_there = LinearFloor.fit(
        [t for t, y in zip(texts, hidden, strict=True) if y >= 0], hidden[hidden >= 0], num_classes=3
    )
    np.testing.assert_array_equal(left_out.predict(texts), never_there.predict(texts))


def test_an_empty_text_gets_the_majority():
    texts = [NOTHING, np.array([4, 4]), np.array([4]), NOTHING, np.array([1, 2])]
    floor = LinearFloor.fit(texts, np.array([2, 0, 0, 2, 2]), num_classes=3)
    assert floor.predict([NOTHING, np.array([4]), NOTHING, np.array([999])]).tolist() == [2, 0, 2, 2]


@pytest.mark.parametrize(
    ("texts", "labels", "num_classes", "expected"),
    [
        ([[1, 2], [2, 3], [1]], [1, 1, 1], 2, 1),  # one class only
        ([[1, 2], [2, 3], [1]], [0, 0, 0], 1, 0),
        ([[1, 2]], [3], 50, 3),  # more classes than examples, and nothing that two texts share
        ([[], []], [1, 1], 3, 1),
        ([[1, 2], [1, 2]], [-1, -1], 3, 0),  # nothing known at all
        ([], [], 3, 0),
    ],
)
def test_little_to_learn_from(texts, labels, num_classes, expected):
    floor = LinearFloor.fit(texts, np.array(labels, dtype=np.int64), num_classes=num_classes)
    assert floor.predict([[1, 2], [], [7, 8]]).tolist() == [expected] * 3
    assert torch.isfinite(floor.weight).all()


def test_nothing_to_predict():
    assert LinearFloor.fit([[1], [1]], np.array([0, 1]), num_classes=2).predict([]).shape == (0,)


def test_of_many_classes_only_the_commonest_features_are_kept(monkeypatch):
    monkeypatch.setattr(linear, "NUM_WEIGHTS", 6)
    floor = LinearFloor.fit([[1, 2], [1, 2], [1, 3], [3]], np.array([0, 0, 1, 1]), num_classes=3)
    assert floor.features[:-1].tolist() == [1, 2]


@pytest.mark.parametrize(("limit", "value"), [("NUM_TEXTS", 34), ("NUM_TOKENS", 300)])
def test_a_large_corpus_is_sampled(monkeypatch, limit, value):
    monkeypatch.setattr(linear, limit, value)
    texts, labels = separable(600)
    floor = LinearFloor.fit(texts, labels, num_classes=3)
    assert floor.idf.max() < math.log((1 + 34) / 3) + 1.01  # 34 texts of 9 tokens
    assert (floor.predict(texts) == labels).mean() > 0.8


@pytest.mark.parametrize(("num_labels", "highest"), [(2, 0), (3, 2)])
def test_labels_that_do_not_fit(num_labels, highest):
    with pytest.raises(ValueError, match=f"3 texts and {num_labels} labels up to {highest} for 2 classes"):
        LinearFloor.fit([[1], [2], [3]], np.full(num_labels, highest), num_classes=2)


@pytest.mark.slow
def test_the_floor_under_imdb(shared_data):
    words: dict[str, int] = {}
    parts = []
    for part in ("train", "test"):
        with gzip.open(shared_data(f"imdb/imdb.{part}.tsv.gz"), "rt", encoding="utf-8") as lines:
            rows = [line.rstrip("\n").split("\t") for line in lines]
        texts = [[words.setdefault(word, len(words)) for word in re.findall(r"\w+", row[3].lower())] for row in rows]
        parts.append((texts, np.array([int(row[0]) for row in rows])))
    (texts, labels), (test_texts, test_labels) = parts
    floor = LinearFloor.fit(texts, labels, num_classes=2)
    assert (floor.predict(test_texts) == test_labels).mean() == pytest.approx(0.910, abs=0.003)
