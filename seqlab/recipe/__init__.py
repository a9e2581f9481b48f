"""The schema of a recipe: frozen, validated, TOML in and out. Each default is written here and nowhere else.

recipe = load_recipe("char-lstm")                      # by name, or a path to a .toml file
recipe = override(recipe, ["train.steps=500"])         # what `--set` does
"""

from seqlab.recipe.model import (
    AttentionConfig,
    Cell,
    Connection,
    ConvolutionConfig,
    CRFConfig,
    FeaturesConfig,
    GlimpseConfig,
    HMMConfig,
    LDSConfig,
    LinearConfig,
    ModelConfig,
    NeighboursConfig,
    NgramsConfig,
    SmoothingConfig,
    StackConfig,
    TransformerConfig,
)
from seqlab.recipe.recipe import (
    Recipe,
    TrainConfig,
    build_recipe,
    is_named,
    load_recipe,
    override,
    parse_recipe,
    to_toml,
    value_of,
)
from seqlab.recipe.sections import (
    NUMBERS,
    DataConfig,
    DecodeConfig,
    ForecastConfig,
    ImageConfig,
    TextConfig,
)
from seqlab.recipes import recipe_names
