"""The interface is what its own document says: requests made from the document get answers that are in it."""

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
OPERATIONS = [("POST", f"/v1/{verb}") for verb in ("predict", "generate", "next", "score", "explain/{view}")]
OPERATIONS += [("GET", path) for path in ("/v1/models", "/v1/runs/{model}", "/healthz", "/metrics")]
VIEWS = ("lens", "attention", "beam", "what-if", "cells", "saliency", "gradients", "embeddings", "band", "trellis")


@pytest.fixture(scope="module")
def document(server):
    return schemathesis.openapi.from_url(f"{server.address}/openapi.json")


def test_all_of_it_is_tried(document):
    assert {(found.ok().method.upper(), found.ok().path) for found in document.get_all_operations()} == set(OPERATIONS)


@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_the_document_is_true(document, folders, method, path, mode):
    operation = document[path][method]
    if mode is GenerationMode.NEGATIVE and method == "GET":
        pytest.skip("there is nothing to get wrong in it")

    @settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(mode), model=st.sampled_from([*folders, None]), view=st.sampled_from(VIEWS))
    def agrees(case, model, view):
        """Mostly about models and views that exist, so that more is seen than that they do not."""
        if model is not None and mode is GenerationMode.POSITIVE:
            if isinstance(case.body, dict):
                case.body["model"] = model
            case.path_parameters = {name: {"model": model, "view": view}[name] for name in case.path_parameters or {}}
        case.call_and_validate(checks=CHECKS, timeout=30)

    agrees()
