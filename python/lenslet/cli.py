"""Entry point of the command ``lenslet``."""

import signal
import sys

from ._lenslet import run_command


def main() -> int:
    """Run the command ``lenslet`` with the arguments of the process.

    Returns
    -------
    int
        Exit code: 0 done, 1 the run failed, 2 bad input, 130 interrupted.
    """
    # The command has a handler of its own, and Python's would raise an exception when it has ended.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return run_command(["lenslet", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
