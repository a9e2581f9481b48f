"""A page of pictures with the captions of a model: one HTML file that needs nothing else."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from seqlab.data.example import Box, Picture
from seqlab.data.png import png
from seqlab.recipe import ImageConfig
from seqlab.tasks.task import Baselines, Scores

SHOWN = 20
_STYLE = """body{font:15px/1.4 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:right}td:first-child{text-align:left}
figure{display:flex;gap:1rem;margin:1rem 0}img{width:12rem;height:auto;image-rendering:pixelated;align-self:start}
figcaption b{font-size:1.1rem}li{color:#555}"""


@dataclass(frozen=True)
class Captioned:
    """A picture, the caption that the model writes, and those that people wrote."""

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
    """Scores beside the baselines, then twenty pictures from the whole of the data, each with its captions."""
    places = np.unique(np.linspace(0, len(captioned) - 1, SHOWN).round().astype(int)).tolist()
    figures = "\n".join(_figure(captioned[place], image) for place in places)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>
<h1>{escape(title)}</h1>
<p>{len(captioned):,} pictures. Below are {len(places)}, each with the model's caption and what people said.</p>
{_table(scores, baselines)}
{figures}
</html>
"""


def _table(scores: Scores, baselines: Baselines) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in ("", "this model", *baselines))
    rows = "".join(
        f"<tr><td>{escape(name.replace('_', ' '))}</td>"
        + "".join(
            f"<td>{side[name]:.4g}</td>" if name in side else "<td></td>"
            for side in (scores, *baselines.values())
        )
        + "</tr>"
        for name, value in scores.items()
        if isinstance(value, float)
    )
    return f"<table><tr>{head}</tr>{rows}</table>"


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
