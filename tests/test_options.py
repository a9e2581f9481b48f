"""Each option is declared once: flags, HTTP bodies, recipes and views share the declarations."""

import inspect
from typing import Annotated, get_type_hints

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from seqlab.cli.app import app
from seqlab.cli.command import with_flags
from seqlab.explain.views import SUBJECT_OPTIONS, VIEWS
from seqlab.options import DecodeOptions, ExplainOptions, Range
from seqlab.recipe import DecodeConfig
from seqlab.serve import schemas


@pytest.mark.parametrize(
    ("options", "verb", "body"),
    [
        (DecodeOptions, "predict", schemas.Decoding),
        (ExplainOptions, "explain", schemas.ViewOptions),
    ],
)
def test_each_option_is_a_flag_and_a_field_with_the_same_help(options, verb, body):
    flags = {flag.name: flag for flag in get_command(app).commands[verb].params}
    for name, hint in get_type_hints(options, include_extras=True).items():
        assert flags[name].help == body.model_fields[name].description == hint.__metadata__[-1]


def test_the_options_of_decoding_are_those_of_a_recipe():
    assert list(DecodeConfig.model_fields) == list(get_type_hints(DecodeOptions))


def test_each_option_of_the_views_is_used_by_a_view():
    taken = {name for view in VIEWS.values() for name in inspect.signature(view).parameters}
    assert set(get_type_hints(ExplainOptions)) <= taken | set(SUBJECT_OPTIONS)


class Toy:
    size: Annotated[int, Range(least=2), "how large"]
    names: Annotated[list[str], Range(), "what it is called"]


@pytest.mark.parametrize(("ranges", "code"), [(True, 2), (False, 0)])
def test_flags_are_made_of_declared_options(ranges, code):
    @with_flags(Toy, check_ranges=ranges)
    def show(word: str, **options: object) -> None:
        print(word, options)

    toy = typer.Typer()
    toy.command()(show)
    run = CliRunner().invoke
    assert (
        run(toy, ["a", "--size", "3", "--names", "x", "--names", "y"]).stdout
        == "a {'size': 3, 'names': ['x', 'y']}\n"
    )
    assert run(toy, ["a"]).stdout == "a {'size': None, 'names': None}\n"
    assert run(toy, ["a", "--size", "1"]).exit_code == code
