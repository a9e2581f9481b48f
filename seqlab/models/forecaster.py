"""Forecasters (S12): from windows of the past to distributions of future values.

Each variable's window is a separate row, and all variables share the weights (channel independence: Nie et al. 2023,
PatchTST; Lin et al. 2023, SegRNN). Row r is variable r % C of its table. Missing values are zeros with an indicator.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu, pad

from seqlab.layers.pooling import Pooling
from seqlab.layers.tap import tap
from seqlab.models.exponential_smoothing import SmoothingForecaster
from seqlab.models.interface import Encoder, Reading, frozen
from seqlab.models.lds import LDS
from seqlab.models.outputs import GaussianOutput, IntervalOutput
from seqlab.models.seq2seq import sum_penalties
from seqlab.models.simple_forecasts import SimpleForecasts, simple_forecasts
from seqlab.padded import Batch, Padded
from seqlab.randomness import Dropout
from seqlab.types import FlatIds, Mask, PerPosition, RowIds, Scalar, State, Summary, Vectors

Parameters = Float[Tensor, "B K P"]

MIN_DEVIATION = 0.05  # of a window, relative to that of the training part
COVARIATE_UNITS = 32
ROWS_AT_ONCE = (
    256  # windows that are filtered at once: each with gaps of its own has its own covariances
)


class Forecaster(nn.Module):
    """Encode the patches of a window, and predict all steps of the horizon from the pooled states.

    With `scale_windows`, each window is standardised, and the forecast is scaled back (Kim et al. 2022). Covariates of
    the future steps enter through a small layer. With `simple`, the output is added to a learnt mean of simple
    forecasts, or to exponential smoothing. In the latter case it is multiplied by a share that is fitted after the
    training, because the mean of two forecasts is usually better than either.
    """

    def __init__(
        self,
        encoder: Encoder,
        pooling: Pooling,
        output: IntervalOutput,
        *,
        patch: int,
        look_back: int,
        horizon: int,
        num_variables: int,
        num_covariates: int,
        scale_windows: bool,
        dropout: float,
        simple: SimpleForecasts | SmoothingForecaster | None = None,
    ) -> None:
        super().__init__()
        self.simple = simple
        self.encoder, self.pooling, self.output, self.head = encoder, pooling, output, nn.Identity()
        self.patch = patch
        self.look_back = look_back
        self.horizon = horizon
        self.scale_windows = scale_windows
        self.dropout = Dropout(dropout, name="pooling")
        self.ahead = nn.Linear(pooling.output_size, horizon * output.size)
        if simple is not None:  # so that the first forecasts are the simple ones
            nn.init.zeros_(self.ahead.weight)
            nn.init.zeros_(self.ahead.bias)
        sizes = (num_covariates, pooling.output_size, num_variables, output.size)
        self.covariates = CovariateEffect(*sizes) if num_covariates else None
        self.widths = frozen(torch.ones(horizon))
        shares = isinstance(simple, SmoothingForecaster)
        self.share = frozen(torch.ones(())) if shares else None

    def distribution(self, batch: Batch) -> Parameters:
        """Return the distribution parameters of each future value, before calibration."""
        return self._read(batch)[0]

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        parameters, penalty = self._read(batch)
        return Reading(parameters, batch.require("target"), penalty=penalty, output=self.output)

    @torch.no_grad()
    def start_simple(self, batch: Batch) -> None:
        """Set the weights of the simple forecasts from their errors in these windows, unless they are learnt."""
        if not isinstance(self.simple, SimpleForecasts) or bool(self.simple.preference.any()):
            return
        window = self._window(batch)
        target = batch.require("target")
        centre, spread = self._scale(window)
        values = torch.where(window.scored, (window.values - centre) / spread, 0.0)
        rules = simple_forecasts(values, window.scored, self.simple.season, self.horizon)
        errors = (rules - ((target.values - centre) / spread)[..., None]).abs() * spread[..., None]
        count = target.scored.sum().clamp(min=1)
        self.simple.start(torch.where(target.scored[..., None], errors, 0.0).sum((0, 1)) / count)

    def _window(self, batch: Batch) -> Padded:
        """Return the last `look_back` values; exponential smoothing also reads earlier ones."""
        source = batch.require("source")
        values = source.values[:, -self.look_back :]
        observed = None if source.observed is None else source.observed[:, -self.look_back :]
        return Padded(values, torch.full_like(source.lengths, values.shape[1]), observed)

    def _scale(self, window: Padded) -> tuple[Float[Tensor, "B 1"], Float[Tensor, "B 1"]]:
        """Return the mean and the deviation by which each window is standardised."""
        if self.scale_windows:
            return window_scale(window.values, window.scored)
        zeros = window.values.new_zeros(len(window.values), 1)
        return zeros, torch.ones_like(zeros)

    def _read(self, batch: Batch) -> tuple[Parameters, Scalar | None]:
        window = self._window(batch)
        values, observed = window.values.to(self.ahead.weight.dtype), window.scored
        centre, spread = self._scale(window.with_values(values))
        columns = [
            torch.where(observed, (values - centre) / spread, 0.0),
            observed.to(values.dtype),
        ]
        table = torch.stack(columns, dim=-1)
        covariates = None if batch.covariates is None else batch.covariates.values.to(values.dtype)
        if covariates is not None:
            table = torch.cat(
                [table, covariates[:, -self.horizon - self.look_back : -self.horizon]], dim=-1
            )
        memory = self.encoder(patches(table, self.patch))
        pooled, penalty = self.pooling(memory.require_states(), memory.require_summary())
        pooled = self.dropout(pooled)
        raw = self.ahead(pooled).unflatten(-1, (self.horizon, self.output.size))
        if self.covariates is not None and covariates is not None:
            raw = raw + self.covariates(covariates[:, -self.horizon :], pooled, batch.rows)
        if isinstance(self.simple, SmoothingForecaster):
            centre = self.simple.cached_means(batch).to(centre.dtype)
            if self.share is not None:
                middle = torch.arange(self.output.size) == self.output.middle
                raw = torch.where(middle, self.share * raw, raw)
        elif self.simple is not None:
            centre = centre + spread * self.simple(columns[0], observed)
        return tap("forecast", self.output.place(raw, centre, spread)), sum_penalties(
            memory.penalty, penalty
        )


class CovariateEffect(nn.Module):
    """The effect of the covariates of a future step on its forecast, given the window and the variable."""

    def __init__(
        self, num_covariates: int, size: int, num_variables: int, num_outputs: int
    ) -> None:
        super().__init__()
        self.known = nn.Linear(num_covariates, COVARIATE_UNITS)
        self.context = nn.Linear(size, COVARIATE_UNITS, bias=False)
        self.variable = nn.Parameter(torch.zeros(num_variables, COVARIATE_UNITS))
        self.effect = nn.Linear(COVARIATE_UNITS, num_outputs, bias=False)

    def forward(self, covariates: Float[Tensor, "B K X"], read: Summary, rows: RowIds) -> Tensor:
        context = self.context(read) + self.variable[rows % len(self.variable)]
        return self.effect(gelu(self.known(covariates) + context[:, None]))


class LDSForecaster(nn.Module):
    """A linear dynamical system for each variable (S2): the filter reads the window (E14) and predicts the future."""

    def __init__(self, start: LDS, *, num_variables: int, horizon: int, level: float) -> None:
        super().__init__()
        self.output, self.horizon, self.head = GaussianOutput(level), horizon, nn.Identity()
        self.tables = nn.ParameterDict(
            {
                name: frozen(tensor.expand(num_variables, *tensor.shape).clone())
                for name, tensor in start.tensors().items()
            }
        )
        self.widths = frozen(torch.ones(horizon))

    @property
    def systems(self) -> list[LDS]:
        """Return the system of each variable."""
        count = len(self.tables["transition"])
        return [
            LDS(**{name: table[i] for name, table in self.tables.items()}) for i in range(count)
        ]

    @torch.no_grad()
    def learn(self, systems: Sequence[LDS]) -> None:
        """Set the systems, one for each variable."""
        for name, table in self.tables.items():
            table.copy_(torch.stack([system.tensors()[name] for system in systems]))

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Parameters:
        systems = self.systems
        parameters = torch.zeros(len(batch), self.horizon, 2)
        for place, system in enumerate(systems):
            for rows in (batch.rows % len(systems) == place).nonzero()[:, 0].split(ROWS_AT_ONCE):
                if len(rows):
                    history, inputs = history_of(batch, rows)
                    future = system.forecast(history, self.horizon, inputs=inputs)
                    deviation = future.covariance[..., 0].sqrt()
                    parameters[rows] = torch.cat([future.mean, deviation], dim=-1).float()
        return parameters

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        return Reading(self.distribution(batch), batch.require("target"), output=self.output)


def smoothing_of(model: nn.Module) -> SmoothingForecaster | None:
    """Return the exponential smoothing of a model, or None if it has none."""
    part = model.simple if isinstance(model, Forecaster) else model
    return part if isinstance(part, SmoothingForecaster) else None


# their `widths` are the calibrated factors of the interval at each step
Forecasts = Forecaster | LDSForecaster | SmoothingForecaster


def history_of(batch: Batch, rows: FlatIds) -> tuple[Padded, Float[Tensor, "N T X"] | None]:
    """Return rows of a batch as arguments of a system: the history and the inputs."""
    window = batch.require("source").rows_at(rows)
    inputs = None if batch.covariates is None else batch.covariates.values[rows].double()
    return window.with_values(window.values.double()), inputs


def window_scale(
    values: PerPosition, observed: Mask
) -> tuple[Float[Tensor, "B 1"], Float[Tensor, "B 1"]]:
    """Return mean and deviation of the observed values of each window; 0 and 1 if there are none."""
    count = observed.sum(1, keepdim=True)
    centre = torch.where(observed, values, 0.0).sum(1, keepdim=True) / count.clamp(min=1)
    variance = torch.where(observed, values - centre, 0.0).square().sum(
        1, keepdim=True
    ) / count.clamp(min=1)
    return centre, torch.where(count > 1, (variance + MIN_DEVIATION**2).sqrt(), 1.0)


def patches(columns: Vectors, size: int) -> Padded:
    """Join every `size` steps into one position, with zeros before the first whole patch."""
    whole = pad(columns, (0, 0, -columns.shape[1] % size, 0))
    return Padded.full(whole.unflatten(1, (-1, size)).flatten(2))
