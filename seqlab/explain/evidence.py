"""Why a baseline answers as it does: its n-grams, the features of a word, its neighbours, or its forms of smoothing."""

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

SHOWN = 20  # features or examples
LONGEST = 60  # characters of an example


def evidence_view(
    bundle: Bundle, given: Any, *, position: int | None = None, column: str | None = None
) -> View:
    """What speaks for the answer of a baseline: n-grams, features of a word, nearest examples, or forms of a season."""
    name = bundle.recipe.model.classical
    if name in ("linear", "crf"):
        return _features(bundle, given, position)
    if name == "neighbours":
        return _neighbours(bundle, given)
    if name == "smoothing":
        return _forms(bundle, given, column)
    raise UsageError(
        "this model does not say what its answer rests on", hint="'saliency' or 'attention' may."
    )


def _features(bundle: Bundle, given: Any, position: int | None) -> View:
    """What each feature adds to the score of the answer, compared with the second best label."""
    subject, names = subject_of(bundle, given), labels_in(bundle.codec).names
    reads, of_a_word = cast(Padded, subject.reads), isinstance(bundle.model, CRF)
    place = subject.place(position) if of_a_word else 0
    best = subject.answers[place]
    with torch.inference_mode():
        others = [i for i in subject.logits()[place].argsort(descending=True).tolist() if i != best]
        each = cast(Any, bundle.model).contributions(reads)
    each = each[place] if of_a_word else each
    against = others[0] if others else best
    apart = (each[:, best] - each[:, against] if others else each[:, best]).double().numpy()
    order = np.argsort(-np.abs(apart), kind="stable")[:SHOWN]
    order = order[apart[order] != 0]
    features = _feature_names(bundle, subject, reads.values[0, place])
    chosen, values = [features[i] for i in order.tolist()], apart[order]
    about = f"of '{subject.source[place]}' " if of_a_word else ""
    title = f"what {about}speaks for '{names[best]}' and not for '{names[against]}'"
    data = {"answer": names[best], "instead": names[against], "features": chosen, "weights": values}
    return View("evidence", title, data, [Bars(values, chosen, title="what each adds, in nats")])


def _feature_names(bundle: Bundle, subject: Subject, ids: torch.Tensor) -> Sequence[str]:
    source = bundle.codec.source
    if isinstance(source, SpellingSource):
        return [source.vocabulary.name(i) if i else "" for i in ids.tolist()]
    if isinstance(source, NgramSource):
        return subject.source
    return cast(Any, bundle.model).names


def _neighbours(bundle: Bundle, given: Any) -> View:
    """The training examples most alike: how much, what they have in common, and what their answer is."""
    model, source = cast(NeighbourModel, bundle.model), cast(NgramSource, bundle.codec.source)
    row = source.encode([source.load(given)])[0]
    reads = Padded.from_rows([torch.as_tensor(np.asarray(row))])
    encoder, tokenizer = model.encoder, bundle.codec.target_tokenizer
    with torch.inference_mode():
        cosine = encoder.cosines(reads)[0]
        best = cosine.topk(min(encoder.settings.count, len(cosine)))
        (ids, values), common = encoder.ngrams(reads), []
        ends = torch.cat([encoder.offsets[1:], encoder.offsets.new_tensor([len(encoder.ids)])])
        own = dict(zip(ids[0].tolist(), values[0].tolist(), strict=True))
        for place in best.indices.tolist():
            part = slice(int(encoder.offsets[place]), int(ends[place]))
            both = zip(encoder.ids[part].tolist(), encoder.values[part].tolist(), strict=True)
            shared = sorted(((own[i] * v, i) for i, v in both if i in own), reverse=True)
            words = [
                source.vocabulary.name(i) for _, i in shared if i < len(source.vocabulary.words)
            ]
            common.append(words[:5])
        context, _ = model.decoder.start(encoder(reads))
    written = [[i for i in row if i not in (SOS, EOS)] for row in context[0][0].tolist()]
    answers = [tokenizer.decode(ids) for ids in written]
    alike = best.values.double().numpy()
    rows = [
        [cut(answer, LONGEST), f"{value:.3f}", cut(", ".join(words), LONGEST)]
        for answer, value, words in zip(answers, alike.tolist(), common, strict=True)
    ]
    data = {"answers": answers, "cosines": alike, "shared": common}
    header = ["answer of a training example", "cosine", "words in common"]
    lines = [f"{value}  {answer}   ({words})" for answer, value, words in rows]
    drawn = table(header, rows, title="the nearest examples of the training part")
    return View("evidence", "the nearest training examples", data, [drawn, *lines])


def _forms(bundle: Bundle, given: Any, column: str | None) -> View:
    """The weight and the error of each form, and the level, the slope and the season of the heaviest one."""
    model, source = cast(SmoothingForecaster, bundle.model), series_of(bundle.codec)
    name = one_of("column", column or source.columns[0], source.columns)
    place = source.columns.index(name)
    weights, errors = (each[place].double().numpy() for each in (model.weights, model.errors))
    tried = [number for number, error in enumerate(errors.tolist()) if np.isfinite(error)]
    names, unit = list(NAMES), source.deviation[place]
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
    weighed = f"{name}: the weight of each form in the forecast"
    missed = "mean absolute error when it forecast the training part"
    drawn = [Bars(data["weights"], data["forms"], weighed)]
    drawn.append(Bars(data["errors"], data["forms"], missed))
    form = FORMS.get(names[heaviest])
    if form is not None and form.seasonal:
        some = last_window(bundle, given).rows_at([place])
        with torch.inference_mode():
            state = model.state(names[heaviest], some, model.rates[place, heaviest][None])
        count = some.require("source").values.shape[1]
        season = np.roll(state.season[0].numpy(), -(count % model.season))
        season = season if form.ratio else season * unit
        steps = [f"step {1 + k}" for k in range(len(season))]
        data["season"] = season
        title = f"the season of '{names[heaviest]}', from the next row on"
        drawn.append(Bars(season, steps, title))
    forecast(bundle, given)  # what cannot be forecast is refused with a reason
    parts = [part for figure in drawn for part in (figure.title, figure)]
    return View("evidence", f"{name}: which forms make the forecast", data, parts)
