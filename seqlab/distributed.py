"""Groups of processes that train or predict together, and the messages between them.

`torchrun` starts them, on one machine or on many; `--workers N` starts copies of the same command on this machine. In
both cases each process runs the same code, computes its share, and receives the results of the others.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from socket import if_nameindex
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from seqlab import errors
from seqlab.errors import RunError, SeqlabError, SeqlabWarning, UsageError
from seqlab.types import State

T = TypeVar("T")
A = TypeVar("A")
# long, because workers wait while the leader prepares its data or reads standard input
TIMEOUT = timedelta(days=7)
COPY = "SEQLAB_COPY"  # environment variable of a worker: its rank, the number of processes, their folder
STORE = "meeting"  # the file through which the processes find each other
GLOO = "GLOO_SOCKET_IFNAME"  # environment variable: the network interface of gloo
POLL_SECONDS = 0.002


@dataclass(frozen=True)
class World:
    """The rank of this process and the number of processes. Rank 0 is the leader, which alone writes files."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def own_rows(self, num_rows: int) -> list[int]:
        """Return the rows of a batch that this process computes."""
        return list(range(self.rank, num_rows, self.size))

    def sums(self, *values: float) -> list[float]:
        """Return the sums of values over all processes."""
        if self.size == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64, device="cpu")
        dist.all_reduce(numbers)
        return numbers.tolist()

    def all_gather(self, message: Any) -> list[Any]:
        """Return the messages of all processes, in the order of their ranks; they are sent as JSON."""
        if self.size == 1:
            return [message]
        text = torch.frombuffer(bytearray(json.dumps(message).encode()), dtype=torch.uint8)
        lengths = [torch.zeros((), dtype=torch.long, device="cpu") for _ in range(self.size)]
        _finish(dist.all_gather(lengths, torch.full((), len(text), device="cpu"), async_op=True))
        longest = max(map(int, lengths))
        texts = [torch.empty(longest, dtype=torch.uint8, device="cpu") for _ in range(self.size)]
        own = torch.nn.functional.pad(text, (0, longest - len(text)))
        _finish(dist.all_gather(texts, own, async_op=True))
        return [
            json.loads(each[: int(n)].numpy().tobytes())
            for each, n in zip(texts, lengths, strict=True)
        ]

    def broadcast(self, message: Any) -> Any:
        """Return the message of the leader; it is sent as JSON."""
        return self.all_gather(message if self.leads else None)[0]

    def broadcast_each(self, values: Iterable[T]) -> Iterator[T]:
        """Yield the values of the leader to all processes; only the leader reads them."""
        source = iter(values if self.leads else ())
        while message := self.broadcast(list(islice(source, 1))):
            yield message[0]

    def map_shares(
        self, inputs: Sequence[T], answer: Callable[[Sequence[T], int], list[A]]
    ) -> list[A]:
        """Return the answers to all inputs, in order; `answer` gets the share of this process and its first index.

        Answers are sent as JSON. An error of one process is raised in all; warnings of all are repeated by the leader.
        """
        if self.size == 1:
            return answer(inputs, 0)
        begin, end = (len(inputs) * rank // self.size for rank in (self.rank, self.rank + 1))
        own: list[A] = []
        failure: list[str] = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                own = answer(inputs[begin:end], begin) if end > begin else []
            except SeqlabError as error:
                failure = [type(error).__name__, str(error), error.hint]
        shares = self.all_gather(
            {"answers": own, "failure": failure, "warnings": [str(each.message) for each in caught]}
        )
        for each in shares:
            for message in each["warnings"] if self.leads else ():
                warnings.warn(message, SeqlabWarning, stacklevel=2)
            if each["failure"]:
                kind, message, hint = each["failure"]
                raise getattr(errors, kind)(message, hint=hint)
        return [each for share in shares for each in share["answers"]]

    def gather_rows(self, state: State, num_rows: int) -> State:
        """Return the state of all rows, from the rows of each process."""
        if self.size == 1:
            return state
        whole = tuple(part.new_zeros(num_rows, *part.shape[1:]) for part in state)
        for part, own in zip(whole, state, strict=True):
            part[self.own_rows(num_rows)] = own[: len(self.own_rows(num_rows))]
            dist.all_reduce(part)
        return whole

    def wait(self) -> None:
        """Wait until all processes have reached this call."""
        self.all_gather(None)


SINGLE_PROCESS = World()


@contextmanager
def worker_group(workers: int = 1) -> Iterator[World]:
    """Join the processes of torchrun, or start `workers` copies of this command; else this process is alone."""
    launched = dist.is_torchelastic_launched() and int(os.environ.get("WORLD_SIZE", "1")) > 1
    if launched and workers > 1:
        raise UsageError("torchrun has already started the workers", hint="leave out --workers.")
    if launched:
        store, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
        member: AbstractContextManager[World] = _member(
            store=_fresh_store(store, rank, size), rank=rank, world_size=size
        )
    elif COPY in os.environ:
        member = _copy(*os.environ[COPY].split(" ", 2))
    elif workers > 1:
        member = _leader(workers)
    else:
        member = nullcontext(SINGLE_PROCESS)
    with member as world:
        yield world


def restarted() -> bool:
    """Return whether torchrun has restarted this process because another one died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def _fresh_store(store: dist.Store, rank: int, size: int) -> dist.Store:
    """Return a part of torchrun's store that only the processes of this start use.

    After a restart, the store still has the addresses of processes that have died. So each process registers under a
    new random name, the leader confirms all names, and its own name is the prefix of the keys that they share.
    """
    name = os.urandom(8).hex()
    if rank:
        store.set(f"hello {rank}", name)
        _wait_until(lambda: store.check([f"to {name}"]))
        leader = store.get(f"to {name}").decode()
        store.set(f"heard {leader} {rank}", "")
        return dist.PrefixStore(leader, store)

    def has_confirmed(other: int) -> bool:
        if store.check([f"hello {other}"]):
            store.set(f"to {store.get(f'hello {other}').decode()}", name)
        return store.check([f"heard {name} {other}"])

    for other in range(1, size):
        _wait_until(partial(has_confirmed, other))
    return dist.PrefixStore(name, store)


@contextmanager
def _member(**group: Any) -> Iterator[World]:
    """Join a group of processes; `group` has the store, the rank and the world size."""
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, timeout=TIMEOUT, **group)
    world = World(dist.get_rank(), dist.get_world_size())
    try:
        with warnings.catch_warnings():
            if not world.leads:
                warnings.simplefilter("ignore", SeqlabWarning)
            yield world
    except RuntimeError as error:
        if not _is_lost_connection(error):
            raise
        raise RunError(
            "another process of the group has ended unexpectedly",
            hint="its own output has the reason.",
        ) from None
    finally:
        dist.destroy_process_group()


@contextmanager
def _leader(size: int) -> Iterator[World]:
    """Start copies of this command, which share the threads of this process, and lead them."""
    threads = torch.get_num_threads()
    interface = os.environ.get(GLOO)
    loopback = next((name for _, name in if_nameindex() if name.startswith("lo")), "")
    torch.set_num_threads(max(1, threads // size))
    os.environ[GLOO] = interface or loopback
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copies = [_start_copy(rank, size, folder) for rank in range(1, size)]
        try:
            while len([*folder.glob("*.here")]) < len(copies):
                if any(copy.poll() is not None for copy in copies):
                    raise _worker_error(copies, folder)
                time.sleep(POLL_SECONDS)
            store = dist.FileStore(f"{folder}/{STORE}", size)
            with _member(store=store, rank=0, world_size=size) as world:
                try:
                    yield world
                except RuntimeError as error:
                    if _is_lost_connection(error):
                        raise _worker_error(copies, folder) from None
                    raise error from None
                finally:
                    _end(copies)  # before leaving the group, which waits for open connections
        finally:
            _end(copies)
            torch.set_num_threads(threads)
            os.environ.pop(GLOO)
            if interface is not None:
                os.environ[GLOO] = interface


def _start_copy(rank: int, size: int, folder: Path) -> subprocess.Popen[bytes]:
    """Start a copy of this command, in a session of its own, so that only the leader receives Ctrl-C."""
    home = str(Path(errors.__file__).parent.parent)
    environment = {COPY: f"{rank} {size} {folder}", "LOCAL_RANK": str(rank), "PYTHONPATH": home}
    environment["OMP_NUM_THREADS"] = str(torch.get_num_threads())
    with (folder / f"{rank}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "seqlab", *sys.argv[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=os.environ | environment,
            start_new_session=True,
        )


@contextmanager
def _copy(rank: str, size: str, folder: str) -> Iterator[World]:
    """Join the group as a copy: it uses its share of the threads, and ends whenever the leader ends."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    threading.Thread(target=lambda: os.read(0, 1) or os._exit(1), daemon=True).start()
    Path(folder, f"{rank}.here").touch()
    store = dist.FileStore(f"{folder}/{STORE}", int(size))
    with _member(store=store, rank=int(rank), world_size=int(size)) as world:
        yield world


def _worker_error(copies: list[subprocess.Popen[bytes]], folder: Path) -> RunError:
    """Return an error with the copy that has ended, its exit code and the last line of its output."""
    time.sleep(10 * POLL_SECONDS)  # a lost connection is reported before the end of its process
    for rank, copy in enumerate(copies, start=1):
        if (code := copy.poll()) is not None:
            log = (folder / f"{rank}.log").read_text("utf-8", "replace").strip().splitlines()
            status = f"signal {-code}" if code < 0 else f"exit code {code}"
            last_line = f": {log[-1]}" if log else ""
            return RunError(
                f"worker {rank} has ended unexpectedly ({status}){last_line}",
                hint="the lines printed so far are complete. Fewer workers need less memory.",
            )
    return RunError("the connection to a worker was lost", hint="try again, or with fewer workers.")


def _end(copies: list[subprocess.Popen[bytes]]) -> None:
    """Kill the copies; they write no files, so nothing is lost."""
    for copy in copies:
        copy.kill()
        copy.communicate()


def _is_lost_connection(error: RuntimeError) -> bool:
    """Return whether an error of torch means that a connection was lost."""
    return "gloo" in str(error)


def _finish(work: Any) -> None:
    """Wait in small steps, so that Ctrl-C is handled meanwhile."""
    _wait_until(work.is_completed)
    work.wait()


def _wait_until(is_done: Callable[[], bool]) -> None:
    while not is_done():
        time.sleep(POLL_SECONDS)
