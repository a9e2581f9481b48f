"""`seqlab info`, `import`, `export` and `recipes`: models as files; and `seqlab kernels`, which are optional."""

from pathlib import Path
from typing import Any

from typer import Argument, Option

from seqlab.cli.command import (
    MODEL,
    Int8,
    Json,
    ModelPath,
    print_facts,
    print_json,
    print_scores,
    print_table,
    print_text,
    program,
)
from seqlab.errors import UsageError


def info(
    model: Path | None = Argument(None, help=f"{MODEL}; none: this installation"),
    machine: bool = Option(
        False, "--machine", help="how fast this machine is, and how training multiplies on it"
    ),
    json: Json = False,
) -> None:
    """What a model is, or what this installation is and has."""
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
    facts |= {
        "made by" if name == "recipe" else name: text
        for name, text in metrics.get("notes", {}).items()
    }
    print_facts(facts)
    if metrics:
        print_scores(
            metrics["validation"],
            title=f"held out, after {metrics['steps']:,} steps, {metrics['seconds']} s",
        )


def import_model(
    folder: Path = Argument(help="directory with config.json, model.safetensors and a tokenizer"),
    out: Path = Option(..., "--out", "-o", help="directory for the model"),
    json: Json = False,
) -> None:
    """Read a Hugging Face BERT or GPT-2 directory, offline.

    It becomes a model of Seqlab's, to look into and to begin with: seqlab train classify few.tsv --from MODEL
    """
    import seqlab.lab as lab

    facts = lab.import_model(folder, out).info()
    if json:
        print_json(facts)
    else:
        print_facts({name: value for name, value in facts.items() if value != {}})
        print_text(
            f"use it: {program()} predict {out} --embed\ntrain on: {program()} train classify DATA --from {out}"
        )


def export(
    model: ModelPath,
    out: Path = Option(..., "--out", "-o", help="directory for the model"),
    to: str | None = Option(None, help="for another program: ctranslate2, huggingface or onnx"),
    int8: Int8 = False,
    json: Json = False,
) -> None:
    """Hand a model on: smaller, or for another program.

    Its training run stays behind. --int8 stores each weight in a byte; --to writes other programs' files.
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
    name: str | None = Argument(None, help="a recipe to show in full"),
    json: Json = False,
) -> None:
    """List the recipes; with a name, show that one as TOML to change.

    seqlab recipes char-lstm > mine.toml

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
    verb: str | None = Argument(None, help="build: compile them; none: whether they are in use"),
    json: Json = False,
) -> None:
    """Compile the native kernels, or see whether they are in use.

    They make recurrent layers and decoding faster. The first training or prediction compiles them in the background
    where there is a C++ compiler; all works without them, through torch. SEQLAB_NATIVE=0 refuses them.
    """
    if verb not in (None, "build"):
        raise UsageError(f"kernels cannot '{verb}'", hint="`seqlab kernels build` compiles them.")

    from seqlab.kernels import library, native
    from seqlab.kernels.build import build

    if verb == "build":
        build()
    if json:
        print_json(
            {"ready": native.ready(), "state": native.describe(), "library": str(library.path())}
        )
    else:
        print_text(f"native kernels: {native.describe()}")


def _installation() -> dict[str, Any]:
    import platform
    from importlib.util import find_spec

    import torch

    import seqlab
    from seqlab.bundle import shipped
    from seqlab.kernels import native

    extras = {"serve": "fastapi", "demo": "babel", "images": "PIL", "tensorboard": "tensorboard"}
    extras |= {"parquet": "pyarrow"}
    return {
        "seqlab": seqlab.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "native kernels": native.describe(),
        "extras": ", ".join(name for name, package in extras.items() if find_spec(package))
        or "none",
        "shipped models": ", ".join(shipped()) or "none",
    }


def _machine() -> dict[str, Any]:
    """The speeds that are measured at the first training, and the choice that follows from them."""
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
