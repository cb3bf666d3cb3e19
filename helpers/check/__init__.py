"""What the notebooks check: claims of the text, where they are made, and the learner's own functions.

check.NAME(function) checks an exercise; check.progress() shows which ones are solved.
"""

from helpers.check import (
    context_extension,
    extrapolation,
    learned,
    order_blindness,
    relative_bias,
    rope,
    sinusoidal,
)
from helpers.check.claims import ClaimFailed, claim
from helpers.check.exercises import Exercise
from helpers.check.notes import solved

_MODULES = (order_blindness, sinusoidal, learned, rope, relative_bias, extrapolation, context_extension)
EXERCISES: dict[str, Exercise] = {
    name: value for module in _MODULES for name, value in vars(module).items() if isinstance(value, Exercise)
}
globals().update(EXERCISES)

__all__ = ["EXERCISES", "ClaimFailed", "claim", "progress", *EXERCISES]


def __getattr__(name: str) -> object:
    """Say of a check that is gone what a copy of a notebook from before an update may still call."""
    raise AttributeError(
        f"there is no check.{name} in the installed course: your notebook is from another version of it. "
        "Start the course again (make lab): it says how to get the newer notebook beside yours."
    )


def progress() -> None:
    """Print, notebook by notebook, which exercises were solved on this machine."""
    for notebook in sorted({one.notebook for one in EXERCISES.values()}):
        own = [one for one in EXERCISES.values() if one.notebook == notebook]
        done = [solved(notebook, one.name) for one in own]
        print(f"{notebook}   {sum(done)} of {len(own)} solved")
        for one, is_solved in zip(own, done, strict=True):
            print(f"     {'✓' if is_solved else '·'} {one.title}")
