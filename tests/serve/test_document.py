"""The API conforms to its OpenAPI document: requests generated from the document get answers that are in it."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
OPERATIONS = [
    ("POST", f"/v1/{verb}") for verb in ("predict", "generate", "next", "score", "explain/{view}")
]
OPERATIONS += [("GET", path) for path in ("/v1/models", "/v1/runs/{model}", "/healthz", "/metrics")]
VIEWS = (
    "lens",
    "attention",
    "beam",
    "what-if",
    "cells",
    "saliency",
    "gradients",
    "embeddings",
    "band",
    "trellis",
)


@pytest.fixture(scope="module")
def document(server):
    return schemathesis.openapi.from_url(f"{server.address}/openapi.json")


def test_all_routes_are_tested(document):
    assert {
        (found.ok().method.upper(), found.ok().path) for found in document.get_all_operations()
    } == set(OPERATIONS)


@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_answers_conform_to_the_document(document, folders, method, path, mode):
    operation = document[path][method]
    if mode is GenerationMode.NEGATIVE and method == "GET":
        pytest.skip("there is nothing to get wrong in it")

    @settings(
        max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(
        case=operation.as_strategy(mode),
        model=st.sampled_from([*folders, None]),
        view=st.sampled_from(VIEWS),
    )
    def agrees(case, model, view):
        """Mostly name models and views that exist, so that more than the 404 is tested."""
        if model is not None and mode is GenerationMode.POSITIVE:
            if isinstance(case.body, dict):
                case.body["model"] = model
            case.path_parameters = {
                name: {"model": model, "view": view}[name] for name in case.path_parameters or {}
            }
        answer = case.call(timeout=30)
        checks = (
            CHECKS[:-1] if answer.status_code == 413 else CHECKS
        )  # too large is said before wrong is seen
        case.validate_response(answer, checks=checks)

    agrees()


def test_every_curl_of_the_guide_works_and_every_route_has_one(document, server, tmp_path):
    """The guide's models are replaced by the test models."""
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    guide = (Path(__file__).parents[2] / "docs" / "serve.md").read_text("utf-8")
    lines = re.findall(r"^curl .*$", guide, flags=re.MULTILINE)
    ours = {"http://127.0.0.1:8000": server.address, "shakespeare": "lm", "dates": "translate"}
    for line in lines:
        for theirs, mine in ours.items():
            line = line.replace(theirs, mine)
        done = subprocess.run(
            [*shlex.split(line), "-sSf"], capture_output=True, timeout=60, cwd=tmp_path
        )
        assert done.returncode == 0, (line, done.stderr)
    for _, path in OPERATIONS:
        assert any(path.partition("{")[0] in line for line in lines), path
