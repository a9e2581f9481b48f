"""The processes that work together: how many there are, which one this is, and what they tell each other.

`torchrun` starts them, on one machine or on many; `--workers N` starts copies of the same command on this machine.
Either way each runs the same lines, does its share, and hears what the others found.
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
PATIENCE = timedelta(
    days=7
)  # others wait while the leader prepares its data, or for a line that nobody types
COPY = "SEQLAB_COPY"  # in a copy's environment: which one it is, of how many, and where they meet
MEETING = "meeting"
GLOO = "GLOO_SOCKET_IFNAME"  # which network the processes talk through
MOMENT = 0.002  # seconds


@dataclass(frozen=True)
class World:
    """How many processes there are, and which one this is; the first one leads: it alone writes, and says what is."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def places(self, num_rows: int) -> list[int]:
        """The rows that are this process's."""
        return list(range(self.rank, num_rows, self.size))

    def total(self, *values: float) -> list[float]:
        """The sums over all processes."""
        if self.size == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64, device="cpu")
        dist.all_reduce(numbers)
        return numbers.tolist()

    def told(self, message: Any) -> list[Any]:
        """What each of them says, as JSON, in their order."""
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

    def heard(self, message: Any) -> Any:
        """What the leader says, as JSON: the others wait for it."""
        return self.told(message if self.leads else None)[0]

    def each(self, values: Iterable[T]) -> Iterator[T]:
        """One after the other what the leader is given; it alone reads."""
        source = iter(values if self.leads else ())
        while message := self.heard(list(islice(source, 1))):
            yield message[0]

    def shared(self, inputs: Sequence[T], answer: Callable[[Sequence[T], int], list[A]]) -> list[A]:
        """The answers to all that is given, in order; `answer` gets this process's share, and where that begins.

        Answers travel as JSON. What one process refuses, all refuse; what one warns of, the leader says.
        """
        if self.size == 1:
            return answer(inputs, 0)
        begin, end = (len(inputs) * rank // self.size for rank in (self.rank, self.rank + 1))
        own: list[A] = []
        refusal: list[str] = []
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                own = answer(inputs[begin:end], begin) if end > begin else []
            except SeqlabError as error:
                refusal = [type(error).__name__, str(error), error.hint]
        shares = self.told(
            {"answers": own, "refusal": refusal, "warnings": [str(each.message) for each in warned]}
        )
        for each in shares:
            for message in each["warnings"] if self.leads else ():
                warnings.warn(message, SeqlabWarning, stacklevel=2)
            if each["refusal"]:
                kind, message, hint = each["refusal"]
                raise getattr(errors, kind)(message, hint=hint)
        return [each for one in shares for each in one["answers"]]

    def gathered(self, state: State, num_rows: int) -> State:
        """A state of all rows, from those that each process has."""
        if self.size == 1:
            return state
        whole = tuple(part.new_zeros(num_rows, *part.shape[1:]) for part in state)
        for part, own in zip(whole, state, strict=True):
            part[self.places(num_rows)] = own[: len(self.places(num_rows))]
            dist.all_reduce(part)
        return whole

    def wait(self) -> None:
        """Until all are here."""
        self.told(None)


ALONE = World()


@contextmanager
def joined(workers: int = 1) -> Iterator[World]:
    """The processes that torchrun has started, or `workers` of this command on this machine, or this one alone."""
    launched = dist.is_torchelastic_launched() and int(os.environ.get("WORLD_SIZE", "1")) > 1
    if launched and workers > 1:
        raise UsageError("torchrun has started the processes already", hint="leave out --workers.")
    if launched:
        store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
        member: AbstractContextManager[World] = _member(
            store=_corner(store, rank, size), rank=rank, world_size=size
        )
    elif COPY in os.environ:
        member = _copy(*os.environ[COPY].split(" ", 2))
    elif workers > 1:
        member = _leader(workers)
    else:
        member = nullcontext(ALONE)
    with member as world:
        yield world


def restarted() -> bool:
    """Whether torchrun has started this process anew, after one of them died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def _corner(store: dist.Store, rank: int, size: int) -> dist.Store:
    """A corner of torchrun's store that the processes of this start alone know.

    What those have left there who died before a restart would lead us astray, to where they once listened. So each says
    hello under a new name, the leader answers names until all have been heard, and what they share begins with its own.
    """
    name = os.urandom(8).hex()
    if rank:
        store.set(f"hello {rank}", name)
        _until(lambda: store.check([f"to {name}"]))
        leader = store.get(f"to {name}").decode()
        store.set(f"heard {leader} {rank}", "")
        return dist.PrefixStore(leader, store)

    def greets(other: int) -> bool:
        if store.check([f"hello {other}"]):
            store.set(f"to {store.get(f'hello {other}').decode()}", name)
        return store.check([f"heard {name} {other}"])

    for other in range(1, size):
        _until(partial(greets, other))
    return dist.PrefixStore(name, store)


@contextmanager
def _member(**place: Any) -> Iterator[World]:
    """One of the processes; `place` is where they meet: a store, a rank, a world size."""
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=PATIENCE, **place
    )
    world = World(dist.get_rank(), dist.get_world_size())
    try:
        with warnings.catch_warnings():
            if not world.leads:
                warnings.simplefilter("ignore", SeqlabWarning)
            yield world
    except RuntimeError as error:
        if not _parted(error):
            raise
        raise RunError(
            "another of the processes has ended before its time", hint="what it said tells why."
        ) from None
    finally:
        dist.destroy_process_group()


@contextmanager
def _leader(size: int) -> Iterator[World]:
    """This process and copies of its command, which share its threads and meet in a folder of their own."""
    threads, before = torch.get_num_threads(), os.environ.get(GLOO)
    loopback = next((name for _, name in if_nameindex() if name.startswith("lo")), "")
    torch.set_num_threads(max(1, threads // size))
    os.environ[GLOO] = before or loopback
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copies = [_started(rank, size, folder) for rank in range(1, size)]
        try:
            while len([*folder.glob("*.here")]) < len(copies):
                if any(copy.poll() is not None for copy in copies):
                    raise _explained(copies, folder)
                time.sleep(MOMENT)
            with _member(
                store=dist.FileStore(f"{folder}/{MEETING}", size), rank=0, world_size=size
            ) as world:
                try:
                    yield world
                except RuntimeError as error:
                    raise (_explained(copies, folder) if _parted(error) else error) from None
                finally:
                    _end(
                        copies
                    )  # before the company is dissolved, which waits for those who still talk
        finally:
            _end(copies)
            torch.set_num_threads(threads)
            os.environ.pop(GLOO)
            os.environ.update({} if before is None else {GLOO: before})


def _started(rank: int, size: int, folder: Path) -> subprocess.Popen[bytes]:
    """A copy of this command: the same words, in a session of its own, so that Ctrl-C is for the leader alone."""
    home = str(Path(errors.__file__).parent.parent)
    more = {COPY: f"{rank} {size} {folder}", "LOCAL_RANK": str(rank), "PYTHONPATH": home}
    more["OMP_NUM_THREADS"] = str(torch.get_num_threads())
    with (folder / f"{rank}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "seqlab", *sys.argv[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=os.environ | more,
            start_new_session=True,
        )


@contextmanager
def _copy(rank: str, size: str, folder: str) -> Iterator[World]:
    """One that was started: it has its share of the threads, and ends when the leader does, however that ends."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    threading.Thread(target=lambda: os.read(0, 1) or os._exit(1), daemon=True).start()
    Path(folder, f"{rank}.here").touch()
    store = dist.FileStore(f"{folder}/{MEETING}", int(size))
    with _member(store=store, rank=int(rank), world_size=int(size)) as world:
        yield world


def _explained(copies: list[subprocess.Popen[bytes]], folder: Path) -> RunError:
    """Which copy has gone, and its last words."""
    time.sleep(10 * MOMENT)  # the system tells of a broken connection before it tells of an end
    for rank, copy in enumerate(copies, start=1):
        if (code := copy.poll()) is not None:
            log = (folder / f"{rank}.log").read_text("utf-8", "replace").strip().splitlines()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            words = f": {log[-1]}" if log else ""
            return RunError(
                f"worker {rank} has ended before its time ({how}){words}",
                hint="the lines printed so far are whole. Fewer workers need less memory.",
            )
    return RunError(
        "a worker is not to be reached any more", hint="try again, or with fewer workers."
    )


def _end(copies: list[subprocess.Popen[bytes]]) -> None:
    """They write nothing, so nothing is lost."""
    for copy in copies:
        copy.kill()
        copy.communicate()


def _parted(error: RuntimeError) -> bool:
    """Whether this is how torch says that a connection was lost."""
    return "gloo" in str(error)


def _finish(work: Any) -> None:
    """Wait in small steps, so that Ctrl-C is heard meanwhile."""
    _until(work.is_completed)
    work.wait()


def _until(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(MOMENT)
