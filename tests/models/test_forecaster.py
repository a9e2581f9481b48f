"""Windows in, distributions out: what is missing, what is constant, what is known, and what one says."""

import math

import pytest
import torch

from seqlab.layers.inputs import VectorInputs
from seqlab.layers.pooling import Pooling
from seqlab.layers.stack import CausalStack
from seqlab.models.forecaster import Forecaster, Forecasts, LDSForecaster, patches, window_scale
from seqlab.models.interface import SequenceModel
from seqlab.models.lds import local_level
from seqlab.models.outputs import GaussianOutput, PointOutput, QuantileOutput
from seqlab.models.recurrent import RecurrentEncoder
from seqlab.padded import Batch, Padded
from seqlab.recipe import StackConfig
from seqlab.training.loss import batch_loss, mean_loss

LOOK, AHEAD, PATCH = 10, 3, 4
OUTPUTS = [GaussianOutput(0.8), PointOutput(0.8), QuantileOutput(0.8)]
every_output = pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: type(output).__name__)


def forecaster(output=OUTPUTS[0], *, covariates=0, scale_windows=True, variables=2):
    torch.manual_seed(0)
    width = PATCH * (2 + covariates)
    stack = CausalStack(6, StackConfig(kind="gru", size=5), dropout=0.0, name="encoder")
    encoder = RecurrentEncoder(VectorInputs([0.0] * width, [1.0] * width, 6), stack, dropout=0.0)
    return Forecaster(
        encoder,
        Pooling("final", 5, summary_size=5),
        output,
        patch=PATCH,
        look_back=LOOK,
        horizon=AHEAD,
        num_variables=variables,
        num_covariates=covariates,
        scale_windows=scale_windows,
        dropout=0.0,
    )


def batch(values, *, observed=None, covariates=0, seed=1):
    torch.manual_seed(seed)
    rows = len(values)
    source = Padded(values, torch.full((rows,), LOOK), observed)
    target = Padded(torch.randn(rows, AHEAD), torch.full((rows,), AHEAD))
    known = Padded(torch.randn(rows, LOOK + AHEAD, covariates), torch.full((rows,), LOOK + AHEAD))
    return Batch(torch.arange(rows), source, target, known if covariates else None)


def waves(rows=4):
    return torch.sin(torch.arange(LOOK) * 0.7 + torch.arange(rows)[:, None])


@every_output
def test_an_interval_contains_the_point_prediction(output):
    model = forecaster(output)
    assert isinstance(model, SequenceModel)
    assert isinstance(model, Forecasts)
    parameters = model.distribution(batch(waves()))
    low, high = output.band(parameters)
    assert parameters.shape[:2] == (4, AHEAD)
    assert (low < output.mean(parameters)).all()
    assert (output.mean(parameters) < high).all()


@every_output
def test_a_widened_interval_keeps_its_centre(output):
    parameters = forecaster(output).distribution(batch(waves()))
    wide = output.widened(parameters, torch.tensor([1.0, 2.0, 0.5]))
    torch.testing.assert_close(output.mean(wide), output.mean(parameters))
    widths = [high - low for low, high in (output.band(parameters), output.band(wide))]
    torch.testing.assert_close(widths[1], widths[0] * torch.tensor([1.0, 2.0, 0.5]))


@every_output
def test_a_shifted_and_scaled_window_gives_a_shifted_and_scaled_forecast(output):
    """The deviation of a window is never less than a share of the training part's, so the two agree nearly."""
    model = forecaster(output)
    plain, moved = (
        model.distribution(batch(values)) for values in (20 * waves(), 60 * waves() + 500)
    )
    torch.testing.assert_close(
        output.mean(moved), 3 * output.mean(plain) + 500, rtol=1e-4, atol=1e-2
    )
    low, high = output.band(plain)
    low_moved, high_moved = output.band(moved)
    torch.testing.assert_close(high_moved - low_moved, 3 * (high - low), rtol=1e-3, atol=1e-3)


def test_values_at_missing_positions_are_ignored():
    model, observed = forecaster(), torch.ones(4, LOOK, dtype=torch.bool)
    observed[:, [0, 4, 9]] = False
    junk = torch.where(observed, waves(), 1e6)
    one, other = (
        model.distribution(batch(values, observed=observed)) for values in (waves(), junk)
    )
    torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert (one - model.distribution(batch(waves()))).abs().max() > 1e-3


@pytest.mark.parametrize("scale_windows", [True, False])
def test_constant_or_empty_windows_have_finite_forecasts(scale_windows):
    values = torch.stack(
        [torch.full((LOOK,), 3.0), torch.zeros(LOOK), torch.full((LOOK,), math.nan)]
    )
    observed = torch.tensor([True, False, False])[:, None].expand(3, LOOK).clone()
    observed[1, 2] = True  # one value alone
    parameters = forecaster(scale_windows=scale_windows).distribution(
        batch(values, observed=observed)
    )
    assert parameters.isfinite().all()
    assert (parameters[..., 1] > 0).all()


def test_the_scale_of_a_window_is_that_of_its_observed_values():
    values = torch.tensor([[1.0, 99.0, 3.0], [5.0, 5.0, 5.0], [7.0, 7.0, 7.0]])
    seen = torch.tensor([[True, False, True], [True, True, True], [False, False, False]])
    centre, spread = window_scale(values, seen)
    assert centre[:, 0].tolist() == [2.0, 5.0, 0.0]
    assert spread[:, 0].tolist() == pytest.approx([1.00125, 0.05, 1.0], rel=1e-4)


def test_a_patch_joins_steps_and_the_first_is_padded():
    steps = torch.arange(6.0)[None, :, None]
    assert patches(steps, 4).values.tolist() == [[[0, 0, 0, 1], [2, 3, 4, 5]]]


def test_forecasts_of_a_row_do_not_depend_on_the_batch():
    model, whole = forecaster(covariates=2), batch(waves(), covariates=2)
    together = model.distribution(whole)
    for row in range(4):
        parts = {
            name: Padded(part.values[row : row + 1], part.lengths[row : row + 1])
            for name, part in whole.parts().items()
        }
        alone = model.distribution(Batch(whole.rows[row : row + 1], **parts))
        torch.testing.assert_close(alone[0], together[row])


def test_a_covariate_changes_only_its_own_step():
    model, one = forecaster(covariates=2), batch(waves(), covariates=2)
    changed = one.covariates.values.clone()
    changed[:, LOOK + 1] += 1
    other = Batch(one.rows, one.source, one.target, one.covariates.with_values(changed))
    apart = (model.distribution(one) - model.distribution(other)).abs().amax((0, 2))
    assert apart[1] > 1e-4
    assert apart[[0, 2]].tolist() == [0, 0]


@every_output
def test_a_missing_target_is_not_scored_and_the_loss_is_that_of_the_output(output):
    model, one = forecaster(output), batch(waves())
    observed = torch.ones(4, AHEAD, dtype=torch.bool)
    observed[1] = False
    gold = torch.where(observed, one.target.values, math.nan)
    loss = batch_loss(
        model, Batch(one.rows, one.source, Padded(gold, one.target.lengths, observed))
    )
    parameters = model.distribution(one)
    torch.testing.assert_close(
        loss.total, output.losses(parameters[observed], gold[observed]).sum()
    )
    assert loss.num_scored == 9
    assert set(mean_loss(model, [one], carries=False)) == {"loss"}


def test_quantiles_never_cross_and_the_middle_one_is_the_median():
    output = QuantileOutput(0.9)
    assert output.levels == (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
    placed = output.place(torch.randn(50, 11) * 9, torch.zeros(50), torch.ones(50))
    assert (placed.diff(dim=-1) >= 0).all()
    torch.testing.assert_close(output.mean(placed), placed[:, 5])


def test_a_system_for_each_variable_forecasts_its_own_rows():
    model = LDSForecaster(
        local_level(level=0.1, noise=0.1), num_variables=2, horizon=AHEAD, level=0.8
    )
    first, _ = model.systems
    parameters = model.distribution(batch(waves()))
    expected = first.forecast(Padded(waves().double(), torch.full((4,), LOOK)), AHEAD)
    torch.testing.assert_close(parameters[..., 0], expected.mean[..., 0].float())
    torch.testing.assert_close(parameters[..., 1], expected.covariance[..., 0, 0].sqrt().float())
    louder = local_level(level=0.1, noise=9.0)
    model.learn([first, louder])
    changed = model.distribution(batch(waves()))
    torch.testing.assert_close(changed[::2], parameters[::2])
    assert (changed[1::2, :, 1] > 2.5).all()
