"""Connections: access, slow clients, limits, and shutdown."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest

from seqlab.serve.client import Client, ServerError
from seqlab.serve.guard import POLICY
from seqlab.serve.server import is_loopback

PATIENCE = 30.0
BODY = json.dumps({"model": "translate", "inputs": ["abc"]}).encode()


def connected(server):
    host, port = server.address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def heard(connection):
    """Receive until the other side closes the connection."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    connection.close()
    return b"".join(parts)


def head(path="/v1/predict", method="POST", length=None, host="127.0.0.1", more=""):
    length = len(BODY) if length is None else length
    return (
        f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n{more}\r\n"
    ).encode()


def told(answer):
    """Return status, message and hint of a raw answer, and check its security headers."""
    top, _, body = answer.partition(b"\r\n\r\n")
    assert POLICY.encode() in top, answer
    said = json.loads(body)
    return int(top.split()[1]), said["error"], said["hint"]


@pytest.fixture(scope="module")
def hasty(serving, folders):
    """A server with very short time limits."""
    bounds = {
        "headers_seconds": 0.4,
        "body_seconds": 0.4,
        "stalled_seconds": 0.5,
        "connections": 12,
    }
    return serving([folders["translate"], folders["lm"]], **bounds)


class TestSlowClients:
    @pytest.mark.parametrize(
        "sent", [b"", b"POST /v1/pre", b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n"]
    )
    def test_incomplete_headers_time_out(self, hasty, sent):
        connection, began = connected(hasty), time.monotonic()
        connection.sendall(sent)
        status, error, hint = told(heard(connection))
        assert (status, error) == (408, "the headers were not received within 0.4 seconds")
        assert hint == "send all headers at once."
        assert 0.3 < time.monotonic() - began < 10

    def test_slow_headers_time_out(self, hasty):
        connection, began = connected(hasty), time.monotonic()
        with pytest.raises(OSError), connection:  # noqa: PT012  (some write is the first to fail)
            for byte in b"GET / HTTP/1.1\r\nX: " + b"x" * 1000:
                connection.sendall(bytes([byte]))
                time.sleep(0.05)
        assert time.monotonic() - began < 10

    def test_headers_of_a_second_request_time_out(self, hasty):
        first = HTTPConnection(hasty.address.removeprefix("http://"), timeout=PATIENCE)
        first.request("GET", "/healthz")
        first.getresponse().read()
        connection = first.sock
        connection.sendall(b"GET /healthz HT")
        assert told(heard(connection))[0] == 408

    @pytest.mark.parametrize("sent", [b"", BODY[:10]])
    def test_an_incomplete_body_times_out(self, hasty, sent):
        connection, began = connected(hasty), time.monotonic()
        connection.sendall(head() + sent)
        status, error, hint = told(heard(connection))
        assert (status, error) == (408, "the body was not received within 0.4 seconds")
        assert hint == "send the whole body at once."
        assert time.monotonic() - began < 10

    def test_incomplete_bodies_do_not_block_others(self, hasty):
        slow = [connected(hasty) for _ in range(10)]
        for connection in slow:
            connection.sendall(head() + BODY[:5])
        assert Client(hasty.address).predict("translate", ["abc"])
        assert all(told(heard(connection))[0] == 408 for connection in slow)

    def test_too_many_connections_are_refused(self, hasty):
        time.sleep(0.6)  # until whoever came before is gone
        held = [connected(hasty) for _ in range(12)]
        status, error, hint = told(heard(connected(hasty)))
        assert (status, error, hint) == (
            503,
            "too many connections",
            "try again in a second.",
        )
        for connection in held:
            connection.close()
        deadline = time.monotonic() + PATIENCE
        while not Client(hasty.address).healthy():
            assert time.monotonic() < deadline

    def test_a_client_that_does_not_read_is_disconnected(self, serving, folders):
        """Answers that are requested again and again and never read fill the buffers; then the time limit applies."""
        server = serving([folders["translate"]], stalled_seconds=0.5)
        connection = connected(server)
        connection.settimeout(PATIENCE)
        asking = head("/openapi.json", "GET", 0) * 100
        with pytest.raises((ConnectionResetError, BrokenPipeError)):  # noqa: PT012  (some write is the first to fail)
            for _ in range(1000):
                connection.sendall(asking)
        connection.close()
        assert Client(server.address).healthy()

    def test_invalid_http_is_refused(self, hasty):
        connection = connected(hasty)
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
        assert told(heard(connection))[:2] == (400, "the request is not valid HTTP")

    def test_a_large_body_is_refused_by_its_length(self, hasty):
        for more in (
            head(length=2**30),
            head(length=0, more="").replace(b"Content-Length: 0", b"Content-Length: -1"),
        ):
            connection = connected(hasty)
            connection.sendall(more)
            assert told(heard(connection))[0] in (400, 413)
        connection = connected(hasty)
        connection.sendall(
            head().replace(b"Content-Length: %d" % len(BODY), b"Transfer-Encoding: chunked")
        )
        try:
            for _ in range(40):
                connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        except OSError:
            pass  # it has heard enough
        assert b" 413 " in heard(connection)[:20]


class TestAccess:
    @pytest.mark.parametrize(
        "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1", "a b"]
    )
    def test_an_unknown_host_is_refused(self, hasty, host):
        connection = connected(hasty)
        connection.sendall(head("/healthz", "GET", 0, host))
        status, error, hint = told(heard(connection))
        assert status == 421
        assert error == f"unknown host '{host}'"
        assert hint

    @pytest.mark.parametrize(
        "host", ["localhost", "LOCALHOST:80", "127.0.0.1:9", "[::1]:80", "192.168.0.7"]
    )
    def test_ip_addresses_and_localhost_are_accepted(self, hasty, host):
        connection = connected(hasty)
        connection.sendall(head("/healthz", "GET", 0, host, "Connection: close\r\n"))
        assert heard(connection).startswith(b"HTTP/1.1 200")

    @pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
    def test_another_origin_is_refused(self, hasty, origin):
        connection = connected(hasty)
        connection.sendall(head(more=f"Origin: {origin}\r\n") + BODY)
        assert told(heard(connection))[:2] == (
            403,
            "requests from pages of other sites are refused",
        )

    def test_the_own_origin_is_accepted(self, hasty):
        connection = connected(hasty)
        connection.sendall(head(more="Origin: http://127.0.0.1\r\nConnection: close\r\n") + BODY)
        assert heard(connection).startswith(b"HTTP/1.1 200")

    def test_a_public_host_needs_a_token(self, serving, folders):
        server = serving([folders["translate"]], host="0.0.0.0")
        address = server.address.replace("0.0.0.0", "127.0.0.1")
        assert len(server.token) >= 20
        for token in (None, "wrong", server.token[:-1]):
            other = Client(address, token=token)
            assert other.healthy()
            for ask in (
                other.models,
                other.metrics,
                lambda o=other: o.predict("translate", ["abc"]),
            ):
                with pytest.raises(ServerError, match="this server needs a token") as refused:
                    ask()
                assert refused.value.status == 401
        assert Client(address, token=server.token).predict("translate", ["abc"])

    def test_a_chosen_token(self, serving, folders):
        server = serving([folders["translate"]], token="sesame")
        assert Client(server.address, token="sesame").models()
        with pytest.raises(ServerError, match="this server needs a token"):
            Client(server.address).models()

    def test_loopback_addresses(self):
        assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "localhost"]))
        assert not any(map(is_loopback, ["0.0.0.0", "::", "192.168.0.7", "example.org"]))


def test_answers_are_not_delayed(server):
    """Each answer on one connection would take 40 ms longer if its body waited until its headers are acknowledged."""
    connection = HTTPConnection(server.address.removeprefix("http://"), timeout=PATIENCE)
    times = []
    for _ in range(30):
        began = time.monotonic()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        times.append(time.monotonic() - began)
    connection.close()
    assert sorted(times)[5] < 0.03


class TestUnderLoad:
    def test_batched_requests_equal_single_ones(self, client, offline):
        """Concurrent requests, sampled with seeds of their own, equal the library's answers to each."""
        asked = [
            (text, seed)
            for text in ("abc", "fed", "ca", "bb", "abcdef", "fa", "ed", "aab")
            for seed in (0, 1)
        ]

        def ask(each):
            text, seed = each
            return [
                a["output"]
                for a in client.predict("translate", [text, text], seed=seed, temperature=1.5)
            ]

        with ThreadPoolExecutor(len(asked)) as pool:
            answers = list(pool.map(ask, asked))
        expected = [
            [
                a.output
                for a in offline["translate"].predict([text, text], seed=seed, temperature=1.5)
            ]
            for text, seed in asked
        ]
        assert answers == expected
        assert any(
            first != second for first, second in answers
        )  # the rows of a request are drawn one by one

    def test_a_failing_request_does_not_affect_its_batch(self, client, offline):
        """Both are in one batch, and the prefix is too long for one of them."""
        good, bad = ["the cat"], ["x" * 10_001]
        with ThreadPoolExecutor(8) as pool:
            fine = [pool.submit(client.predict, "lm", good) for _ in range(4)]
            wrong = [pool.submit(client.predict, "lm", bad) for _ in range(4)]
        expected = offline["lm"].predict(good)[0].output
        assert [each.result()[0]["output"] for each in fine] == [expected] * 4
        assert all("10,001 letters" in str(each.exception()) for each in wrong)

    def test_a_full_queue_answers_503_and_health_answers_at_once(self, serving, folders):
        server = serving([folders["lm"]], queue=2)
        client = Client(server.address, timeout=PATIENCE)

        def ask(seed):
            try:
                client.predict("lm", ["the"] * 64, seed=seed, temperature=1.0, max_length=60)
                return 200
            except ServerError as error:
                return error.status if error.hint == "try again in a second." else str(error)

        longest = 0.0
        with ThreadPoolExecutor(12) as pool:
            asked = [pool.submit(ask, seed) for seed in range(12)]
            while not all(each.done() for each in asked):
                began = time.monotonic()
                assert client.healthy()
                longest = max(longest, time.monotonic() - began)
                time.sleep(0.01)
        statuses = [each.result() for each in asked]
        assert set(statuses) == {200, 503}
        assert statuses.count(200) >= 2
        assert longest < 1.0  # 100 ms where the machine has nothing else to do: see the load test

    def test_a_slow_request_times_out_and_the_next_is_served(self, serving, folders):
        server = serving([folders["lm"]], seconds=0.5)
        client = Client(server.address, timeout=PATIENCE)
        with pytest.raises(ServerError, match=r"the answer took more than 0\.5 seconds") as late:
            client.predict("lm", ["the"] * 256, max_length=1000, beam=32)
        assert (late.value.status, late.value.hint) == (
            504,
            "send fewer inputs, or lower max_length.",
        )
        began = time.monotonic()
        assert client.predict("lm", ["the"], max_length=2)
        assert time.monotonic() - began < 10

    def test_a_slow_stream_times_out(self, serving, folders):
        client = Client(serving([folders["lm"]], seconds=0.3).address, timeout=PATIENCE)
        with pytest.raises(ServerError, match=r"the answer took too long|is incomplete"):
            list(client.generate("lm", "the", max_length=1000, temperature=1.0))

    def test_a_disconnected_client_frees_its_slot(self, serving, folders):
        server = serving([folders["lm"]], queue=1)
        client = Client(server.address, timeout=PATIENCE)
        body = json.dumps(
            {"model": "lm", "inputs": ["the"] * 256, "decode": {"beam": 32, "max_length": 1000}}
        ).encode()
        connection = connected(server)
        connection.sendall(head(length=len(body)) + body)
        deadline = time.monotonic() + PATIENCE
        while "seqlab_places_taken 1" not in client.metrics():
            assert time.monotonic() < deadline
        connection.close()
        while "seqlab_places_taken 0" not in client.metrics():
            assert time.monotonic() < deadline
        assert client.predict("lm", ["the"], max_length=2)

    def test_a_client_that_leaves_a_stream_frees_its_slot(self, serving, folders):
        server = serving([folders["lm"]], queue=1)
        client = Client(server.address, timeout=PATIENCE)
        pieces = client.generate("lm", "the", max_length=1000, temperature=1.0)
        next(pieces)
        assert "seqlab_places_taken 1" in client.metrics()
        pieces.close()
        deadline = time.monotonic() + PATIENCE
        while "seqlab_places_taken 0" not in client.metrics():
            assert time.monotonic() < deadline
        assert client.predict("lm", ["the"], max_length=2)

    def test_other_requests_run_between_the_tokens_of_a_stream(self, client):
        pieces = client.generate("lm", "the", max_length=200, temperature=1.0)
        next(pieces)
        assert client.predict(
            "translate", ["abc"]
        )  # while the stream is open and not nearly at its end
        assert len(list(pieces)) > 150

    def test_stopping_completes_requests_in_progress(self, serving, folders):
        server = serving([folders["lm"]])
        client = Client(server.address, timeout=PATIENCE)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(
                client.predict, "lm", ["the"] * 64, max_length=60, temperature=1.0
            )
            while "seqlab_places_taken 1" not in client.metrics():
                assert not running.done()
            stopping = threading.Thread(target=server.stop)
            stopping.start()
            assert len(running.result()) == 64
            stopping.join(PATIENCE)
        assert not stopping.is_alive()
        assert not client.healthy()
