"""The list of all commands, in the order of `seqlab --help`."""

from collections.abc import Callable
from importlib import import_module

import typer

from seqlab.cli import data
from seqlab.cli.command import add_command, seqlab
from seqlab.cli.compare import compare
from seqlab.cli.demo import demo
from seqlab.cli.explain import check, doctor, explain
from seqlab.cli.models import export, import_model, info, kernels, recipes
from seqlab.cli.predict import predict
from seqlab.cli.serve import serve
from seqlab.cli.train import evaluate, train

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data.app, name="data")
app.callback()(seqlab)

# seqlab_claims imports seqlab and must not be imported by it, so the command is looked up by its name.
claims: Callable[..., None] = import_module("seqlab_claims.command").claims

# Commands that a new user needs first come first.
COMMANDS: dict[str, Callable[..., None]] = {
    "train": train,
    "predict": predict,
    "evaluate": evaluate,
    "explain": explain,
    "compare": compare,
    "doctor": doctor,
    "check": check,
    "serve": serve,
    "info": info,
    "export": export,
    "recipes": recipes,
    "import": import_model,
    "demo": demo,
    "claims": claims,
    "kernels": kernels,
}
for name, function in COMMANDS.items():
    add_command(app, name, function)
