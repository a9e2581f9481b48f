"""The codec that a task learns from examples, as training learns it from a file that holds these."""

from seqlab.codecs.codec import Codec, Examples
from seqlab.codecs.text import learn_codec
from seqlab.recipe import Recipe
from seqlab.tasks import task_of


def learn(recipe: Recipe, examples: Examples) -> Codec:
    task = task_of(recipe)
    return learn_codec(recipe, examples, None, task.reads(recipe), task.writes(recipe))
