"""The view `evidence`: the n-grams, features, neighbours or smoothing forms that the answer of a baseline rests on."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from seqlab.bundle import Bundle
from seqlab.codecs.labels import labels_in
from seqlab.codecs.ngrams import NgramSource
from seqlab.codecs.series import series_of
from seqlab.codecs.spellings import SpellingSource
from seqlab.errors import UsageError, one_of
from seqlab.explain.charts import Bars, table
from seqlab.explain.figure_text import cut
from seqlab.explain.view import View
from seqlab.models.crf import CRF
from seqlab.models.exponential_smoothing import FORMS, NAMES, SmoothingForecaster
from seqlab.models.neighbours import NeighbourModel
from seqlab.padded import Padded
from seqlab.subject import Subject
from seqlab.tasks import subject as subject_of
from seqlab.tasks.bands import forecast, last_window
from seqlab.text import EOS, SOS

MAX_FEATURES = 20
MAX_CHARACTERS = 60  # of an example


def evidence_view(
    bundle: Bundle, given: Any, *, position: int | None = None, column: str | None = None
) -> View:
    """Show the n-grams, features of a word, nearest examples or smoothing forms that an answer rests on."""
    name = bundle.recipe.model.classical
    if name in ("linear", "crf"):
        return _features(bundle, given, position)
    if name == "neighbours":
        return _neighbours(bundle, given)
    if name == "smoothing":
        return _forms(bundle, given, column)
    raise UsageError(
        "the view 'evidence' needs a linear, CRF, nearest-neighbour or smoothing baseline",
        hint="use the view 'saliency' or 'attention'.",
    )


def _features(bundle: Bundle, given: Any, position: int | None) -> View:
    """Show what each feature adds to the score of the answer, minus what it adds to the second best label."""
    subject = subject_of(bundle, given)
    names = labels_in(bundle.codec).names
    reads = cast(Padded, subject.reads)
    is_tagger = isinstance(bundle.model, CRF)
    place = subject.place(position) if is_tagger else 0
    best = subject.answers[place]
    with torch.inference_mode():
        others = [i for i in subject.logits()[place].argsort(descending=True).tolist() if i != best]
        contributions = cast(Any, bundle.model).contributions(reads)
    contributions = contributions[place] if is_tagger else contributions
    second = others[0] if others else best
    difference = contributions[:, best]
    if others:
        difference = difference - contributions[:, second]
    weights = difference.double().numpy()
    order = np.argsort(-np.abs(weights), kind="stable")[:MAX_FEATURES]
    order = order[weights[order] != 0]
    features = _feature_names(bundle, subject, reads.values[0, place])
    chosen = [features[i] for i in order.tolist()]
    values = weights[order]
    word = f" of '{subject.source[place]}'" if is_tagger else ""
    title = f"features{word} for '{names[best]}' rather than '{names[second]}'"
    data = {"answer": names[best], "instead": names[second], "features": chosen, "weights": values}
    bars = Bars(values, chosen, title="contribution of each feature, in nats")
    return View("evidence", title, data, [bars])


def _feature_names(bundle: Bundle, subject: Subject, ids: torch.Tensor) -> Sequence[str]:
    """Return the names of the features that the model reads."""
    source = bundle.codec.source
    if isinstance(source, SpellingSource):
        return [source.vocabulary.name(i) if i else "" for i in ids.tolist()]
    if isinstance(source, NgramSource):
        return subject.source
    return cast(Any, bundle.model).names


def _neighbours(bundle: Bundle, given: Any) -> View:
    """Show the nearest training examples: their answers, cosines, and the words that they share with the input."""
    model = cast(NeighbourModel, bundle.model)
    source = cast(NgramSource, bundle.codec.source)
    row = source.encode([source.load(given)])[0]
    reads = Padded.from_rows([torch.as_tensor(np.asarray(row))])
    tokenizer = bundle.codec.target_tokenizer
    with torch.inference_mode():
        cosine = model.encoder.cosines(reads)[0]
        best = cosine.topk(min(model.encoder.settings.count, len(cosine)))
        shared = _shared_words(model, source, reads, best.indices.tolist())
        context, _ = model.decoder.start(model.encoder(reads))
    targets = [[i for i in row if i not in (SOS, EOS)] for row in context[0][0].tolist()]
    answers = [tokenizer.decode(ids) for ids in targets]
    cosines = best.values.double().numpy()
    rows = [
        [cut(answer, MAX_CHARACTERS), f"{value:.3f}", cut(", ".join(words), MAX_CHARACTERS)]
        for answer, value, words in zip(answers, cosines.tolist(), shared, strict=True)
    ]
    data = {"answers": answers, "cosines": cosines, "shared": shared}
    header = ["answer of a training example", "cosine", "words in common"]
    lines = [f"{value}  {answer}   ({words})" for answer, value, words in rows]
    picture = table(header, rows, title="the nearest examples of the training part")
    return View("evidence", "the nearest training examples", data, [picture, *lines])


def _shared_words(
    model: NeighbourModel, source: NgramSource, reads: Padded, examples: list[int]
) -> list[list[str]]:
    """Return, for each training example, the five shared words that add most to the cosine."""
    encoder = model.encoder
    ids, values = encoder.ngrams(reads)
    weights = dict(zip(ids[0].tolist(), values[0].tolist(), strict=True))
    ends = torch.cat([encoder.offsets[1:], encoder.offsets.new_tensor([len(encoder.ids)])])
    shared = []
    for example in examples:
        part = slice(int(encoder.offsets[example]), int(ends[example]))
        ngrams = zip(encoder.ids[part].tolist(), encoder.values[part].tolist(), strict=True)
        products = sorted(((weights[i] * v, i) for i, v in ngrams if i in weights), reverse=True)
        num_words = len(source.vocabulary.words)
        words = [source.vocabulary.name(i) for _, i in products if i < num_words]
        shared.append(words[:5])
    return shared


def _forms(bundle: Bundle, given: Any, column: str | None) -> View:
    """Show the weight and the error of each smoothing form, and the season of the form with the largest weight."""
    model = cast(SmoothingForecaster, bundle.model)
    source = series_of(bundle.codec)
    name = one_of("column", column or source.columns[0], source.columns)
    place = source.columns.index(name)
    weights, errors = (each[place].double().numpy() for each in (model.weights, model.errors))
    tried = [number for number, error in enumerate(errors.tolist()) if np.isfinite(error)]
    names = list(NAMES)
    unit = source.deviation[place]
    heaviest = int(weights.argmax())
    data: dict[str, Any] = {
        "column": name,
        "forms": [names[i] for i in tried],
        "weights": weights[tried],
        "errors": errors[tried] * unit,
        "rates": {
            names[i]: model.rates[place, i].tolist()
            for i in tried
            if weights[i] > 0 and names[i] in FORMS
        },
    }
    figures = [
        Bars(data["weights"], data["forms"], f"{name}: weight of each form in the forecast"),
        Bars(
            data["errors"], data["forms"], "mean absolute error of each form on the training part"
        ),
    ]
    form = FORMS.get(names[heaviest])
    if form is not None and form.seasonal:
        window = last_window(bundle, given).rows_at([place])
        with torch.inference_mode():
            state = model.state(names[heaviest], window, model.rates[place, heaviest][None])
        count = window.require("source").values.shape[1]
        season = np.roll(state.season[0].numpy(), -(count % model.season))
        season = season if form.ratio else season * unit
        steps = [f"step {1 + k}" for k in range(len(season))]
        data["season"] = season
        title = f"the season of '{names[heaviest]}', from the next row on"
        figures.append(Bars(season, steps, title))
    forecast(bundle, given)  # raises an error if the input cannot be forecast
    parts = [part for figure in figures for part in (figure.title, figure)]
    return View("evidence", f"{name}: which forms make the forecast", data, parts)
