"""Trusted values: the stored references, the faults that others met, and exact arithmetic.

Nothing here imports the helpers, so whatever these functions say is independent of them.
"""

import inspect
import json
import re
from decimal import Decimal, localcontext
from pathlib import Path

from hypothesis import settings

FOLDER = Path(__file__).parent / "reference"

# Every run tries the same examples: a test that fails for one learner fails for all of them.
few = settings(max_examples=25, deadline=None, derandomize=True, database=None)
many = settings(max_examples=100, deadline=None, derandomize=True, database=None)


def reference(name):
    """The contents of one of the stored files of trusted values."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def faults(*helpers):
    """Faults that people met in other implementations of these helpers, by their id."""
    return {fault["id"]: fault for fault in reference("known_faults") if fault["helper"] in helpers}


def untested(known, namespace):
    """The ids of known faults that no test of this module carries (`SIN-01` is `sin_01` in its name).

    A test counts only if it can fail: it asserts something, or expects an error.
    """
    tests = [
        name
        for name, test in namespace.items()
        if name.startswith("test_") and re.search(r"\bassert|raises\(|warns\(", inspect.getsource(test))
    ]
    return [key for key in known if not any(key.lower().replace("-", "_") in name for name in tests)]


# The first 80 digits of pi.
PI = Decimal("3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986")


def exact_angle(position, exponent, base=10_000):
    """position / base**exponent with 70 digits; the exponent is a pair (numerator, denominator)."""
    with localcontext() as context:
        context.prec = 70
        return Decimal(position) * Decimal(base) ** (-Decimal(exponent[0]) / Decimal(exponent[1]))


def exact_sine_cosine(angle):
    """Sine and cosine of a Decimal, by the power series after whole turns are taken off, rounded once."""
    with localcontext() as context:
        context.prec = 70
        angle -= (angle / (2 * PI)).to_integral_value() * 2 * PI
        sums, term, n = [Decimal(0), Decimal(0)], Decimal(1), 0
        while abs(term) > Decimal("1e-40"):
            sums[n % 2] += term * (-1) ** (n // 2)
            n += 1
            term *= angle / n
        return float(sums[1]), float(sums[0])
