"""A training in its folder: begun, gone on with, fitted, and written down as a model."""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from torch import nn

from seqlab.assemble.corpus import (
    Corpus,
    ExampleBatches,
    held_out,
    is_stream,
    open_corpus,
    prepare,
)
from seqlab.assemble.hidden import hidden_learner, probabilities_of
from seqlab.assemble.model import build_model
from seqlab.assemble.start import carry_over, place_vectors, take_over, vectors_of
from seqlab.assemble.vocabularies import Vocabularies
from seqlab.bundle import Bundle, is_bundle, read_vocabularies, save_bundle
from seqlab.captions import references
from seqlab.data.lines import STDIN, spool
from seqlab.data.sources import Example, Picture
from seqlab.data.store import TokenStore
from seqlab.data.windows import Windows
from seqlab.errors import DataError, RecipeError, RunError, UsageError
from seqlab.evaluate import evaluate_examples, evaluate_stream, evaluate_windows
from seqlab.forecasting import calibrate
from seqlab.layers.norms import BatchNorm
from seqlab.model import RUN, STORES, Model
from seqlab.models.forecaster import LDSForecaster
from seqlab.models.interface import Model as Trainable
from seqlab.predict import predict
from seqlab.recipe import Recipe, Task, override, parse_recipe, to_toml
from seqlab.rolling import held_out_windows
from seqlab.training.average import load_weights, parameters_of
from seqlab.training.checkpoint import Progress, read_checkpoint, write_checkpoint, write_whole
from seqlab.training.gradient import GradientLearner
from seqlab.training.lds_em import LDSLearner
from seqlab.training.log import Reporter
from seqlab.training.memory import peak_memory
from seqlab.training.objective import mean_loss
from seqlab.training.run import KEPT, Learner, Run
from seqlab.training.world import World

DECODED_WHILE_TRAINING = 100  # held-out examples that each validation translates
EVALUATED_AT_THE_END = 1000
STEPS_OF_A_CLIMB = 10_000  # of a series, its last ones: a few noises ask for no more, and each iteration reads them all
START = "start.safetensors"
SPOOLED = "stdin.txt"  # standard input, copied so that it can be read again


@dataclass(frozen=True)
class Trained:
    """How a training ended: the model, and whether it was stopped before its end.

    Of many processes, only the one that leads has scored the model and written it down.
    """

    model: Model
    stopped: bool
    step: int
    leads: bool = True


def begin(
    folder: Path,
    recipe: Recipe,
    settings: Sequence[str],
    old: Bundle | None,
    files: list[str],
    valid: list[str],
    *,
    overwrite: bool,
) -> tuple[Recipe, Corpus]:
    """Prepare the data beside the directory and move it there when it is whole: bad input leaves nothing behind."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder}: this is a file", hint="give a directory with --out.")
    if folder.exists() and any(folder.iterdir()):
        if not ((folder / RUN).is_dir() or is_bundle(folder)):
            raise RunError(f"{folder}: this directory holds other files", hint="give another one with --out.")
        if not overwrite:
            raise RunError(
                f"{folder}: this directory already holds a run",
                hint="--resume goes on with it, --overwrite throws it away, --out takes another. It was not touched.",
            )
    if [*files, *valid].count(STDIN) > 1:
        raise UsageError("standard input can be read only once", hint="put one of the two into a file.")
    if old is None and recipe.model.elmo is not None:
        raise RecipeError("[model.elmo] is a model that was trained before", hint="give it with --from.")
    recipe, given = (recipe, None) if old is None else _started(recipe, settings, old)
    target = folder.resolve()
    part = target.with_name(f".{target.name}.part")
    missing = [parent for parent in part.parents if not parent.exists()]
    shutil.rmtree(part, ignore_errors=True)
    stores = part / RUN / STORES
    stores.mkdir(parents=True)
    try:
        again, again_valid = ([spool(path, str(part / RUN)) for path in paths] for paths in (files, valid))
        vocabularies = prepare(recipe, again, again_valid, stores, given)
        corpus = open_corpus(recipe, vocabularies, stores)  # so that a text too short fails here
        recipe = _first_weights(recipe, vocabularies, old, part / RUN / START)
        (part / RUN / "recipe.toml").write_text(to_toml(recipe), "utf-8")
        (part / RUN / "tokenizer.json").write_text(json.dumps(vocabularies.to_json(), ensure_ascii=False), "utf-8")
        _make_empty(target)
        (part / RUN).replace(target / RUN)
    except DataError as error:
        spooled = str(part / RUN / SPOOLED)
        raise DataError(str(error).replace(spooled, "stdin"), hint=error.hint.replace(spooled, "stdin")) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        for parent in missing:
            with suppress(OSError):  # it holds the run
                parent.rmdir()
    del corpus
    return recipe, open_corpus(recipe, vocabularies, folder / RUN / STORES)


def existing_run(out: str | Path | None) -> Path:
    if out is None:
        raise UsageError("--resume needs to know which run", hint="give its directory with --out.")
    if not is_run(Path(out)):
        raise RunError(f"{out}: there is no run here to resume", hint="train without --resume.")
    return Path(out)


def is_run(folder: Path) -> bool:
    return (folder / RUN / "recipe.toml").is_file()


def reopen(
    folder: Path, task: Task | None, recipe: str | Recipe | None, settings: Sequence[str]
) -> tuple[Recipe, Corpus]:
    where = folder / RUN / "recipe.toml"
    stored = parse_recipe(where.read_text("utf-8"), where=str(where))
    name = recipe.name if isinstance(recipe, Recipe) else recipe
    if (task or stored.task) != stored.task or (name or stored.name) not in (stored.name, str(where)):
        raise RunError(
            f"{folder}: this run is of recipe '{stored.name}' for '{stored.task}'",
            hint="resume it without naming another, or train into another directory with --out.",
        )
    tokenizers = folder / RUN / "tokenizer.json"
    vocabularies = read_vocabularies(tokenizers.read_bytes(), tokenizers)
    chosen = override(stored, settings)
    if chosen.model_copy(update={"train": stored.train, "decode": stored.decode}) != stored:
        raise RunError(
            f"{folder}: a run cannot change its model or data halfway",
            hint="only --set train.* and decode.* can change.",
        )
    return chosen, open_corpus(chosen, vocabularies, folder / RUN / STORES)


def fit(
    folder: Path,
    recipe: Recipe,
    corpus: Corpus,
    *,
    resume: bool,
    report: Reporter,
    stop: Callable[[], bool],
    world: World,
) -> Trained:
    model = build_model(recipe, corpus.vocabularies)
    if (folder / RUN / START).exists():
        load_weights(model, read_checkpoint(folder / RUN / START)[1]["model"])
    bundle = Bundle(recipe, corpus.vocabularies, model, {})
    stores = folder / RUN / STORES
    undecoded = is_stream(recipe) or recipe.task == "forecast"
    examples = [] if undecoded else _some(list(held_out(stores)), EVALUATED_AT_THE_END)

    def validate() -> dict[str, float]:
        scores = mean_loss(cast(Trainable, model), corpus.validation(), carries=corpus.carries)
        if recipe.task in ("translate", "caption"):
            scores["exact"] = _decoded_exactly(bundle, _some(examples, DECODED_WHILE_TRAINING))
        return scores

    def run_of(recipe: Recipe) -> Run:
        learner = _learner(recipe, model, corpus, world)
        return Run(learner, recipe.train, validate=validate, folder=folder / RUN, report=report, world=world)

    if recipe.train.minutes is not None:  # whoever resumes the run goes by the steps
        steps = run_of(override(recipe, ["train.steps=1"])).times_in(60 * recipe.train.minutes)
        recipe = override(recipe, [f"train.steps={steps}"])
        if world.leads:
            write_whole(folder / RUN / "recipe.toml", to_toml(recipe).encode())
    run = run_of(recipe)
    if resume:
        run.resume(to_toml(recipe), _written_step(folder))
    outcome = run.fit(stop=stop)
    if not world.leads:
        return Trained(Model(bundle, folder), outcome.stopped, outcome.progress.step, leads=False)
    if is_stream(recipe):
        final = evaluate_stream(bundle, np.asarray(TokenStore.open(stores / "validation_stream").flat), stores)
    elif recipe.task == "forecast":
        held_out_part = held_out_windows(bundle, stores, "validation")
        calibrate(bundle, held_out_part)
        final = evaluate_windows(bundle, held_out_part, stores, most=EVALUATED_AT_THE_END)
    else:
        final = evaluate_examples(bundle, examples, stores)
    metrics = {
        "steps": outcome.progress.step,
        "best_step": outcome.progress.best_step,
        "seconds": round(outcome.progress.seconds, 1),
        "peak_memory": peak_memory(),
        "data": corpus.size,
        "python": sys.version.split()[0],
        "validation": final.to_json(),
    }
    if facts := run.learner.facts():
        metrics["fit"] = facts
    finished = Bundle(recipe, corpus.vocabularies, model, metrics)
    save_bundle(finished, folder)
    return Trained(Model(finished, folder), outcome.stopped, outcome.progress.step)


def checkpoints(folder: str | Path) -> dict[str, Path]:
    """What a run has kept of itself so far, by names for `load_checkpoint`: steps (`train.keep`), `best` and `last`."""
    run = Path(folder) / RUN
    files = [file for file in (*run.glob("*.safetensors"), *(run / KEPT).glob("*.safetensors")) if file.name != START]
    return {file.stem: file for file in sorted(files, key=lambda file: file.stem)}


def load_checkpoint(folder: str | Path, name: str) -> Model:
    """The model as a run of it stood: at its `best` so far, at the `last` step saved, or at one that was kept."""
    files = checkpoints(folder)
    if name not in files:
        kept = ", ".join(files) or "none yet"
        raise RunError(f"{folder}: there is no checkpoint '{name}'", hint=f"there are: {kept}.")
    run = Path(folder) / RUN
    recipe = parse_recipe((run / "recipe.toml").read_text("utf-8"), where=str(run / "recipe.toml"))
    vocabularies = read_vocabularies((run / "tokenizer.json").read_bytes(), run / "tokenizer.json")
    model = build_model(recipe, vocabularies)
    weights = read_checkpoint(files[name])[1]["model"]
    load_weights(model if recipe.model.hmm is None else probabilities_of(model), weights)
    return Model(Bundle(recipe, vocabularies, model, {}), Path(folder))


def _started(recipe: Recipe, settings: Sequence[str], old: Bundle) -> tuple[Recipe, Vocabularies]:
    """The recipe as it can begin with an old model's weights; what the user asks for must be possible with them."""
    taken, given = take_over(recipe, old.recipe, old.vocabularies)
    asked = override(taken, settings)
    fixed = {"source", "target", "shared"}
    if asked.model_dump(include=fixed) != taken.model_dump(include=fixed):
        raise RecipeError(
            f"the model to start from was trained with its own tokenizer ('{taken.source.kind}'), which cannot change",
            hint="leave out --set source.*, or train without --from.",
        )
    return asked, given


def _first_weights(recipe: Recipe, vocabularies: Vocabularies, old: Bundle | None, path: Path) -> Recipe:
    """Store the weights that the run begins with, where these come from elsewhere; the recipe may follow their size."""
    if old is None and recipe.model.vectors is None:
        return recipe
    table = None
    if recipe.model.vectors is not None:
        table = vectors_of(recipe.model.vectors, vocabularies)
        recipe = override(recipe, [f"model.embedding={table.shape[1]}"])
    model = build_model(recipe, vocabularies)
    if table is not None:
        place_vectors(model, table)
    if old is not None:
        same = old.recipe.task == recipe.task and old.vocabularies.labels == vocabularies.labels
        carry_over(model, {n: w for n, w in old.model.named_parameters() if same or not n.startswith("head.")})
    write_checkpoint(path, Progress(), {"model": parameters_of(model)})
    return recipe


def _make_empty(folder: Path) -> None:
    """A directory with nothing in it; one that is there stays, for it may be a link, or where somebody stands."""
    folder.mkdir(exist_ok=True)
    for inside in folder.iterdir():
        if inside.is_dir() and not inside.is_symlink():
            shutil.rmtree(inside)
        else:
            inside.unlink()


def _written_step(folder: Path) -> int | None:
    """The step of the model that lies there, if one does."""
    if not is_bundle(folder):
        return None
    try:
        return int(json.loads((folder / "metrics.json").read_bytes())["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _learner(recipe: Recipe, model: nn.Module, corpus: Corpus, world: World) -> Learner:
    """How a model of this recipe learns: by counting or EM where its states are hidden, else by gradients."""
    settings = recipe.train
    if world.size > 1 and (recipe.model.hmm or recipe.model.lds):
        raise UsageError(f"recipe '{recipe.name}' is fitted by one process", hint="train it without torchrun.")
    if world.size > 1 and any(isinstance(module, BatchNorm) for module in model.modules()):
        raise UsageError(
            "a batch norm looks at the whole batch",
            hint="train with normalise=layer and without model.pooling_norm, or without torchrun.",
        )
    if recipe.model.hmm is not None:
        return hidden_learner(recipe, corpus, model)
    if recipe.model.lds is not None:
        series = cast(Windows, cast(ExampleBatches, corpus.train).rows).whole(most=STEPS_OF_A_CLIMB)
        return LDSLearner(cast(LDSForecaster, model), series, settings, free=recipe.model.lds.states > 0)
    return GradientLearner(model, corpus.train, settings, world)


def _some(examples: list[Example], most: int) -> list[Example]:
    """So many from end to end, for a file may be sorted; of pictures the first, whose captions stand together."""
    if len(examples) <= most or isinstance(examples[0].source, Picture):
        return examples[:most]
    return [examples[place * len(examples) // most] for place in range(most)]


def _decoded_exactly(bundle: Bundle, examples: list[Example]) -> float:
    quick = bundle.recipe.decode.model_copy(update={"method": "greedy"})
    answers = predict(bundle, [e.source for e in examples], decode=quick)
    known = references(bundle, examples)
    return sum(a.output in said for a, said in zip(answers, known, strict=True)) / len(examples)
