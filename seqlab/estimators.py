"""Classifiers and taggers as scikit-learn estimators, for its pipelines, searches and cross-validation.

model = SeqlabClassifier("bilstm-classifier", settings=("train.epochs=3",)).fit(texts, labels)
model.predict(["what a film"])
cross_val_score(model, texts, labels)

`fit` is `seqlab.train` on a temporary file: the recipe holds out a part (`data.validation`) and keeps the weights that
are best on it. The estimators work without scikit-learn, which is imported only by methods that it calls itself.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, final

import numpy as np
from jaxtyping import Float64, Shaped

from seqlab.bundle import save_bundle
from seqlab.data.example import Vectors
from seqlab.data.vector_files import as_vectors
from seqlab.errors import DataError, nearest, shorten
from seqlab.lab import Model, train
from seqlab.recipe import Recipe

# writes a row and the names of its labels in the format of a training file
Writer = Callable[[Any, list[str]], str]


class InputError(DataError, ValueError):
    """An error in X or y; also a ValueError, which scikit-learn and its users expect."""


@dataclass(eq=False)
class _Estimator:
    """The base of both estimators: parameters are stored unchanged, and `fit` sets `model_`, a Seqlab model.

    `settings` are overrides such as "train.steps=500"; `seed` determines the weights and the held-out part.
    """

    # the type of estimator for scikit-learn
    kind: ClassVar[str | None] = None
    recipe: str | Recipe
    settings: Sequence[str] = ()
    seed: int = 0
    model_: Model = field(init=False, repr=False)
    classes_: Shaped[np.ndarray, " K"] = field(init=False, repr=False)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the constructor; no parameter is an estimator, so `deep` changes nothing."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init}

    def set_params(self, **params: Any) -> "_Estimator":
        for name, value in params.items():
            if name not in self.get_params():
                message = f"{type(self).__name__} has no parameter '{name}'"
                raise InputError(message, hint=nearest(name, self.get_params()))
            setattr(self, name, value)
        return self

    def save(self, folder: str | Path) -> Model:
        """Save the fitted model in a directory, for `seqlab.load`, `seqlab predict` and `seqlab serve`."""
        save_bundle(self._fitted().bundle, Path(folder))
        return Model(self.model_.bundle, Path(folder))

    def _fit(
        self, task: str, rows: list[Any], labels: list[list[Any]], file: str, write: Writer
    ) -> None:
        """Write rows and labels to a file with `write`, and train on it; `settings` override other settings."""
        classes = _names([*chain.from_iterable(labels)])
        names = [[classes[label] for label in row_labels] for row_labels in labels]
        settings = [
            f"train.seed={self.seed}",
            "data.source=none",
            "data.target=none",
            *self.settings,
        ]
        with TemporaryDirectory() as folder:
            if isinstance(rows[0], np.ndarray):
                settings.insert(0, "source.kind=vectors")
                path = Path(folder, "X.npz")
                lengths = [len(row) for row in rows]
                np.savez(
                    path,
                    values=np.concatenate(rows),
                    lengths=lengths,
                    labels=[*chain.from_iterable(names)],
                )
            else:
                path = Path(folder, file)
                path.write_text("".join(map(write, rows, names)), "utf-8")
            self.model_ = train(
                task, path, recipe=self.recipe, settings=settings, out=Path(folder, "run")
            ).model
        self.classes_ = np.array(list(classes))

    def _fitted(self) -> Model:
        if hasattr(self, "model_"):
            return self.model_
        message = f"this {type(self).__name__} is not fitted yet"
        try:
            # scikit-learn's own tools expect this error
            from sklearn.exceptions import NotFittedError
        except ImportError:
            raise InputError(message, hint="fit it to X and y.") from None
        raise NotFittedError(message)

    def __sklearn_tags__(self) -> Any:
        """Return the properties of the estimator that scikit-learn needs."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            self.kind,
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags() if self.kind else None,
            input_tags=InputTags(string=True),
        )


@final
@dataclass(eq=False)
class SeqlabClassifier(_Estimator):
    """Predicts a label for each text, or for each sequence of numbers or feature vectors."""

    kind = "classifier"
    recipe: str | Recipe = "bilstm-classifier"

    def fit(self, X: Any, y: Any) -> "SeqlabClassifier":
        """Train on texts, or arrays of frames by features, and a label for each."""
        rows, labels = _sequences(X), _labels(y)
        if len(rows) != len(labels):
            raise InputError(
                f"X has {len(rows)} rows and y has {len(labels)} labels",
                hint="each row needs one label.",
            )
        self._fit("classify", rows, [[label] for label in labels], "X.jsonl", _labelled)
        return self

    def predict(self, X: Any) -> Shaped[np.ndarray, " N"]:
        """Return the most probable label of each row, with the type of the labels in y."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> Float64[np.ndarray, "N K"]:
        """Return the probability of each label for each row, in the order of `classes_`.

        A label that occurs only in the held-out part has the probability 0.
        """
        answers = self._fitted().predict(_sequences(X))
        names = _names(self.classes_).values()
        rows = []
        for answer in answers:
            probabilities = answer.details["probabilities"]
            rows.append([probabilities.get(name, 0.0) for name in names])
        return np.array(rows)

    def score(self, X: Any, y: Any) -> float:
        """Return the accuracy."""
        return float(np.mean(self.predict(X) == np.asarray(y)))


@final
@dataclass(eq=False)
class SeqlabTagger(_Estimator):
    """Predicts a label for each word of a sentence, or for each frame of a sequence."""

    recipe: str | Recipe = "bilstm-tagger"

    def fit(self, X: Any, y: Any) -> "SeqlabTagger":
        """Train on sentences, as lists of words or arrays of frames by features, and a list of labels for each."""
        rows = _sequences(X, words=True)
        labels = [list(row_labels) for row_labels in y]
        if list(map(len, rows)) != list(map(len, labels)):
            raise InputError(
                "X and y have different lengths", hint="each word or frame needs one label."
            )
        self._fit("tag", rows, labels, "X.conll", _tagged)
        return self

    def predict(self, X: Any) -> list[list[Any]]:
        """Return the most probable label of each word or frame."""
        answers = self._fitted().predict(_sequences(X, words=True))
        labels = {name: label for label, name in _names(self.classes_).items()}
        return [[labels[name] for name in answer.details["tags"]] for answer in answers]

    def score(self, X: Any, y: Any) -> float:
        """Return the accuracy over all words or frames."""
        pairs = zip(chain.from_iterable(self.predict(X)), chain.from_iterable(y), strict=True)
        return float(np.mean([predicted == label for predicted, label in pairs]))


def _sequences(X: Any, *, words: bool = False) -> list[Any]:
    """Convert X to texts, tuples of words, or arrays of frames by features, all of the same kind."""
    values = X if isinstance(X, list | tuple) else np.asarray(X)
    if isinstance(values, np.ndarray) and values.ndim == 0:
        message = (
            f"X is one {type(X).__module__}.{type(X).__name__}, not a list of texts or sequences"
        )
        raise InputError(message, hint="one text is [text]; a sparse matrix is X.toarray().")
    rows = [row.split() if words and isinstance(row, str) else row for row in values]
    if not rows:
        raise InputError("X is empty", hint="give at least one text or sequence.")
    if words and all(isinstance(word, str) for row in rows for word in row):
        return [tuple(map(str, row)) for row in rows]
    if not words and all(isinstance(row, str) for row in rows):
        return list(map(str, rows))
    return [_frames(row, f"X[{index}]") for index, row in enumerate(rows)]


def _frames(row: Any, where: str) -> Vectors:
    """Convert a sequence of numbers or of vectors to an array of frames by features."""
    try:
        array = np.asarray(row)
        array = array.astype(np.float64) if array.dtype.kind == "O" else array
        if array.dtype.kind not in "biuf" or array.ndim == 0:
            raise TypeError(f"it is {shorten(str(row))}")
        return as_vectors(array, where)
    except DataError as error:
        raise InputError(f"{error} (neither NaN nor inf)", hint=error.hint) from None
    except (ValueError, TypeError) as error:
        message = f"{where} is neither a text nor a sequence of numbers: {error}"
        raise InputError(
            message, hint="all rows are texts, or all are arrays of frames by features."
        ) from None


def _labels(y: Any) -> list[Any]:
    """Check the labels of a classifier and return them as a list."""
    if y is None:
        raise InputError(
            "fit requires y to be passed, but the target y is None",
            hint="give a label for each row.",
        )
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise InputError(
            f"y has the shape {labels.shape}", hint="give one label for each row: y.ravel()."
        )
    if labels.dtype.kind in "fc" and not (np.isfinite(labels) & (labels == np.round(labels))).all():
        raise InputError(
            "y is continuous, NaN or inf, but labels are needed",
            hint="this estimator does no regression.",
        )
    return labels.tolist()


def _names(labels: Any) -> dict[Any, str]:
    """Return the name of each distinct label in the model, in the order of the labels."""
    same_type = len({*map(type, labels)}) == 1
    try:
        classes = np.unique(np.asarray(labels, dtype=None if same_type else object)).tolist()
    except TypeError as error:
        raise InputError(
            f"y mixes labels of several kinds: {error}", hint="make all of them strings."
        ) from None
    names = {label: str(label).strip() for label in classes}
    if len({*names.values()}) < len(names) or not all(names.values()):
        raise InputError(
            "some labels are empty, or differ only in spaces",
            hint="give each label a name of its own.",
        )
    return names


def _labelled(text: str, labels: list[str]) -> str:
    """Write a text and its label as a line of JSON."""
    return json.dumps({"text": text, "label": labels[0]}) + "\n"


def _tagged(words: tuple[str, ...], labels: list[str]) -> str:
    """Write a sentence and its labels in CoNLL format."""
    for word in (*words, *labels):
        if word != word.strip() or not word or {*"\t\r\n"} & {*word}:
            raise InputError(
                f"{shorten(word)} is not a word",
                hint="remove tabs, line ends, and spaces before and after it.",
            )
    return "".join(f"{word}\t{label}\n" for word, label in zip(words, labels, strict=True)) + "\n"
