"""The view `positions`: its cosines follow the equation."""

import torch

from seqlab.equations.attention import cosine
from seqlab.explain.model_views import positions_view

from .conftest import TRANSFORMER


def test_positions_are_compared_by_cosine(bundle_of):
    """E2."""
    data = positions_view(bundle_of("translate", TRANSFORMER)).data
    for name, table in data["tables"].items():
        torch.testing.assert_close(data["cosine"][name], cosine(table[:, None], table[None]))
