"""Ctrl-C, SIGTERM and SIGHUP: the first one saves and stops within two seconds, the second one stops at once.

Nothing here imports torch, so that a signal is answered while that loads.
"""

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import typer

from seqlab.cli.command import INTERRUPTED, program
from seqlab.machine import StopNowError, finish_up, must_wait

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HEARING = 0.6  # seconds in which the work should have noticed a signal
PATIENCE = 1.2  # seconds in which it should then have ended by itself
STDOUT, STDERR = 1, 2


class Interrupt:
    """Whether a signal has asked for a stop, and what happens then.

    Work that can be done again ends with an exception. A run is asked to stop after its step. A long computation inside
    a library hears neither: then a thread that waits for signals saves what there is to save and ends the process.
    """

    def __init__(self, *, patient: bool = False, advice: str = "") -> None:
        """If `patient`, the work may take as long as it likes after the first signal; `advice` says how to go on."""
        self.asked = False
        self.noticed = False  # by the work
        self.folder: Path | None = None  # of the run, once it lies there
        self.patient = patient
        self._advice = advice

    def __call__(self) -> bool:
        self.noticed = self.asked
        return self.asked

    def begun(self, folder: Path) -> None:
        self.folder = folder

    @property
    def advice(self) -> str:
        """What somebody should know whose training was interrupted."""
        if self._advice:
            return self._advice
        if self.folder is None:
            return "interrupted before the training began; nothing was left behind"
        return f"interrupted; go on with: {program()} train --resume --out {self.folder}"

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within this block, this decides about signals. One that is ignored, as SIGHUP is under nohup, stays so.

        A process that was interrupted ends with the block, without the second that Python and torch need to tidy up.
        """
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        heeded = [
            name
            for name in SIGNALS
            if name == signal.SIGINT or signal.getsignal(name) != signal.SIG_IGN
        ]
        before = {name: signal.signal(name, self._ask) for name in heeded}
        wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        watcher = threading.Thread(target=self._watch, args=(reader,), daemon=True)
        watcher.start()
        try:
            yield
        except (KeyboardInterrupt, typer.Exit) as end:
            if not self.asked:
                raise
            _end("" if isinstance(end, typer.Exit) else f"\n{self.advice}\n")
        finally:
            signal.set_wakeup_fd(wakeup)
            for name, handler in before.items():
                signal.signal(name, handler)
            os.close(writer)  # which ends the watcher
            watcher.join()
            os.close(reader)

    def _ask(self, number: int, frame: object) -> None:
        if self.asked:
            return  # the watcher ends the process
        self.asked = True
        if not must_wait():
            self.noticed = True
            raise StopNowError

    def _watch(self, reader: int) -> None:
        """Wait for the first signal, then for the second or until the work should have answered; then end it."""
        if not os.read(reader, 1):
            return
        if must_wait():
            _say("\nstopping after this step and saving (once more stops at once)\n")
        more = _next(reader, None if self.patient else HEARING)
        if more is None and self.noticed:
            more = _next(reader, PATIENCE - HEARING)
        if more == b"":
            return  # the work has ended
        finish_up(save=more is None)
        _say(f"\n{self.advice}\n" if more is None else "\ninterrupted\n")
        os._exit(INTERRUPTED)


def _next(reader: int, seconds: float | None) -> bytes | None:
    """What the next signal has written, nothing if there will be none, None if none has come in that time."""
    ready, _, _ = select.select([reader], [], [], seconds)
    return os.read(reader, 1) if ready else None


def _end(words: str) -> NoReturn:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    _say(words)
    os._exit(INTERRUPTED)


def _say(text: str) -> None:
    """Write to stderr; not by `print`, which may be at work already when a signal comes.

    Where the terminal is gone, nothing can be written any more, and nobody should fail because of that.
    """
    try:
        os.write(STDERR, text.encode())
    except OSError:
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, STDOUT)
            os.dup2(nowhere, STDERR)
