"""Signals: the first Ctrl-C, SIGTERM or SIGHUP saves and stops within two seconds, the second stops at once.

Nothing here imports torch, so that a signal is handled even while torch loads.
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
NOTICE_WITHIN = 0.6  # seconds until the main thread should have noticed a signal
END_WITHIN = 1.2  # seconds until it should have ended by itself
STDOUT, STDERR = 1, 2


class Interrupt:
    """Handles signals during a command, and is the function that a run calls to ask whether it must stop.

    Work that can be repeated is ended by an exception. A run stops after its step. A long computation inside a library
    does neither, so a second thread waits for signals, saves the run, and ends the process.
    """

    def __init__(self, *, patient: bool = False, advice: str = "") -> None:
        """Wait without a time limit after the first signal if `patient`; print `advice` at the end."""
        self.requested = False
        self.noticed = False  # whether the main thread knows of the request
        self.folder: Path | None = None  # of the run, once it exists
        self.patient = patient
        self._advice = advice

    def __call__(self) -> bool:
        """Return whether a stop was requested."""
        self.noticed = self.requested
        return self.requested

    def begun(self, folder: Path) -> None:
        """Note that there is a run to resume."""
        self.folder = folder

    @property
    def advice(self) -> str:
        """The message at the end: how to continue."""
        if self._advice:
            return self._advice
        if self.folder is None:
            return "interrupted before the training began; nothing was written"
        return f"interrupted; to continue: {program()} train --resume --out {self.folder}"

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Handle signals in this block. SIGTERM and SIGHUP stay ignored if they were, as SIGHUP is under nohup.

        After an interruption the process ends with the block: Python and torch would need another second to exit.
        """
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        handled = [
            number
            for number in SIGNALS
            if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN
        ]
        old_handlers = {number: signal.signal(number, self._request) for number in handled}
        old_wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        watcher = threading.Thread(target=self._watch, args=(reader,), daemon=True)
        watcher.start()
        try:
            yield
        except (KeyboardInterrupt, typer.Exit) as end:
            if not self.requested:
                raise
            _end_process("" if isinstance(end, typer.Exit) else f"\n{self.advice}\n")
        finally:
            signal.set_wakeup_fd(old_wakeup)
            for number, handler in old_handlers.items():
                signal.signal(number, handler)
            os.close(writer)  # ends the watcher
            watcher.join()
            os.close(reader)

    def _request(self, number: int, frame: object) -> None:
        if self.requested:
            return  # the watcher ends the process
        self.requested = True
        if not must_wait():
            self.noticed = True
            raise StopNowError

    def _watch(self, reader: int) -> None:
        """Wait for the first signal; end the process at the second one, or if the work has not ended in time."""
        if not os.read(reader, 1):
            return
        if must_wait():
            _write_stderr("\nstopping after this step and saving (Ctrl-C again stops at once)\n")
        second = _read_signal(reader, None if self.patient else NOTICE_WITHIN)
        if second is None and self.noticed:
            second = _read_signal(reader, END_WITHIN - NOTICE_WITHIN)
        if second == b"":
            return  # the work has ended
        finish_up(save=second is None)
        _write_stderr(f"\n{self.advice}\n" if second is None else "\ninterrupted\n")
        os._exit(INTERRUPTED)


def _read_signal(reader: int, seconds: float | None) -> bytes | None:
    """Return the byte of the next signal, b"" if the pipe was closed, None if there is none within that time."""
    ready, _, _ = select.select([reader], [], [], seconds)
    return os.read(reader, 1) if ready else None


def _end_process(message: str) -> NoReturn:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    _write_stderr(message)
    os._exit(INTERRUPTED)


def _write_stderr(text: str) -> None:
    """Write to stderr without `print`, which the signal may have interrupted.

    If the terminal is gone, further output goes to /dev/null, so that nothing fails because of it.
    """
    try:
        os.write(STDERR, text.encode())
    except OSError:
        with suppress(OSError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, STDOUT)
            os.dup2(null, STDERR)
