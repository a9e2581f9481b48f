"""Which parts of a recipe fit together: rules that several tasks share. Each raises a ValueError with a sentence."""

from seqlab.recipe import NUMBERS, Convolution, Glimpse, Hidden, Recipe, Stack

# the task of each baseline, and the kinds of source from which some of them make their features
BASELINES = {
    "linear": "classify",
    "crf": "tag",
    "neighbours": "translate",
    "ngrams": "lm",
    "smoothing": "forecast",
}
FEATURES = {"linear": ("ngrams", "vectors"), "crf": ("spellings",), "neighbours": ("ngrams",)}


def check_parts(recipe: Recipe, parts: tuple[str, ...]) -> None:
    """A recipe has exactly the parts that its task needs; one model in their place, and it has neither."""
    model = recipe.model
    instead = bool(model.without_layers)
    for part in ("encoder", "decoder"):
        needed = part in parts and not instead
        if (getattr(model, part) is not None) != needed:
            raise ValueError(
                f"a '{recipe.task}' model {'needs' if needed else 'has no'} [model.{part}]"
            )
    if model.attention and not (isinstance(model.decoder, Stack) and model.encoder):
        raise ValueError("[model.attention] is for a recurrent decoder with an encoder to look at")
    if isinstance(model.decoder, Stack) and model.decoder.bidirectional:
        raise ValueError(
            "a decoder cannot be bidirectional: it would read the words it has to predict"
        )


def check_settings(recipe: Recipe, takes: tuple[str, ...]) -> None:
    """Refuse the settings that only some tasks take, unless this one does."""
    if recipe.data.validation + recipe.data.test >= 1:
        raise ValueError(
            "data.validation and data.test leave nothing to train on: together they must stay below 1"
        )
    for name, (used, refusal) in special_settings(recipe).items():
        if used and name not in takes:
            raise ValueError(refusal)
    if recipe.source.kind in NUMBERS:
        raise ValueError(NUMBERS_ARE_FOR_TAGGERS)
    _check_features(recipe)
    if recipe.model.elmo and recipe.source.kind == "vectors":
        raise ValueError("[model.elmo] reads tokens, not vectors")
    if recipe.shared and recipe.source.kind == "vectors":
        raise ValueError(
            f"a '{recipe.task}' model reads tokens, not vectors, and shares no vocabulary with them"
        )
    _check_image(recipe)


def _check_features(recipe: Recipe) -> None:
    """A baseline reads what its features are made of, and nobody else reads features."""
    name, kind = recipe.model.without_layers, recipe.source.kind
    if name in FEATURES and kind not in FEATURES[name]:
        raise ValueError(
            f"[model.{name}] reads {' or '.join(map(repr, FEATURES[name]))}: source.kind is '{kind}'"
        )
    for side, used in (("source", kind), ("target", recipe.target.kind)):
        if used in ("ngrams", "spellings") and (
            side == "target" or used not in FEATURES.get(name, ())
        ):
            raise ValueError(
                f"{side}.kind = '{used}' is what a baseline reads, such as [model.linear] or [model.crf]"
            )


NUMBERS_ARE_FOR_TAGGERS = (
    "numbers and angles are targets of a tagger with layers: target.kind, in a 'tag' recipe"
)


def special_settings(recipe: Recipe) -> dict[str, tuple[bool, str]]:
    """The settings that only some tasks take: whether a recipe uses them, and what to say where it must not."""
    task, model, data = recipe.task, recipe.model, recipe.data
    words = bool(data.no_label or recipe.source.endings)
    return {
        "flat": (
            model.pooling == "flat",
            "model.pooling = 'flat' needs windows of one length: it is for forecasters",
        ),
        "lds": (
            model.lds is not None,
            f"[model.lds] forecasts a series: a '{task}' model has none",
        ),
        **{
            name: (
                getattr(model, name) is not None,
                f"[model.{name}] cannot '{task}': it is for '{whom}'",
            )
            for name, whom in BASELINES.items()
        },
        "hmm": (
            model.hmm is not None,
            f"[model.hmm] is a tagger or a language model: it cannot '{task}'",
        ),
        "numbers": (recipe.target.kind in NUMBERS, NUMBERS_ARE_FOR_TAGGERS),
        "letters": (
            model.characters is not None,
            "[model.characters] spells the words of a tagger: source.kind must be 'words'",
        ),
        "conformal": (
            recipe.decode.conformal is not None,
            "decode.conformal is for classifiers: sets of labels",
        ),
        "words": (words, "data.no_label and source.endings are for taggers"),
        "split": (
            data.too_long == "split",
            f"a '{task}' example cannot be split: data.too_long is cut, skip or refuse",
        ),
        "vectors": (
            recipe.source.kind == "vectors",
            f"a '{task}' model reads tokens, not vectors, and shares no vocabulary with them",
        ),
        "image": (
            recipe.image is not None,
            "[image] is for 'classify' and 'caption', with source.kind = 'vectors'",
        ),
    }


def _check_image(recipe: Recipe) -> None:
    image, encoder = recipe.image, recipe.model.encoder
    looks = isinstance(encoder, Convolution | Glimpse)
    kind = getattr(encoder, "kind", "")
    if image is None:
        if looks:
            raise ValueError(f"an encoder of kind '{kind}' looks at pictures: it needs [image]")
        return
    if recipe.source.kind != "vectors":
        raise ValueError("[image] is for 'classify' and 'caption', with source.kind = 'vectors'")
    if image.patch and looks:
        raise ValueError(
            f"an encoder of kind '{kind}' looks at the whole picture: leave out image.patch"
        )
    patches = image.height * image.width // image.patch**2 if image.patch else 0
    if max(image.height, patches) > recipe.data.max_source:
        raise ValueError(
            f"a picture has {max(image.height, patches)} positions, more than data.max_source"
        )


def check_hidden(recipe: Recipe, hmm: Hidden) -> None:
    """A hidden Markov model stands alone, and its states emit what the source holds."""
    model, vectors = recipe.model, recipe.source.kind == "vectors"
    beside = [
        n
        for n in ("encoder", "decoder", "characters", "elmo", "vectors")
        if getattr(model, n) is not None
    ]
    if beside:
        raise ValueError(
            f"a model is [model.hmm] or has layers: 'model.{beside[0]}' cannot stand beside it"
        )
    if vectors != (hmm.emissions != "categorical"):
        emit = "words" if hmm.emissions == "categorical" else "vectors"
        raise ValueError(
            f"'{hmm.emissions}' states emit {emit}: model.hmm.emissions does not fit source.kind"
        )
    if recipe.train.epochs is not None:
        raise ValueError(
            "[model.hmm] counts its training in train.steps: iterations of EM, each over all data"
        )
