"""In the background of a script interrupts are ignored, and all children inherit that: not for the tests."""

import signal

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
