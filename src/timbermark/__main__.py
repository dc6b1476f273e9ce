"""``python -m timbermark`` is the command ``timbermark``; nothing is imported before `run`."""

import signal
import sys


def run() -> None:
    """Run the command line and end the process with its exit code.

    An interruption is reported from the first import on, and ignored once the command is done.
    Code that is interrupted may raise something else: Python 3.11 makes a RuntimeError of an
    interruption in ``__set_name__``, and extension modules make what they like. Therefore the
    signal itself is noted.
    """
    interrupted = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        from timbermark.cli import main

        code = main(
            interrupted=lambda: interrupted,
            finish=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
    except (Exception, KeyboardInterrupt):
        if not interrupted:
            raise
        print("timbermark: Interrupted. Nothing was written.", file=sys.stderr)
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    run()
