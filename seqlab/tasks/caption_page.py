"""An HTML page of pictures with the captions of a model, in one self-contained file."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from seqlab.data.example import Box, Picture
from seqlab.data.png import png
from seqlab.recipe import ImageConfig
from seqlab.tasks.task import Baselines, Scores

NUM_PICTURES = 20
_STYLE = """body{font:15px/1.4 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:right}td:first-child{text-align:left}
figure{display:flex;gap:1rem;margin:1rem 0}img{width:12rem;height:auto;image-rendering:pixelated;align-self:start}
figcaption b{font-size:1.1rem}li{color:#555}"""


@dataclass(frozen=True)
class Captioned:
    """A picture with the model's caption and the reference captions."""

    picture: Picture
    output: str
    references: tuple[str, ...]
    boxes: tuple[Box, ...] = ()


def caption_page(
    captioned: Sequence[Captioned],
    scores: Scores,
    baselines: Baselines,
    image: ImageConfig,
    title: str,
) -> str:
    """Return a page with the scores and evenly spread pictures, each with its captions."""
    spread = np.linspace(0, len(captioned) - 1, NUM_PICTURES).round().astype(int)
    shown = np.unique(spread).tolist()
    figures = "\n".join(_figure(captioned[index], image) for index in shown)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>
<h1>{escape(title)}</h1>
<p>{len(captioned):,} pictures. Below are {len(shown)}, each with the model's caption and the reference captions.</p>
{_table(scores, baselines)}
{figures}
</html>
"""


def _table(scores: Scores, baselines: Baselines) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in ("", "this model", *baselines))
    rows = []
    for name, value in scores.items():
        if not isinstance(value, float):
            continue
        cells = (
            f"{column[name]:.4g}" if name in column else ""
            for column in (scores, *baselines.values())
        )
        numbers = "".join(f"<td>{cell}</td>" for cell in cells)
        rows.append(f"<tr><td>{escape(name.replace('_', ' '))}</td>{numbers}</tr>")
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _figure(each: Captioned, image: ImageConfig) -> str:
    pixels = np.asarray(each.picture.values, dtype=np.uint8).reshape(
        image.height, image.width, image.channels
    )
    items = "".join(f"<li>{escape(text)}</li>" for text in each.references)
    uri = b64encode(png(pixels)).decode("ascii")
    return (
        f'<figure><img alt="{escape(each.picture.name)}" src="data:image/png;base64,{uri}">'
        f"<figcaption><b>{escape(each.output)}</b><ul>{items}</ul>{escape(each.picture.name)}</figcaption></figure>"
    )
