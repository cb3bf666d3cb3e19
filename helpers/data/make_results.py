"""Train 5 seeds of 7 schemes on both tasks, and write what notebooks 06 and 07 ship: `make sweep`.

extrapolation.npz holds, for each scheme, what helpers.training.evaluate measured, one row for each seed, and
the settings, versions and code it came from. "sinusoidal, random starts" is the aside of notebook 06.
rope_models.npz holds the weights of the five RoPE models, as float16. It takes about a quarter of an hour on
two cores; models that were trained before are found again in the cache.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from helpers import cache
from helpers.schemes import SCHEMES
from helpers.training import LENGTH, REACH, RECALL_DISTANCES, RECALL_STEPS, STARTS, Settings, sweep

SEEDS = range(5)


def main(folder: Path) -> None:
    """Train what is missing, and write both files into folder."""
    text = [Settings(scheme, seed) for scheme in SCHEMES for seed in SEEDS]
    recall = [Settings(scheme, seed, "recall", RECALL_STEPS) for scheme in SCHEMES for seed in SEEDS]
    anywhere = [Settings("sinusoidal", seed, random_start=REACH - LENGTH) for seed in SEEDS]
    runs = dict(zip([*text, *recall, *anywhere], sweep([*text, *recall, *anywhere]), strict=True))
    groups = {scheme: [one for one in (*text, *recall) if one.scheme == scheme] for scheme in SCHEMES}
    results: dict[str, np.ndarray] = {}
    for group, members in {**groups, "sinusoidal, random starts": anywhere}.items():
        for task in sorted({one.task for one in members}):
            of_task = [runs[one] for one in members if one.task == task]
            results[f"{group}/{task} training"] = np.stack([run.losses for run in of_task])
            for name in of_task[0].scores:
                if task == "text" or name == "accuracy":
                    results[f"{group}/{name}"] = np.stack([run.scores[name] for run in of_task])
    # Curves of the training and snapshots of tables are only looked at: half precision will do.
    coarse = ("training", "after")
    results = {
        name: array.astype(np.float16 if any(word in name for word in coarse) else np.float32)
        for name, array in results.items()
    }
    about = {
        "code": cache.code_version(),
        "settings": {"text": asdict(text[0]), "recall": asdict(recall[0])},
        "seeds": list(SEEDS),
        "length": LENGTH,
        "reach": REACH,
        "starts": STARTS,
        "recall distances": RECALL_DISTANCES,
        "versions": {"python": sys.version.split()[0], "numpy": np.__version__},
    }
    results["about"] = np.array(json.dumps(about, sort_keys=True))
    cache.ship(folder / "extrapolation.npz", results)
    weights = {
        f"{run.settings.seed}/{name}": array.astype(np.float16)
        for run in (runs[one] for one in text if one.scheme == "rope")
        for name, array in run.parameters.items()
    }
    cache.ship(folder / "rope_models.npz", weights)


if __name__ == "__main__":
    main(Path(__file__).parent)
