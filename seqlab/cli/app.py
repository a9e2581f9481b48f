"""All commands, in the order of --help."""

from collections.abc import Callable
from importlib import import_module

import typer

from seqlab.cli import data
from seqlab.cli.command import reports_errors, seqlab
from seqlab.cli.demonstrate import demo
from seqlab.cli.ladder import compare
from seqlab.cli.look import check, doctor, explain
from seqlab.cli.models import export, import_model, info, kernels, recipes
from seqlab.cli.predict import predict
from seqlab.cli.serving import serve
from seqlab.cli.train import evaluate, train

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data.app, name="data")
app.callback()(seqlab)

# The claims are a package beside this one, which imports it and which it never imports: only its name stands here.
claims: Callable[..., None] = import_module("seqlab_claims.command").claims

# in the order in which one meets them, which is that of --help
VERBS: list[Callable[..., None]] = [
    train,
    predict,
    evaluate,
    explain,
    compare,
    doctor,
    check,
    serve,
    info,
]
VERBS += [export, recipes, import_model, demo, claims, kernels]
for verb in VERBS:
    app.command(verb.__name__.removesuffix("_model"))(reports_errors(verb))
