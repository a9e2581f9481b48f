"""`seqlab info`, `import`, `export`, `recipes` and `kernels`: models and recipes as files, and this installation."""

from pathlib import Path
from typing import Any

from typer import Argument, Option

from seqlab.cli.command import MODEL, Int8, Json, ModelPath, program
from seqlab.cli.output import print_facts, print_json, print_scores, print_table, print_text
from seqlab.errors import UsageError

EXTRAS = {
    "serve": "fastapi",
    "demo": "babel",
    "images": "PIL",
    "tensorboard": "tensorboard",
    "parquet": "pyarrow",
}


def info(
    model: Path | None = Argument(
        None, metavar="MODEL", help=MODEL, show_default="describe this installation"
    ),
    machine: bool = Option(
        False, "--machine", help="describe the speed of this machine, and how training uses it"
    ),
    json: Json = False,
) -> None:
    """Describe a model, or without one this installation.

    Examples:
      seqlab info
      seqlab info runs/pairs
      seqlab info --machine

    Next:
      seqlab predict runs/pairs "an input"
    """
    if machine:
        if model is not None:
            raise UsageError(
                "--machine is about this machine, not about a model", hint="leave one of them out."
            )
        facts = _machine()
    elif model is None:
        facts = _installation()
    else:
        import seqlab.lab as lab

        facts = lab.load(model).info()
    if json:
        print_json(facts)
        return
    metrics = facts.pop("metrics", {})
    for name, text in metrics.get("notes", {}).items():
        facts["made by" if name == "recipe" else name] = text
    print_facts(facts)
    if metrics:
        print_scores(
            metrics["validation"],
            title=f"held out, after {metrics['steps']:,} steps, {metrics['seconds']} s",
        )


def import_model(
    folder: Path = Argument(
        metavar="FOLDER",
        help="directory with config.json, model.safetensors and tokenizer.json or vocab.txt",
    ),
    out: Path = Option(..., "--out", "-o", help="directory to write the model to"),
    json: Json = False,
) -> None:
    """Convert a Hugging Face BERT or GPT-2 directory, offline.

    The result is a Seqlab model, to explain or to continue training from.

    Examples:
      seqlab import bert-tiny --out models/bert

    Next:
      seqlab train classify few.tsv --from models/bert
    """
    import seqlab.lab as lab

    facts = lab.import_model(folder, out).info()
    if json:
        print_json(facts)
    else:
        print_facts({name: value for name, value in facts.items() if value != {}})
        print_text(f"use it: {program()} predict {out} --embed")
        print_text(f"train on: {program()} train classify DATA --from {out}")


def export(
    model: ModelPath,
    out: Path = Option(..., "--out", "-o", help="directory to write to"),
    to: str | None = Option(
        None,
        metavar="FORMAT",
        help="format: ctranslate2, huggingface or onnx",
        show_default="a Seqlab model",
    ),
    int8: Int8 = False,
    json: Json = False,
) -> None:
    """Copy a model without its run, or convert it for other programs.

    Examples:
      seqlab export runs/pairs --out models/pairs --int8
      seqlab export runs/pairs --out pairs-ct2 --to ctranslate2

    Next:
      seqlab predict models/pairs "an input"
    """
    import seqlab.lab as lab

    if to is not None:
        from seqlab.export import export as write

        write(lab.load(model, int8=int8), to, out)
        facts: dict[str, Any] = {"format": to, "path": str(out)}
        text = f"{to}: {out}"
    else:
        facts = lab.export(model, out, int8=int8).info()
        text = f"model: {out}, {facts['bytes'] / 1e6:.1f} MB\nuse it: {program()} predict {out}"
    if json:
        print_json(facts)
    else:
        print_text(text)


def recipes(
    name: str | None = Argument(
        None, metavar="NAME", help="print this recipe as TOML", show_default="list all recipes"
    ),
    json: Json = False,
) -> None:
    """List the recipes, or print one as TOML, to save and change.

    Examples:
      seqlab recipes
      seqlab recipes char-lstm > mine.toml

    Next:
      seqlab train lm book.txt --recipe mine.toml
    """
    from seqlab.recipe import load_recipe, to_toml
    from seqlab.recipes import default_recipes, recipe_names

    if name is not None:
        recipe = load_recipe(name)
        if json:
            print_json(recipe.model_dump())
        else:
            print(to_toml(recipe), end="")
        return
    all_recipes = sorted(
        (load_recipe(each) for each in recipe_names()),
        key=lambda recipe: (recipe.task, recipe.name),
    )
    if json:
        print_json([{"name": r.name, "task": r.task, "about": r.about} for r in all_recipes])
        return
    defaults = set(default_recipes().values())
    rows = [
        [r.task, r.name + (" (default)" if r.name in defaults else ""), r.about]
        for r in all_recipes
    ]
    print_table(["task", "recipe", "what it is"], rows)


def kernels(
    action: str | None = Argument(
        None,
        metavar="ACTION",
        help="build: compile the kernels",
        show_default="print whether they are in use",
    ),
    json: Json = False,
) -> None:
    """Compile the native kernels, or print whether they are in use.

    They make recurrent layers and decoding faster. The first training or prediction compiles them in the background
    if there is a C++ compiler; without them torch computes the same. SEQLAB_NATIVE=0 turns them off.

    Examples:
      seqlab kernels
      seqlab kernels build

    Next:
      seqlab info
    """
    if action not in (None, "build"):
        raise UsageError(
            f"there is no action '{action}'", hint="`seqlab kernels build` compiles the kernels."
        )

    from seqlab.kernels import library, native
    from seqlab.kernels.build import build

    if action == "build":
        build()
    if json:
        print_json(
            {"ready": native.ready(), "state": native.describe(), "library": str(library.path())}
        )
    else:
        print_text(f"native kernels: {native.describe()}")


def _installation() -> dict[str, Any]:
    """Return the versions and the optional parts of this installation."""
    import platform
    from importlib.util import find_spec

    import torch

    import seqlab
    from seqlab.bundle import shipped
    from seqlab.kernels import native

    installed = [name for name, package in EXTRAS.items() if find_spec(package)]
    return {
        "seqlab": seqlab.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "native kernels": native.describe(),
        "extras": ", ".join(installed) or "none",
        "shipped models": ", ".join(shipped()) or "none",
    }


def _machine() -> dict[str, Any]:
    """Return the speeds measured at the first training, and the choices that follow from them."""
    import torch

    from seqlab.kernels import calibration

    speeds = calibration.speeds()
    names = {
        "torch": "float32 through torch",
        "onednn": "float32 through oneDNN",
        "bfloat16": "bfloat16",
    }
    measured = {
        f"products, {name}": f"{getattr(speeds, way) / 1e9:,.0f} GFLOP/s"
        for way, name in names.items()
        if getattr(speeds, way)
    }
    choices = {
        f"train.precision={precision}": names[calibration.choose(precision)]
        for precision in calibration.PRECISIONS
    }
    return {
        "threads": torch.get_num_threads(),
        **measured,
        "memory, copied": f"{speeds.copy / 1e9:,.0f} GB/s",
        **choices,
    }
