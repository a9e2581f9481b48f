"""A recurrent network that looks at a picture through a series of windows, each chosen after the last (S22)."""

import torch
from torch import Tensor, nn

from seqlab.equations.glimpse import filter_bank, place_window, read_window
from seqlab.layers.dropout import Dropout
from seqlab.layers.stack import CausalStack
from seqlab.layers.tap import tap
from seqlab.models.interface import Memory
from seqlab.padded import Padded
from seqlab.recipe import Glimpse, Image, Stack

REACH = (1.0, 1.0, 1.5, 1.0, 1.0)  # how far the five numbers go: a centre is never outside of the picture


class GlimpseEncoder(nn.Module):
    """h_t = LSTM([patch_t; where_t], h_{t-1}), where the window of step t is placed by h_{t-1} (E64).

    States are those after each glimpse; the summary is the last. The first window is learned, and begins as all of
    the picture.
    """

    def __init__(self, settings: Glimpse, image: Image, *, dropout: float) -> None:
        super().__init__()
        self.settings, self.image = settings, image
        self.look = nn.Linear(settings.size, 5)
        nn.init.normal_(self.look.weight, std=0.01)
        nn.init.zeros_(self.look.bias)
        self.reach: Tensor
        self.register_buffer("reach", torch.tensor(REACH), persistent=False)
        self.read = nn.Linear(settings.window**2 * image.channels, settings.size)
        stack = Stack(kind="lstm", size=settings.size)
        self.stack = CausalStack(settings.size + 5, stack, dropout=0.0, name="encoder")
        self.dropout = Dropout(dropout, name="encoder.glimpse")
        self.output_size = self.summary_size = settings.size

    def forward(self, source: Padded) -> Memory:
        image, n = self.image, self.settings.window
        pixels = source.values.unflatten(-1, (image.width, image.channels))
        state, states = self.stack.start(len(source)), []
        for _ in range(self.settings.glimpses):
            numbers = self.look(state[0]).tanh() * self.reach
            window = place_window(numbers, height=image.height, width=image.width, num_filters=n)
            tap("glimpse.window", torch.stack(window, dim=-1))
            rows = filter_bank(window.y, window.stride, window.variance, num_filters=n, length=image.height)
            columns = filter_bank(window.x, window.stride, window.variance, num_filters=n, length=image.width)
            patch = tap("glimpse.patch", read_window(pixels, rows, columns, window.intensity)[:, None])
            seen = self.dropout(self.read(patch.flatten(1)).relu())
            h, state = self.stack(torch.cat([seen, numbers], dim=-1)[:, None], state)
            states.append(h)
        places = source.lengths.new_full((len(source),), len(states))
        return Memory(len(source), Padded(torch.cat(states, dim=1), places), states[-1][:, 0])
