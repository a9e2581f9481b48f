import json
from collections import Counter

import pytest

from seqlab.errors import BundleError, DataError
from seqlab.text import UNSEEN, Labels

LABELS = Labels.from_counts(Counter({"VERB": 2, "NOUN": 5, "ADJ": 5}))


def test_ids_follow_the_names():
    assert LABELS.names == ("ADJ", "NOUN", "VERB")
    assert [LABELS.encode(name) for name in LABELS.names] == [0, 1, 2]
    assert len(LABELS) == 3


def test_a_label_never_seen_equals_no_prediction():
    assert LABELS.encode("INTJ") == UNSEEN == -1


def test_the_majority_is_the_most_frequent_and_then_the_first_by_name():
    assert LABELS.counts == (5, 5, 2)
    assert LABELS.majority == "ADJ"


def test_json_and_back():
    assert Labels.from_json(json.loads(json.dumps(LABELS.to_json()))) == LABELS


def test_no_labels_at_all():
    with pytest.raises(DataError, match="no labels"):
        Labels.from_counts(Counter())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "must be an object"),
        ({"names": ["a"]}, "lacks its part 'counts'"),
        ({"names": "a", "counts": [1]}, "'names' must be a list"),
        ({"names": [], "counts": []}, "0 names and 0 counts"),
        ({"names": ["a", "b"], "counts": [1]}, "2 names and 1 counts"),
        ({"names": ["a", "a"], "counts": [1, 1]}, "is repeated: 'a'"),
        ({"names": ["a", 1], "counts": [1, 1]}, "entry 1 is not text"),
        ({"names": ["a"], "counts": [True]}, "whole numbers"),
        ({"names": ["a"], "counts": [-1]}, "none below 0"),
    ],
)
def test_malformed_labels_are_refused(data, message):
    with pytest.raises(BundleError, match=message):
        Labels.from_json(data)
