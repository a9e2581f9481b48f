"""Export of a classifier, tagger or masked model as one ONNX graph, from ids (or frames) to logits.

session = onnxruntime.InferenceSession("DIR/model.onnx")
session.run(None, {"source": ids})       # 1 by length; the ids are those of tokenizer.json, which is Seqlab's own

The graph takes one row of any length, so that nothing is padded.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from seqlab.bundle import Bundle
from seqlab.errors import UsageError
from seqlab.export.stacks import refuse
from seqlab.layers.inputs import TokenInputs, VectorInputs
from seqlab.layers.recurrence import CELLS
from seqlab.padded import Measured, Padded

TO = "ONNX"
OPSET = 17


def write(bundle: Bundle, folder: Path) -> None:
    """Write model.onnx, and tokenizer.json with the tokenizer and the labels."""
    try:
        import onnx  # noqa: F401  (torch's exporter needs it)
    except ImportError:
        raise UsageError(
            "the package onnx is not installed", hint="pip install onnx onnxruntime"
        ) from None
    recipe = bundle.recipe
    inputs = getattr(getattr(bundle.model, "encoder", None), "inputs", None)
    kind = getattr(recipe.model.encoder, "kind", None)
    if (
        recipe.model.decoder is not None
        or recipe.model.hmm is not None
        or not hasattr(bundle.model, "features")
    ):
        raise refuse(TO, f"a '{recipe.task}' model does more than one pass, or is no network")
    loops = kind == "universal" or (kind in CELLS and CELLS[kind].fused is None)
    if loops or not isinstance(inputs, TokenInputs | VectorInputs):
        raise refuse(
            TO, f"a '{kind}' encoder with these inputs is a loop, whose length a graph would fix"
        )
    if bundle.int8:
        raise refuse(TO, "its matrices are int8")
    entry = bundle.codec.source.entry
    source = torch.zeros(1, 3, dtype=torch.long)
    if isinstance(entry, Measured):
        source = torch.zeros(1, 3, len(entry.mean))
    graph = _Forward(bundle.model)
    folder.mkdir(parents=True)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter(
            "ignore"
        )  # about constants of the traced graph, which the tests cover
        # builds the position table for the longest source
        graph(source[:, :1].repeat_interleave(recipe.data.max_source, 1))
        torch.onnx.register_custom_op_symbolic("aten::mT", _transposed, OPSET)
        torch.onnx.export(
            graph,
            (source,),
            folder / "model.onnx",
            dynamo=False,
            opset_version=OPSET,
            input_names=["source"],
            output_names=["logits"],
            dynamic_axes={"source": {1: "length"}, "logits": {1: "length"}},
        )
        torch.onnx.unregister_custom_op_symbolic("aten::mT", OPSET)
    (folder / "tokenizer.json").write_text(
        json.dumps(bundle.codec.to_json(), ensure_ascii=False), "utf-8"
    )


class _Forward(nn.Module):
    """The forward pass of a model from its input to its logits."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Shaped[Tensor, "1 T *F"]) -> Float[Tensor, "1 N V"]:
        lengths = torch.ones(source.shape[:2], dtype=torch.long).sum(1)
        return self.model.head(self.model.features(Padded(source, lengths)))


def _transposed(graph: Any, x: Any) -> Any:
    """Export `.mT`, which the exporter of torch does not support."""
    last = x.type().dim() - 1
    return graph.op("Transpose", x, perm_i=[*range(last - 1), last, last - 1])
