"""The native kernels, built once; without a compiler their tests are skipped."""

import shutil

import pytest

from seqlab.kernels import native


@pytest.fixture(scope="session")
def built(request):
    """The cache with the library: kept between runs of the tests, since its name tells what it was built from."""
    if native._compiler() is None:
        pytest.skip("the native kernels need a C++ compiler")
    folder = request.config.cache.mkdir("kernels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQLAB_CACHE", str(folder))
        for old in set(folder.iterdir()) - {native.library(), native.library().with_suffix(".txt")}:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        native.build(quiet=True)
    return folder


@pytest.fixture
def kernels(built, monkeypatch):
    """The native kernels, in use for the time of a test."""
    monkeypatch.setenv("SEQLAB_CACHE", str(built))
    monkeypatch.setenv("SEQLAB_NATIVE", "1")
    assert native.ready()
    return built
