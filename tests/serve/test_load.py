"""Many concurrent clients in another process, using the shipped model of dates.

Right answers, more of them together than one by one, and no growth.
SEQLAB_LOAD_SECONDS, of each way, and SEQLAB_LOAD_REQUESTS make it shorter.
"""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import seqlab
from seqlab.serve.client import Client

pytestmark = pytest.mark.slow
SECONDS = float(os.environ.get("SEQLAB_LOAD_SECONDS", "60"))
REQUESTS = int(os.environ.get("SEQLAB_LOAD_REQUESTS", "20000"))
CLIENTS = 64
DATES = Path(seqlab.__file__).parent / "shipped" / "dates"
TEXTS = [
    "July 4, 2001",
    "3 mars 1999",
    "12/05/2011",
    "Monday, 5 May 2014",
    "1 Jan 70",
    "5.6.1977",
    "Oct 31 1985",
]
SERVER = """
import sys, torch
from pathlib import Path
from seqlab.serve.limits import ServerLimits
from seqlab.serve.server import Server
torch.set_num_threads(1)
server = Server([Path(sys.argv[1])], port=0, limits=ServerLimits(**eval(sys.argv[2])))
print(server.address, flush=True)
server.run()
"""
ASKING = """
import json, sys, threading, time
from http.client import HTTPConnection
where, seconds = sys.argv[1].removeprefix("http://"), float(sys.argv[2])
most, clients = map(int, sys.argv[3:])
asked = json.load(sys.stdin)
end, turn, lock = time.monotonic() + seconds, iter(range(most)), threading.Lock()
seen = {"right": 0, "wrong": [], "other": {}, "retry": [], "seconds": []}

def ask():
    connection = HTTPConnection(where, timeout=60)
    while time.monotonic() < end:
        with lock:
            number = next(turn, None)
        if number is None:
            return
        body, expected = asked[number % len(asked)]
        began = time.monotonic()
        connection.request("POST", "/v1/predict", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        said = json.loads(answer.read())
        with lock:
            seen["seconds"].append(time.monotonic() - began)
            if answer.status != 200:
                seen["other"][answer.status] = seen["other"].get(answer.status, 0) + 1
                seen["retry"].append(answer.headers["Retry-After"])
            elif [each["output"] for each in said["outputs"]] == expected:
                seen["right"] += 1
            else:
                seen["wrong"].append([body, expected, said["outputs"][0]["output"]])
        if answer.status == 503:
            time.sleep(0.05)

threads = [threading.Thread(target=ask) for _ in range(clients)]
began = time.monotonic()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
seen["whole"] = time.monotonic() - began
json.dump(seen, sys.stdout)
"""

WATCHING = """
import sys, time
from http.client import HTTPConnection
where = sys.argv[1].removeprefix("http://")
while True:
    began = time.monotonic()
    connection = HTTPConnection(where, timeout=60)
    connection.request("GET", "/healthz")
    connection.getresponse().read()
    connection.close()
    print(time.monotonic() - began, flush=True)
    time.sleep(0.05)
"""


@contextmanager
def served(folder, **bounds):
    """Start a server in its own process; return its address and the process."""
    words = [sys.executable, "-c", SERVER, str(folder), repr(bounds)]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    try:
        yield process.stdout.readline().strip(), process
    finally:
        process.terminate()
        assert process.wait(60) == 0
        process.stdout.close()


def asked_by_many(address, questions, *, seconds, most=10**9, clients=CLIENTS):
    """Return the results of many clients in one process, and the latency of /healthz in another."""
    words = [sys.executable, "-c", ASKING, address, str(seconds), str(most), str(clients)]
    watch = subprocess.Popen(
        [sys.executable, "-c", WATCHING, address], stdout=subprocess.PIPE, text=True
    )
    try:
        done = subprocess.run(
            words,
            input=json.dumps(questions),
            capture_output=True,
            text=True,
            timeout=seconds + 300,
        )
    finally:
        watch.kill()
        health = [float(line) for line in watch.communicate()[0].splitlines()]
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "health": health}


def share(values, part):
    return sorted(values)[int(part * (len(values) - 1))]


@pytest.fixture(scope="module")
def questions():
    """Requests of three kinds, each with what the library answers: beam, sampled with a seed, and greedy."""
    model, asked = seqlab.load("dates"), []
    for text, other in zip(TEXTS, TEXTS[::-1], strict=True):
        for decode, seed in (
            ({"beam": 4}, 0),
            ({"temperature": 1.2}, 3),
            ({"method": "greedy"}, 0),
        ):
            body = {"model": "dates", "inputs": [text, other], "seed": seed, "decode": decode}
            expected = model.predict(body["inputs"], seed=seed, **decode)
            asked.append([body, [answer.output for answer in expected]])
    return asked


def test_batched_answers_are_correct_and_faster(questions):
    beams = [each for each in questions if "beam" in each[0]["decode"]]
    rates, busy = (
        {},
        os.getloadavg()[0] > (os.cpu_count() or 1),
    )  # with something else: then times tell of that too
    for name, asked, bounds in (
        ("mixed", questions, {}),
        ("together", beams, {}),
        ("one by one", beams, {"rows": 1, "gather_seconds": 0.0}),
    ):
        with served(DATES, **bounds) as (address, _):
            seen = asked_by_many(address, asked, seconds=SECONDS)
        assert seen["wrong"] == []
        assert seen["other"] == {}
        rates[name] = seen["right"] / seen["whole"]
        print(
            f"\n{name}: {rates[name]:.0f} requests/s; seconds: half within {share(seen['seconds'], 0.5):.3f}, "
            f"99 % within {share(seen['seconds'], 0.99):.3f}; "
            f"health: half within {share(seen['health'], 0.5):.3f}, 99 % within {share(seen['health'], 0.99):.3f}"
        )
        assert busy or share(seen["health"], 0.99) < 0.1
    print(f"together / one by one: {rates['together'] / rates['one by one']:.1f}")
    assert rates["together"] > 3 * rates["one by one"]


def test_overload_is_refused_and_other_answers_are_correct(questions):
    with served(DATES, queue=8) as (address, _):
        seen = asked_by_many(address, questions, seconds=min(10.0, SECONDS))
    assert seen["other"].keys() == {"503"}
    assert set(seen["retry"]) == {"1"}
    assert seen["wrong"] == []
    assert seen["right"] > 0


def test_memory_stays_flat(questions):
    """Twenty thousand requests, of which the first tenth may still fill pools and caches."""
    with served(DATES) as (address, process):

        def memory():
            status = Path(f"/proc/{process.pid}/status").read_text()
            return int(status.partition("VmRSS:")[2].split()[0]) / 1024

        if not Path("/proc/self/status").exists():
            pytest.skip("needs /proc to see the memory of another process")
        for most in (REQUESTS // 10, REQUESTS - REQUESTS // 10):
            before = memory()
            seen = asked_by_many(address, questions, seconds=1200.0, most=most)
            assert seen["right"] == most
        grown = memory() - before
        print(
            f"\n{REQUESTS} requests: {memory():.0f} MB at the end, {grown:+.1f} MB in the last nine tenths"
        )
        assert grown < 30
        assert Client(address).healthy()
