"""Properties of every task; code outside of tasks/ never compares the name of a task."""

import ast
from pathlib import Path

import pytest

import seqlab
from seqlab.errors import RecipeError, UsageError
from seqlab.explain.views import VIEWS
from seqlab.recipe import load_recipe, override
from seqlab.recipes import default_recipes, recipe_names
from seqlab.tasks import TASKS, check_recipe, task_named, task_of
from seqlab.tasks.task import ANSWER_VIEWS, Task

PACKAGE = Path(seqlab.__file__).parent
NAMES = {task.name for task in TASKS}
LONGEST_FILE = 300  # lines


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
class TestEachTask:
    def test_implements_the_interface_of_a_task(self, task):
        assert isinstance(task, Task)
        assert task.judged_by

    def test_has_a_default_recipe_and_recipes_from_simple_to_strong(self, task):
        assert load_recipe(default_recipes()[task.name]).task == task.name
        named = [*task.ladder, *filter(None, (task.fine_tuning_recipe, task.recurrent_recipe))]
        assert {load_recipe(name).task for name in named} == {task.name}

    def test_has_a_unique_name(self, task):
        assert [other for other in TASKS if other.name == task.name] == [task]
        assert task_named(task.name) is task

    def test_refuses_settings_of_other_tasks(self, task):
        recipe = load_recipe(default_recipes()[task.name])
        with pytest.raises(RecipeError, match=f"recipe '{recipe.name}'"):
            check_recipe(override(recipe, ["data.validation=0.6", "data.test=0.6"]))

    def test_names_views_that_exist(self, task):
        """Whatever the model: the strings in what its `views` returns are names of views."""
        tree = ast.parse((PACKAGE / "tasks" / f"{task.name}.py").read_text("utf-8"))
        views = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.keyword) and node.arg == "views"
        ]
        returned = [part for value in views for part in ast.walk(value)]
        assert {part.value for part in returned if isinstance(part, ast.Constant)} <= {*VIEWS}
        assert {*ANSWER_VIEWS} <= {*VIEWS}


def test_every_recipe_suits_its_task():
    for name in recipe_names():
        assert task_of(check_recipe(load_recipe(name))).name in NAMES


def test_an_unknown_task_gets_the_nearest_name():
    with pytest.raises(UsageError, match="no task 'translat'") as refused:
        task_named("translat")
    assert "translate" in refused.value.hint
    with pytest.raises(RecipeError, match="recipe 'char-lstm': there is no task 'tagg'"):
        check_recipe(override(load_recipe("char-lstm"), ["task=tagg"]))


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_no_other_code_compares_the_name_of_a_task(path):
    if path.parent.name == "tasks":
        return
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        words = {
            part.value
            for part in ast.walk(node)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        }
        if isinstance(node, ast.Compare | ast.match_case) and "task" in ast.unparse(node):
            assert not words & NAMES, f"{path}:{node.lineno}"
        if isinstance(node, ast.Dict):
            keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
            assert len(keys & NAMES) < 2, f"{path}:{node.lineno}"


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "tasks").glob("*.py")), ids=lambda path: path.name
)
def test_no_file_of_a_task_is_long(path):
    assert len(path.read_text("utf-8").splitlines()) <= LONGEST_FILE
