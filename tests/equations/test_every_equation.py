"""For each equation of the lectures, E1 to E68: which module of the package calls it, or which test holds what runs
in its place equal to it. What the tables say is checked in the source."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALL = {f"E{number}" for number in range(1, 69)}
IDS = re.compile(r"^E\d+(?:, E\d+)*")

# The module calls these equations, or calls equations that are built on them.
USED = {
    "seqlab.decode.beam": "E61",
    "seqlab.decode.generate": "E4 E57 E59",
    "seqlab.explain.gradients": "E36",
    "seqlab.explain.model_views": "E63",
    "seqlab.kernels.forward_backward": "E7 E8 E9",
    "seqlab.kernels.kalman": "E12 E13 E15",
    "seqlab.kernels.search": "E60",
    "seqlab.layers.inputs": "E54 E55",
    "seqlab.layers.pooling": "E3 E22 E49",
    "seqlab.layers.recurrence": "E17 E24 E25",
    "seqlab.layers.stack": "E21 E23 E26 E27 E28",
    "seqlab.layers.transformer": "E3 E38 E39 E44 E47 E48 E51",
    "seqlab.models.recurrent": "E3 E38 E39 E41 E43 E44",
    "seqlab.models.elmo": "E66",
    "seqlab.models.emissions": "E11",
    "seqlab.models.hmm": "E5 E6 E10",
    "seqlab.models.masked": "E65",
    "seqlab.models.outputs": "E67",
    "seqlab.models.image_encoders": "E64",
    "seqlab.models.transformer": "E56",
    "seqlab.training.kalman_em": "E16",
    "seqlab.training.loss": "E4",
}

# The test compares the module with these equations.
ORACLES = {
    ("tests/decode/test_generate.py", "seqlab.decode.generate"): "E58",
    ("tests/explain/test_model_views.py", "seqlab.explain.model_views"): "E1 E2",
    ("tests/layers/test_head.py", "seqlab.layers.linear"): "E4",
    ("tests/kernels/test_forward_backward.py", "seqlab.kernels.forward_backward"): "E7 E8 E9",
    ("tests/kernels/test_kalman.py", "seqlab.kernels.kalman"): "E12 E13 E14 E15 E68",
    ("tests/kernels/test_recurrent.py", "seqlab.kernels.recurrent"): "E17 E24 E25 E31 E32 E33 E34",
    (
        "tests/layers/test_transformer.py",
        "seqlab.layers.transformer",
    ): "E1 E42 E45 E46 E47 E50 E52 E53",
    ("tests/layers/test_pooling.py", "seqlab.layers.pooling"): "E38 E39",
    ("tests/layers/test_stack.py", "seqlab.layers.stack"): "E20",
    ("tests/models/test_attentive.py", "seqlab.models.recurrent"): "E40",
    ("tests/models/test_models.py", "seqlab.models.recurrent"): "E19",
    ("tests/models/test_models.py", "seqlab.layers.linear"): "E18",
    ("tests/text/test_tokenizer_bpe.py", "seqlab.text.bpe"): "E62 E63",
    ("tests/training/test_loss.py", "seqlab.training.loss"): "E29 E30 E35",
    ("tests/training/test_optimise.py", "seqlab.training.weights"): "E37",
}


@cache
def tree(path):
    return ast.parse((ROOT / path).read_text("utf-8"))


def source_of(module):
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def called(path):
    """The functions of seqlab/equations that a file's code names, as "hmm.forward"; imports alone do not count."""
    functions, modules = {}, {}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("seqlab.equations"):
            for name in node.names:
                known = name.asname or name.name
                if node.module == "seqlab.equations":
                    modules[known] = name.name
                else:
                    functions[known] = f"{node.module.rpartition('.')[2]}.{name.name}"
    return {
        functions[node.id]
        if isinstance(node, ast.Name)
        else f"{modules[node.value.id]}.{node.attr}"
        for node in ast.walk(tree(path))
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in functions)
        or (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in modules
        )
    }


def imported(path):
    """The modules that a file imports, or imports something of."""
    nodes = list(ast.walk(tree(path)))
    whole = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    parts = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return (
        whole
        | {node.module for node in parts}
        | {f"{node.module}.{n.name}" for node in parts for n in node.names}
    )


@cache
def equations():
    """Each function of seqlab/equations: the ids that its docstring begins with, and the equations that it calls."""
    found = {}
    for path in sorted((ROOT / "seqlab" / "equations").glob("*.py")):
        own = [node for node in tree(path).body if isinstance(node, ast.FunctionDef)]
        names, elsewhere = {function.name for function in own}, called(path)
        for function in own:
            ids = IDS.match(ast.get_docstring(function) or "")
            words = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)} - {
                function.name
            }
            calls = {f"{path.stem}.{name}" for name in words & names}
            calls |= {name for name in elsewhere if name.partition(".")[2] in words}
            found[f"{path.stem}.{function.name}"] = (
                set(ids[0].split(", ")) if ids else set(),
                calls,
            )
    return found


def reached(path):
    """The equations that a file calls, and all that those are built on."""
    found, waiting = set(), called(path) & equations().keys()
    while waiting:
        found |= waiting
        waiting = set().union(*(equations()[name][1] for name in waiting)) - found
    return found


def ids_of(functions):
    return set().union(*(equations()[name][0] for name in functions))


def test_every_equation_has_a_function():
    assert set().union(*(ids for ids, _ in equations().values())) == ALL


def test_every_equation_is_used_or_is_an_oracle():
    listed = {each for ids in (*USED.values(), *ORACLES.values()) for each in ids.split()}
    assert sorted(ALL - listed) == []
    assert listed <= ALL


def test_every_function_of_an_equation_is_used_or_is_an_oracle():
    """Where several functions share an id, none of them is there for its own test alone."""
    files = [source_of(module) for module in USED] + [test for test, _ in ORACLES]
    alive = set().union(*map(reached, files))
    assert sorted(name for name, (ids, _) in equations().items() if ids and name not in alive) == []


@pytest.mark.parametrize("module", USED)
def test_a_module_calls_the_equations_that_it_is_said_to_call(module):
    assert not module.startswith(
        ("seqlab.equations", "seqlab_claims")
    )  # neither is what a user's model runs on
    assert set(USED[module].split()) <= ids_of(reached(source_of(module)))


@pytest.mark.parametrize(("test", "module"), ORACLES)
def test_a_test_compares_the_module_with_the_equations(test, module):
    assert source_of(module).exists()
    assert module in imported(test)
    assert set(ORACLES[test, module].split()) <= ids_of(reached(test))
