"""Where the tests run in the background of a script, interrupts are ignored, and all children inherit that."""

import signal

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
