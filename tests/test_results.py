"""The shipped results of notebooks 06 and 07: whole, up to date, and what the notebooks say of them holds."""

import json
from pathlib import Path

import numpy as np
import pytest

from helpers import cache, results
from helpers.results import lost, measured
from helpers.schemes import SCHEMES
from helpers.training import (
    LENGTH,
    REACH,
    RECALL_DISTANCES,
    RECALL_STEPS,
    SNAPSHOTS,
    STARTS,
    Settings,
    corpus,
    sweep,
    token_losses,
    windows,
)
from helpers.transformer import new_decoder

DATA = Path(results.__file__).parent / "data"
SHIPPED = ("extrapolation.npz", "rope_models.npz")
SEEDS = 5
STEPS = Settings("none").steps
ASIDE = "sinusoidal, random starts"
TEXT = {"all": (REACH,), "window": (REACH,), "sharpened": (REACH,), "start": (len(STARTS),)}
TEXT |= {"text training": (STEPS,)}
RECALL = {"accuracy": (len(RECALL_DISTANCES),), "recall training": (RECALL_STEPS,)}
OWN = {"learned": {"table": (64, 64)}, "shaw": {"key_table": (65, 16)}, "t5": {"table": (16, 4)}}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache folder of the test's own, so that what is trained here is trained anew."""
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))


# the files


def test_each_scheme_has_all_measures_of_five_seeds():
    expected = {"about": ()}
    for scheme in SCHEMES:
        snapshots = {
            f"{name} after {step}": shape for name, shape in OWN.get(scheme, {}).items() for step in SNAPSHOTS
        }
        for name, shape in (TEXT | RECALL | snapshots).items():
            expected[f"{scheme}/{name}"] = (SEEDS, *shape)
    expected |= {f"{ASIDE}/{name}": (SEEDS, *shape) for name, shape in TEXT.items()}
    with np.load(DATA / "extrapolation.npz", allow_pickle=False) as stored:
        assert {name: stored[name].shape for name in stored.files} == expected
        for name in stored.files:
            assert name == "about" or np.isfinite(stored[name]).all(), name


def test_losses_and_shares_are_possible():
    for scheme in SCHEMES:
        for name in ("all", "window", "sharpened", "start"):
            assert ((measured(scheme, name) > 1) & (measured(scheme, name) < 20)).all()
        assert ((measured(scheme, "accuracy") >= 0) & (measured(scheme, "accuracy") <= 1)).all()
        for task in ("text", "recall"):
            training = measured(scheme, f"{task} training")
            assert (training[:, -50:].mean(axis=1) < training[:, :5].mean(axis=1) - 0.2).all()


def test_seeds_are_five_different_trainings():
    for scheme in SCHEMES:
        for name in ("all", "text training", "recall training"):
            assert len({row.tobytes() for row in measured(scheme, name)}) == SEEDS


def test_the_files_are_from_this_code():
    """After a change of the code of schemes or training, `make sweep` has to be run again."""
    assert results.about()["code"] == cache.code_version()


def test_about_says_how_they_were_made():
    about = results.about()
    for task, steps in (("text", STEPS), ("recall", RECALL_STEPS)):
        expected = {
            name: getattr(Settings("none", 0, task, steps), name) for name in Settings.__annotations__
        }
        assert about["settings"][task] == {**expected, "scheme": about["settings"][task]["scheme"]}
    assert about["seeds"] == list(range(SEEDS))
    assert (about["length"], about["reach"]) == (LENGTH, REACH)
    assert about["starts"] == list(STARTS)
    assert about["recall distances"] == list(RECALL_DISTANCES)
    assert about["versions"].keys() == {"python", "numpy"}
    assert json.dumps(about)


def test_the_files_are_small():
    assert sum((DATA / name).stat().st_size for name in SHIPPED) < 1.5e6


def test_what_was_not_measured_is_named():
    with pytest.raises(KeyError, match="'rope/recal'"):
        measured("rope", "recal")


def test_lost_is_the_mean_up_to_a_length_less_that_up_to_the_trained_one():
    rows = measured("rope", "window")
    expected = rows[:, :128].mean(axis=1) - measured("rope", "all")[:, :64].mean(axis=1)
    np.testing.assert_allclose(lost("rope", 128, "window"), expected)
    assert not lost("rope", LENGTH).any()


def test_the_rope_models_are_those_that_were_measured():
    fresh = new_decoder("rope", 62)
    held_out = corpus()[1]
    pieces = windows(held_out, 96, REACH + 1, np.random.default_rng(2026))[:, : LENGTH + 1]  # as evaluate's
    models = results.rope_models()
    assert [one.settings for one in models] == [Settings("rope", seed) for seed in range(SEEDS)]
    for seed, one in enumerate(models):
        assert {n: a.shape for n, a in one.parameters.items()} == {
            n: a.shape for n, a in fresh.parameters.items()
        }
        assert {array.dtype for array in one.parameters.values()} == {np.dtype(np.float32)}
        np.testing.assert_array_equal(one.losses, measured("rope", "text training")[seed])
        found = token_losses(one.decoder(), pieces).mean(axis=0)
        assert np.abs(found - one.scores["all"][:LENGTH]).max() < 0.01  # weights are rounded to float16
        assert abs(found.mean() - one.scores["all"][:LENGTH].mean()) < 0.002


# what the notebooks say, over all five seeds


def test_sinusoidal_loses_at_twice_the_length():
    assert lost("sinusoidal", 2 * LENGTH).min() >= 0.2


def test_alibi_loses_next_to_nothing_at_eight_times_the_length():
    assert lost("alibi", 8 * LENGTH).max() <= 0.05


def test_rope_loses_at_four_times_the_length():
    assert lost("rope", 4 * LENGTH).min() >= 0.3


def test_rope_with_a_window_of_64_keys_loses_next_to_nothing_at_eight_times_the_length():
    assert lost("rope", 8 * LENGTH, "window").max() <= 0.05


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned"])
def test_absolute_schemes_lose_when_the_text_starts_at_64(scheme):
    start = measured(scheme, "start")
    assert (start[:, STARTS.index(64)] - start[:, STARTS.index(0)]).min() >= 0.1


def test_rope_loses_nothing_when_the_text_starts_at_64():
    start = measured("rope", "start")
    assert np.abs(start[:, STARTS.index(64)] - start[:, STARTS.index(0)]).max() < 1e-3


# the code still gives these numbers


def summary(scores):
    """Losses at lengths of text, with a window, and from other starts, by name; for one seed or for all."""
    means = {length: scores["all"][..., :length].mean(axis=-1) for length in (64, 128, 256, 512)}
    means["window"] = scores["window"].mean(axis=-1)
    return means | {f"start {at}": scores["start"][..., place] for place, at in enumerate(STARTS)}


def test_models_trained_now_lie_within_the_shipped_band():
    """The band of the five seeds, on each side half as wide again, or at least 0.03 nats wider."""
    outside = []
    for one in sweep([Settings("rope"), Settings("alibi")]):
        scheme = one.settings.scheme
        shipped = summary({name: measured(scheme, name) for name in ("all", "window", "start")})
        for name, loss in summary(one.scores).items():
            low, high = shipped[name].min(), shipped[name].max()
            margin = max((high - low) / 2, 0.03)
            if not low - margin <= loss <= high + margin:
                outside.append(f"{scheme} {name}: {loss:.3f} is not in {low:.3f} to {high:.3f}")
    assert outside == []
