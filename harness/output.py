"""Standard output and error that may be closed, full, or a pipe that nobody reads any more."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


def finished(command: Callable[[], int]) -> int:
    """The command's exit code once all that it printed is written, else that of `lost`. Python's
    own flush at exit would end in a traceback."""
    try:
        code = command()
        sys.stdout.flush()
    except OSError as error:
        if not is_lost(error):
            raise
        return lost(error)
    return code


def is_lost(error: OSError) -> bool:
    """Whether standard output is what could not be written: one line more cannot be either."""
    if isinstance(error, BrokenPipeError):
        return True
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):  # it goes to no file
        return False
    try:
        sys.stdout.flush()
        if error.filename is None:
            os.write(number, b"\n")
    except OSError:
        return True
    return False


def lost(error: OSError) -> int:
    """Drop what cannot be printed and return the exit code: 0 where nobody reads on, as with
    `| head`, else 2 and a line on stderr."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return 0
    reason = error.strerror or type(error).__name__
    complain(f"error: standard output cannot be written ({reason}); give it another place")
    return 2


def complain(text: str) -> None:
    """A line on stderr; where that is closed or full the exit code must tell alone."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
