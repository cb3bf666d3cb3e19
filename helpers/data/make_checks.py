"""Train what a conclusion must survive: the last stage of `make sweep`, after make_race.py.

checks.npz holds for each group of helpers.race.checks what race.npz holds of groups of two seeds: more steps,
longer texts in training, wider heads, another author. It takes about ten minutes on two cores; what was
trained before is found again in the cache.
"""

from pathlib import Path

from make_race import gathered

from helpers import cache, race

if __name__ == "__main__":
    cache.ship(Path(__file__).parent / "checks.npz", gathered(race.checks())[0])
