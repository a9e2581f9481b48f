"""Products in each way: the equation x Wᵀ + b with its gradients is what each is tested against."""

import json
import threading

import pytest
import torch

from seqlab.kernels import calibration, products
from seqlab.kernels.calibration import Speeds, choose
from seqlab.kernels.products import linear, multiplying
from seqlab.training.weights import orthogonalise

# the largest error, as a share of the largest value: of bfloat16, which has eight bits, a hundredth
ERRORS = {"torch": 1e-6, "onednn": 3e-6, "bfloat16": 1e-2}
ways = pytest.mark.parametrize(
    "way",
    [
        "torch",
        pytest.param(
            "onednn", marks=pytest.mark.skipif(not products.has_onednn(), reason="no oneDNN")
        ),
        "bfloat16",
    ],
)


@pytest.fixture(autouse=True)
def even_small_ones(monkeypatch):
    monkeypatch.setattr(products, "SMALL", 0)
    monkeypatch.delenv("SEQLAB_PRODUCTS", raising=False)


def error(found, expected):
    return float(((found.detach().double() - expected).abs().max() / expected.abs().max()).detach())


@ways
@pytest.mark.parametrize("shape", [(7, 5, 3), (130, 33, 65), (2, 3, 64, 16), (1, 1, 1)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_linear_layer_equals_its_equation_forward_and_back(way, shape, has_bias):
    *rows, inputs, outputs = shape
    torch.manual_seed(1)
    x, weight, bias, g = (
        torch.randn(*size)
        for size in ((*rows, inputs), (outputs, inputs), (outputs,), (*rows, outputs))
    )
    parts = [part.requires_grad_() for part in (x, weight, bias)[: 2 + has_bias]]
    with multiplying(way):
        y = linear(*parts, *(() if has_bias else (None,)))
    found = torch.autograd.grad(y, parts, g)  # outside of the block, as in a training step
    wide = [part.detach().double().requires_grad_() for part in parts]
    expected = wide[0] @ wide[1].T + (wide[2] if has_bias else 0)
    gradients = torch.autograd.grad(expected, wide, g.double())
    assert y.dtype == torch.float32
    assert y.shape == expected.shape
    assert error(y, expected.detach()) <= ERRORS[way]
    for one, other in zip(found, gradients, strict=True):
        assert one.dtype == torch.float32
        assert one.shape == other.shape
        assert error(one, other) <= ERRORS[way]


@ways
def test_only_what_needs_a_gradient_gets_one(way):
    x, weight = torch.randn(4, 5), torch.randn(3, 5, requires_grad=True)
    with multiplying(way):
        linear(x, weight, None).sum().backward()
    assert x.grad is None
    torch.testing.assert_close(weight.grad, x.sum(0).expand(3, 5), rtol=0.02, atol=0.02)


@ways
@pytest.mark.timeout(60)
def test_a_slice_of_a_matrix_is_multiplied_as_quickly(way):
    """oneDNN has only a slow reference for rows that do not follow each other."""
    g, x = torch.randn(2048, 1536)[:, :1024], torch.randn(2048, 512)[:, :384]
    factors = [products.rounded(part, way) for part in (g, x)]
    exact = g.double().T @ x.double()
    assert error(products.outer(*factors, way), exact) <= ERRORS[way]
    assert error(products.product(factors[0].mT, factors[1], way), exact) <= ERRORS[way]


@ways
@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 8, 24), (2, 24, 8)])
def test_an_update_of_muon_is_almost_orthogonal_in_each_way(way, shape):
    torch.manual_seed(1)
    x = torch.randn(shape)
    exact = orthogonalise(x.double())
    with multiplying(way):
        found = orthogonalise(x)
    assert found.dtype == x.dtype
    assert error(found, exact) <= {"bfloat16": 0.05}.get(way, 1e-5)
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.2
    assert values.max() < 1.3


def test_small_products_doubles_and_other_threads_stay_with_torch(monkeypatch):
    monkeypatch.setattr(products, "SMALL", 1 << 21)
    x, weight = torch.randn(4, 5), torch.randn(3, 5)
    expected, other_thread = torch.nn.functional.linear(x, weight), []
    with multiplying("bfloat16"):
        assert torch.equal(linear(x, weight, None), expected)
        assert products.current_way(x, 1 << 30) == "bfloat16"
        assert products.current_way(x.double(), 1 << 30) == "torch"
        worker = threading.Thread(
            target=lambda: other_thread.append(products.current_way(x, 1 << 30))
        )
        worker.start()
        worker.join()
    assert other_thread == ["torch"]
    assert products.current_way(x, 1 << 30) == "torch"


class TestTheChoice:
    def test_a_way_must_be_clearly_faster_to_be_taken(self):
        zen5 = Speeds(torch=110e9, onednn=240e9, bfloat16=430e9, copy=20e9)
        avx2 = Speeds(torch=90e9, onednn=88e9, bfloat16=16e9, copy=20e9)
        close = Speeds(torch=100e9, onednn=105e9, bfloat16=110e9, copy=20e9)
        exact = ("torch", "onednn")
        assert [each.fastest(exact) for each in (zen5, avx2, close)] == ["onednn", "torch", "torch"]
        every = [each.fastest(products.WAYS) for each in (zen5, avx2, close)]
        assert every == ["bfloat16", "torch", "torch"]

    def test_it_is_measured_once_and_kept_for_the_user_alone(self, monkeypatch, tmp_path):
        monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
        calls = []
        speeds = Speeds(torch=1e9, onednn=3e9, bfloat16=9e9, copy=1e9)
        monkeypatch.setattr(calibration, "measure", lambda: calls.append(1) or speeds)
        for _ in range(2):
            calibration.speeds.cache_clear()  # as a new process would begin
            assert choose("auto") == "bfloat16"
            assert choose("float32") == "onednn"
            assert choose("bfloat16") == "bfloat16"
        calibration.speeds.cache_clear()
        assert calls == [1]
        (file,) = (tmp_path / "cache").iterdir()
        assert json.loads(file.read_text())["onednn"] == 3e9
        assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("content", ["", "[]", '{"torch": 1}'])
    def test_a_damaged_file_is_measured_again(self, monkeypatch, tmp_path, content):
        monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path))
        tmp_path.chmod(0o700)
        calibration._path().write_text(content)
        monkeypatch.setattr(calibration, "measure", lambda: Speeds(1e9, 1e9, 1e9, 1e9))
        calibration.speeds.cache_clear()
        assert choose("auto") == "torch"
        calibration.speeds.cache_clear()
        assert json.loads(calibration._path().read_text())["torch"] == 1e9

    def test_a_folder_that_others_can_write_to_is_not_used(self, monkeypatch, tmp_path):
        monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path))
        tmp_path.chmod(0o777)
        monkeypatch.setattr(calibration, "measure", lambda: Speeds(1e9, 1e9, 1e9, 1e9))
        calibration.speeds.cache_clear()
        assert choose("auto") == "torch"
        calibration.speeds.cache_clear()
        assert not list(tmp_path.iterdir())

    def test_a_variable_names_a_way_for_all(self, monkeypatch):
        monkeypatch.setenv("SEQLAB_PRODUCTS", "torch")
        assert choose("bfloat16") == "torch"
        monkeypatch.setenv("SEQLAB_PRODUCTS", "onednm")
        with pytest.raises(calibration.UsageError, match="there is no such way") as caught:
            choose("auto")
        assert "onednn" in caught.value.hint

    def test_the_machine_is_measured_in_seconds(self, record_property):
        found = calibration.measure()
        assert found.torch > 1e8
        assert found.copy > 1e8
        record_property("measured", f"products and memory of this machine: {found}")


def test_info_shows_the_speeds_of_the_machine_and_what_they_decide(run, monkeypatch):
    monkeypatch.setattr(calibration, "speeds", lambda: Speeds(110e9, 240e9, 430e9, 20e9))
    facts = json.loads(run("info", "--machine", "--json").stdout)
    assert facts["products, float32 through oneDNN"] == "240 GFLOP/s"
    assert facts["memory, copied"] == "20 GB/s"
    assert facts["train.precision=float32"] == "float32 through oneDNN"
    assert facts["train.precision=auto"] == "bfloat16"
    assert run("info", "somewhere", "--machine").code == 2
