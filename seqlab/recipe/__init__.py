"""The schema of a recipe: immutable, validated, read from TOML and written to it. Each default is defined only here.

recipe = load_recipe("char-lstm")                      # a name, or the path of a .toml file
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
