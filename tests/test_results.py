"""The results of notebooks 03, 06 and 07: means of what is stored; and the files, whole and up to date.

What the numbers say is claimed in the notebooks, and checked there.
"""

import json
from dataclasses import asdict
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from bad_input import NOT_A_COUNT, cases, refuses
from threadpoolctl import threadpool_limits

from helpers import cache, measures, race, recall, results, stretching, text, training
from helpers.context_extension import unscaled
from helpers.measures import BLOCKS, STARTS, token_losses
from helpers.results import at_end, by_block, loss_at, loss_between, lost, measured, stretched_loss
from helpers.schemes import SCHEMES, spec
from helpers.stretching import FACTORS, FINE_TUNED, METHODS, PAIRS
from helpers.text import LENGTH, REACH
from helpers.training import SNAPSHOTS, Run, Settings

DATA = Path(results.__file__).parent / "data"
SEEDS, BINS = 5, REACH // 8
LOSSES = ("all", "window", "sharpened")
ROPES = {"rope, usual": "", "rope, base 1000": "base 1000/"}  # groups, and how names of theirs begin
BASES = [1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6]
LARGEST = {  # bytes
    "grid.npz": 1e5,
    "race.npz": 6e5,
    "checks.npz": 1.2e5,
    "recall.npz": 3e4,
    "rope_models.npz": 2.2e6,
    "live_models.npz": 1.6e6,
    "context_extension.npz": 1.3e5,
    "tuning_rates.npz": 1.5e4,
    "language_model.npz": 1.3e5,
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache folder of the test's own, so that what is trained here is trained anew."""
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))


# what is made of stored numbers, with made-up ones


@pytest.fixture
def made_up(monkeypatch):
    """Files made by hand, in place of the shipped ones; returns what they hold."""
    rng = np.random.default_rng(0)

    def numbers(*shape):
        return rng.uniform(1, 5, shape).astype(np.float32)

    files = {
        "race.npz": {f"five/{name}": numbers(5, 8, 64) for name in LOSSES}
        | {"five/choosing": numbers(5), "five/start": numbers(5, 4), "five/far": numbers(2, 2, 3)}
        | {"five/table after 50": numbers(5, 64, 64), "two/all": numbers(2, 64), "two/window": numbers(2, 64)}
        | {"about": np.array('{"code": {"rope": "abc"}, "settings": [1]}')},
        "checks.npz": {"two, longer/all": numbers(2, 64), "about": np.array('{"code": "checks"}')},
        "recall.npz": {"five/recall": numbers(3, 10), "about": np.array('{"code": "recall"}')},
        "context_extension.npz": {"window": numbers(5, 64), "one pair": numbers(5, 8, 64)}
        | {"yarn/as it is": numbers(5, 3, 64), "yarn/fine-tuned": numbers(5, 64)}
        | {"about": np.array('{"code": "stretched"}')},
    }
    monkeypatch.setattr(results, "_stored", files.__getitem__)
    return files


def by_position(group, name="all"):
    """Losses by position, (n_seeds, REACH), each bin's mean standing for its eight positions."""
    return np.repeat(measured(group, name).astype(float), 8, axis=1)


@pytest.mark.parametrize("name", LOSSES)
def test_the_losses_of_five_seeds_are_means_over_blocks(made_up, name):
    stored = made_up["race.npz"][f"five/{name}"].astype(float)
    expected = [[sum(row[block][b] for block in range(8)) / 8 for b in range(64)] for row in stored]
    assert measured("five", name).shape == (5, 64)
    np.testing.assert_allclose(measured("five", name), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("group", "name"),
    [("five", name) for name in ("choosing", "start", "far", "table after 50")]
    + [("two", "all"), ("two", "window"), ("two, longer", "all")],
)
def test_what_has_no_blocks_is_returned_as_it_is(made_up, group, name):
    """Far looks and tables have three dimensions, too, and the second is no block of text."""
    file = made_up["checks.npz" if "," in group else "race.npz"]
    np.testing.assert_array_equal(measured(group, name), file[f"{group}/{name}"])


@pytest.mark.parametrize("name", LOSSES)
def test_by_block_keeps_the_blocks(made_up, name):
    found = by_block("five", name)
    assert found.shape == (5, 8, REACH // 8)
    np.testing.assert_array_equal(found, made_up["race.npz"][f"five/{name}"])
    np.testing.assert_allclose(found.mean(axis=1), measured("five", name), rtol=1e-6)
    np.testing.assert_array_equal(by_block("five"), made_up["race.npz"]["five/all"])


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("group", ["five", "two", "two, longer"])
@pytest.mark.parametrize("length", [8, 16, 64, 128, 504, 512])
def test_loss_at_is_the_mean_up_to_a_length(group, length):
    expected = [sum(row[p] for p in range(length)) / length for row in by_position(group)]
    np.testing.assert_allclose(loss_at(group, length), expected, rtol=1e-5)


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(("first", "end"), [(0, 8), (0, 512), (64, 128), (448, 512), (504, 512), (8, 504)])
def test_loss_between_is_the_mean_of_these_positions_alone(first, end):
    for group, name in (("five", "sharpened"), ("two", "window")):
        rows = by_position(group, name)
        expected = [sum(row[p] for p in range(first, end)) / (end - first) for row in rows]
        np.testing.assert_allclose(loss_between(group, first, end, name), expected, rtol=1e-5)


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("name", ["all", "window"])
def test_at_end_is_the_mean_of_the_last_64_positions(name):
    np.testing.assert_allclose(
        at_end("five", name), by_position("five", name)[:, 448:].mean(axis=1), rtol=1e-5
    )


@pytest.mark.usefixtures("made_up")
def test_without_a_name_all_keys_are_meant():
    np.testing.assert_array_equal(loss_at("five", 128), loss_at("five", 128, "all"))
    np.testing.assert_array_equal(loss_between("five", 64, 128), loss_between("five", 64, 128, "all"))
    np.testing.assert_array_equal(at_end("five"), at_end("five", "all"))
    np.testing.assert_array_equal(lost("five", 128), lost("five", 128, "all"))
    assert (loss_at("five", 128) != loss_at("five", 128, "window")).all()


@pytest.mark.usefixtures("made_up")
def test_lost_is_the_mean_up_to_a_length_less_that_up_to_the_trained_one():
    """Whatever is asked for, it is compared with all keys at the trained length."""
    rows, with_all = by_position("five", "window"), by_position("five")
    expected = rows[:, :128].mean(axis=1) - with_all[:, :64].mean(axis=1)
    np.testing.assert_allclose(lost("five", 128, "window"), expected, rtol=1e-5)
    assert not lost("five", LENGTH).any()
    assert lost("five", LENGTH, "window").all()


NOT_STORED = [1, 7, 60, 65, 100, 511]  # losses are kept in bins of 8
TOO_LONG = [520, 1024]


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("length", [*NOT_STORED, *TOO_LONG, 0, -8])
def test_a_length_that_was_not_measured_is_refused(length):
    for call in (loss_at, lost):
        message = refuses(lambda call=call: call("five", length), ValueError, "length", length)
        assert "8" in message
    refuses(lambda: loss_between("five", 0, length), ValueError, "end", length)


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("first", [*NOT_STORED, *TOO_LONG, -8, -1])
def test_a_beginning_that_was_not_measured_is_refused(first):
    refuses(lambda: loss_between("five", first, 512), ValueError, "first", first)


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(("first", "end"), [(64, 64), (128, 64), (512, 512), (512, 8)])
def test_no_positions_have_no_loss(first, end):
    refuses(lambda: loss_between("five", first, end), ValueError, "first", first)


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("wrong", cases(NOT_A_COUNT))
def test_a_length_that_is_no_count_is_refused(wrong):
    refuses(lambda: loss_at("five", wrong), TypeError, "length", wrong)
    refuses(lambda: lost("five", wrong), TypeError, "length", wrong)
    refuses(lambda: loss_between("five", wrong, 64), TypeError, "first", wrong)
    refuses(lambda: loss_between("five", 0, wrong), TypeError, "end", wrong)


CALLS = {
    "measured": measured,
    "by_block": by_block,
    "loss_at": lambda group, name: loss_at(group, 64, name),
    "loss_between": lambda group, name: loss_between(group, 0, 64, name),
    "at_end": at_end,
    "lost": lambda group, name: lost(group, 64, name),
}


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("group", "name"), [("five", "al"), ("six", "all"), ("", ""), ("two", "about")])
def test_what_was_not_measured_is_named_with_what_there_is(call, group, name):
    with pytest.raises(KeyError) as caught:
        CALLS[call](group, name)
    said = str(caught.value)
    assert "group and name must be one of" in said
    assert f"but got {f'{group}/{name}'!r}" in said
    for known in ("five/all", "five/far", "two/window", "two, longer/all"):  # of both files
        assert repr(known) in said
    assert "'about'" not in said


def test_about_is_what_a_file_says_of_itself(made_up):
    assert results.about() == {"code": {"rope": "abc"}, "settings": [1]}
    for name in made_up:
        assert results.about(name) == json.loads(str(made_up[name]["about"]))
    assert results.about_stretched() == {"code": "stretched"}


def test_recalled_is_what_was_stored(made_up):
    np.testing.assert_array_equal(results.recalled("five", "recall"), made_up["recall.npz"]["five/recall"])


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(("line", "name"), [("five", "all"), ("two", "recall"), ("", "about")])
def test_what_was_not_measured_on_recall_is_named(line, name):
    with pytest.raises(KeyError) as caught:
        results.recalled(line, name)
    said = str(caught.value)
    assert "line and name must be one of ['five/recall']" in said
    assert f"but got {f'{line}/{name}'!r}" in said


# the stretched models, with made-up numbers


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("name", ["rope/all", "one pear", "about", ""])
def test_what_was_not_measured_on_stretched_models_is_named(name):
    with pytest.raises(KeyError) as caught:
        results.stretched(name)
    said = str(caught.value)
    assert f"but got {name!r}" in said
    assert "name must be one of" in said
    assert "'one pair'" in said
    assert "'yarn/fine-tuned'" in said
    assert "'about'," not in said


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("length", [8, 64, 128, 256, 512])
def test_stretched_loss_is_the_mean_up_to_a_length(length):
    for name, index in (("window", ()), ("yarn/as it is", (1,)), ("one pair", (3,)), ("yarn/fine-tuned", ())):
        rows = results.stretched(name)
        expected = [
            np.mean([row[(*index, slice(None))][b] for b in range(length // 8)], dtype=float) for row in rows
        ]
        np.testing.assert_allclose(stretched_loss(name, length, *index), expected, rtol=1e-5)


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(("length", "last"), [(64, 8), (128, 16), (256, 64), (512, 16), (512, 512)])
def test_stretched_loss_of_the_last_characters(length, last):
    for name, index in (("window", ()), ("yarn/as it is", (2,)), ("one pair", (0,))):
        rows = results.stretched(name)[:, *index]
        expected = [np.mean([row[b] for b in range((length - last) // 8, length // 8)]) for row in rows]
        np.testing.assert_allclose(stretched_loss(name, length, *index, last=last), expected, rtol=1e-5)


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("length", [*NOT_STORED, *TOO_LONG, 0, -8])
def test_a_length_that_was_not_measured_on_stretched_models_is_refused(length):
    refuses(lambda: stretched_loss("window", length), ValueError, "length", length)
    refuses(lambda: stretched_loss("one pair", length, 3, last=8), ValueError, "length", length)


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("last", [1, 12, 0, -8, 136, 1024])
def test_last_characters_that_a_text_does_not_have_are_refused(last):
    refuses(lambda: stretched_loss("window", 128, last=last), ValueError, "last", last)


# the shipped RoPE models, with made-up weights


@pytest.fixture
def made_up_models(monkeypatch):
    """Two groups of two models each in made-up files; returns the weights by group and seed."""
    rng = np.random.default_rng(1)
    bases = {"rope, usual": 10_000, "rope, base 1000": 1000}
    groups = {
        name: [Settings(spec("rope", base=base), seed) for seed in (0, 1)] for name, base in bases.items()
    }
    weights = {
        (name, one.seed): {
            key: rng.normal(size=array.shape).astype(np.float16)
            for key, array in one.new_decoder().parameters.items()
        }
        for name, group in groups.items()
        for one in group
    }
    scores = {"choosing": (2,), "start": (2, 4)} | dict.fromkeys(LOSSES, (2, 8, 64))
    files = {
        "race.npz": {
            f"{name}/{key}": rng.uniform(size=shape)
            for name in (*groups, "rope", "alibi")
            for key, shape in scores.items()
        },
        "rope_models.npz": {
            f"{name}/{seed}/{key}": array
            for (name, seed), arrays in weights.items()
            for key, array in arrays.items()
        },
    }
    monkeypatch.setattr(results, "_stored", files.__getitem__)
    monkeypatch.setattr(race, "groups", lambda: groups)
    results.rope_models.cache_clear()
    yield weights
    results.rope_models.cache_clear()


@pytest.mark.parametrize("name", ROPES)
def test_rope_models_are_runs_of_their_group(made_up_models, name):
    found = results.rope_models(name)
    assert [one.settings for one in found] == race.groups()[name]
    for seed, one in enumerate(found):
        assert isinstance(one, Run)
        expected = made_up_models[name, seed]
        assert one.parameters.keys() == expected.keys()
        for key, array in one.parameters.items():
            assert array.dtype == np.float32
            np.testing.assert_array_equal(array, expected[key])
        assert one.scores.keys() == {"choosing", "start", *LOSSES}
        for key, score in one.scores.items():
            np.testing.assert_array_equal(score, measured(name, key)[seed])
        assert one.scores["all"].shape == (BINS,)
        assert one.decoder().scheme.base == (1000 if "1000" in name else 10_000)


@pytest.mark.usefixtures("made_up_models")
def test_the_usual_rope_models_are_meant_unless_said():
    plain, usual = results.rope_models(), results.rope_models("rope, usual")
    assert [one.settings for one in plain] == [one.settings for one in usual]
    np.testing.assert_array_equal(plain[1].parameters["0.qkv"], usual[1].parameters["0.qkv"])


@pytest.mark.usefixtures("made_up_models")
@pytest.mark.parametrize("name", ["rope", "alibi", "nope"])
def test_a_group_whose_models_are_not_shipped_is_named(monkeypatch, name):
    """Some of these were raced, but have no weights here: they must not come as models of none."""
    raced = race.groups() | {group: [Settings(group, seed) for seed in (0, 1)] for group in ("rope", "alibi")}
    monkeypatch.setattr(race, "groups", lambda: raced)
    with pytest.raises((KeyError, ValueError), match="name must be one of") as caught:
        results.rope_models(name)
    assert [word for word in (*ROPES, name) if repr(word) not in str(caught.value)] == []


# the shipped files: whole


def shapes(name):
    """The shapes in a shipped file by name; no number in it is missing or infinite."""
    with np.load(DATA / name, allow_pickle=False) as stored:
        arrays = {key: stored[key] for key in stored.files}
    assert arrays["about"].shape == ()
    del arrays["about"]
    for key, array in arrays.items():
        assert np.isfinite(array).all(), key
    return {key: array.shape for key, array in arrays.items()}


def expected_of(groups):
    """The shapes of what was measured on groups of runs."""
    expected = {}
    for name, group in groups.items():
        blocks = (BLOCKS,) if len(group) == SEEDS else ()
        expected |= {f"{name}/{losses}": (len(group), *blocks, BINS) for losses in LOSSES}
        expected |= {f"{name}/choosing": (len(group),), f"{name}/start": (len(group), len(STARTS))}
    return expected


def test_each_group_of_the_race_has_all_measures_of_its_seeds():
    groups = race.groups()
    expected = expected_of(groups)
    expected |= {f"{name}/far": (2, 2, 3) for name, group in groups.items() if len(group) == SEEDS}
    expected |= {f"learned/table after {step}": (SEEDS, LENGTH, 64) for step in SNAPSHOTS}
    assert shapes("race.npz") == expected


def test_each_check_has_all_measures_of_its_seeds():
    assert shapes("checks.npz") == expected_of(race.checks())


def test_each_try_of_a_scheme_has_all_measures():
    expected = {}
    for scheme in SCHEMES:
        n = len(race.tried(scheme, "seed"))
        assert n >= len(race.grid(scheme)) + 3  # the best three have a second seed
        expected |= {f"{scheme}/{name}": (n,) for name in ("rate", "knob", "seed", "choosing")}
        expected |= {f"{scheme}/all": (n, BINS), f"{scheme}/window": (n, BINS)}
        expected |= {f"{scheme}/start": (n, len(STARTS))}
    assert shapes("grid.npz") == expected


def test_recall_has_all_measures():
    distances = len(recall.DISTANCES)
    expected = {f"stretched/{method}": (3, distances) for method in METHODS}
    expected |= {"stretched/home": (3, len(recall.HOME))}
    for line in race.lines():
        n = len(results.recalled(line, "seed"))
        own = {"home": (n, len(recall.HOME)), "recall": (n, distances), "right key": (n, distances)}
        own |= dict.fromkeys(("control", "choosing", "rate", "steps", "seed"), (n,)) | {"all": (n, BINS)}
        expected |= {f"{line}/{name}": shape for name, shape in own.items()}
    assert shapes("recall.npz") == expected


def test_each_stretched_model_has_all_measures():
    expected = {f"{method}/as it is": (SEEDS, len(FACTORS), BINS) for method in METHODS}
    for start in ROPES.values():
        pairs = ("one pair", "from this pair on", "one pair stopped")
        expected |= {f"{start}{name}": (SEEDS, PAIRS, BINS) for name in pairs}
        expected |= {f"{start}{name}": (SEEDS, BINS) for name in ("window", "as trained")}
    expected |= {"base": (SEEDS, len(BASES), BINS)}
    expected |= {"stale and fresh": (SEEDS, 2, len(stretching.STALE_LENGTHS))}
    expected |= {f"{method}/fine-tuned": (SEEDS, BINS) for method in FINE_TUNED}
    expected |= {f"{method}/steps": (SEEDS, 50) for method in FINE_TUNED}
    assert shapes("context_extension.npz") == expected


def test_fine_tuning_at_other_rates_has_all_measures():
    assert shapes("tuning_rates.npz") == dict.fromkeys(FINE_TUNED, (2, 3, BINS))


@pytest.mark.parametrize("method", FINE_TUNED)
def test_fine_tuning_is_the_same_in_both_files(method):
    rates = results.about("tuning_rates.npz")["rates"]
    own = results.tuned(method)[:, rates.index(stretching.TUNING_RATE)]
    np.testing.assert_allclose(
        own, results.stretched_loss(f"{method}/fine-tuned", 512, last=64)[:2], atol=1e-4
    )


@pytest.mark.parametrize("method", ["ntk_twice", "about", ""])
def test_a_method_that_was_not_fine_tuned_is_named(method):
    with pytest.raises(KeyError, match=r"method must be one of .*by_parts.*, but got"):
        results.tuned(method)


def test_the_shipped_models_have_all_weights():
    groups = {name: race.groups()[name] for name in ROPES}
    live = dict(zip(SCHEMES, ([one] for one in race.trained_here()), strict=True))
    for file, models in {"rope_models.npz": groups, "live_models.npz": live}.items():
        expected = {
            f"{name}/{one.seed}/{key}": array.shape
            for name, group in models.items()
            for one in group
            for key, array in one.new_decoder().parameters.items()
        }
        with np.load(DATA / file, allow_pickle=False) as stored:
            assert {key: stored[key].shape for key in stored.files} == expected
            assert {stored[key].dtype for key in stored.files} == {np.dtype(np.float16)}
            assert all(np.isfinite(stored[key]).all() for key in stored.files)


def test_the_files_are_these_and_small():
    assert {path.name for path in DATA.glob("*.npz")} == LARGEST.keys()
    large = {name: (DATA / name).stat().st_size for name in LARGEST}
    assert {name: size for name, size in large.items() if size > LARGEST[name]} == {}


# possible numbers


@pytest.mark.parametrize("file", [name for name in LARGEST if "model" not in name])
def test_losses_are_possible(file):
    """Of stretched models everything is a loss, and none of them is of a model that knows nothing."""
    stretched = file in ("context_extension.npz", "tuning_rates.npz")
    names, highest = {*LOSSES, "choosing", "start", "far"}, 8 if stretched else 20
    with np.load(DATA / file, allow_pickle=False) as stored:
        losses = {key: stored[key] for key in stored.files if stretched or key.rpartition("/")[2] in names}
    losses.pop("about", None)
    assert losses
    assert {key for key, each in losses.items() if not 1 < each.min() <= each.max() < highest} == set()


def test_shares_and_weights_of_recall_are_possible():
    for line, name in product(race.lines(), ("home", "recall", "right key", "control")):
        shares = results.recalled(line, name)
        assert ((shares >= 0) & (shares <= 1)).all()


@pytest.mark.parametrize("groups", [race.groups, race.checks])
def test_seeds_are_different_trainings(groups):
    for (name, group), losses in product(groups().items(), LOSSES):
        assert len({row.tobytes() for row in measured(name, losses)}) == len(group), name


def test_seeds_are_different_models_to_stretch():
    for name, prefix in product(("one pair", "window", "as trained"), ROPES.values()):
        assert len({row.tobytes() for row in results.stretched(prefix + name)}) == SEEDS
    for method in FINE_TUNED:
        assert len({row.tobytes() for row in results.stretched(f"{method}/steps")}) == SEEDS


# from this code


@pytest.mark.parametrize("file", ["grid.npz", "race.npz", "checks.npz"])
def test_the_files_are_from_this_code(file):
    """After a change of the code of schemes or training, `make sweep` has to be run again."""
    assert results.about(file)["code"] == {scheme: cache.code_version(scheme) for scheme in SCHEMES}


def test_recall_is_from_this_code():
    expected = {scheme: cache.code_version(scheme, more=cache.RECALL) for scheme in SCHEMES}
    assert results.about("recall.npz")["code"] == expected


def test_the_stretched_models_are_from_this_code():
    """After a change of what they depend on, helpers/data/make_context_extension.py has to be run again."""
    assert results.about_stretched()["code"] == stretching.code_version()
    assert results.about("tuning_rates.npz")["code"] == stretching.code_version()


@pytest.mark.parametrize(("file", "groups"), [("race.npz", race.groups), ("checks.npz", race.checks)])
def test_about_says_with_which_settings_they_were_made(file, groups):
    """Those that the tries of grid.npz ask for: race.npz must follow when other settings are chosen."""
    about = results.about(file)
    assert about.keys() == {"code", "settings", "versions"}
    expected = {name: json.loads(json.dumps(asdict(group[0]))) for name, group in groups().items()}
    assert about["settings"] == expected


def test_about_says_what_was_tried_and_measured():
    assert results.about("grid.npz") == race.about()
    assert race.about().keys() == {"code", "chosen", "versions"}
    about = results.about_stretched()
    assert about.keys() == {"code", "factors", "bases", "seeds", "versions"}
    assert about["factors"] == list(FACTORS)
    assert about["bases"] == BASES
    assert about["seeds"] == list(range(SEEDS))


@pytest.mark.parametrize("file", [name for name in LARGEST if "model" not in name])
def test_about_says_with_which_versions(file):
    assert results.about(file)["versions"].keys() == {"python", "numpy"}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_was_chosen_is_the_best_of_what_was_tried(scheme):
    """The lowest mean over seeds 0 and 1 of the loss to choose by, recomputed from what is stored."""
    rows = zip(*(race.tried(scheme, name) for name in ("rate", "knob", "seed", "choosing")), strict=True)
    losses = {}
    for rate, knob, seed, loss in rows:
        losses.setdefault((float(rate), float(knob)), {})[int(seed)] = float(loss)
    assert {(one.rate, one.knob) for one in race.grid(scheme)} <= losses.keys()
    twice = {one: np.mean(list(by_seed.values())) for one, by_seed in losses.items() if len(by_seed) == 2}
    assert len(twice) == 3
    assert twice.keys() == set(sorted(losses, key=lambda one: losses[one][0])[:3])
    assert tuple(race.chosen(scheme)[1:]) == min(twice, key=twice.get)


def test_the_same_run_has_the_same_losses_wherever_it_stands():
    """The tries that were chosen, groups that come to the same settings, and checks are of one race."""
    found = {}
    for scheme in SCHEMES:
        for place, (one, seed) in enumerate(zip(race.tries(scheme), race.tried(scheme, "seed"), strict=True)):
            loss = race.tried(scheme, "choosing")[place], race.tried(scheme, "start")[place]
            found[one.settings(seed=int(seed))] = loss
    met = set()
    for name, group in (race.groups() | race.checks()).items():
        for place, settings in enumerate(group):
            choosing, start = measured(name, "choosing")[place], measured(name, "start")[place]
            if settings in found:
                met.add(settings.scheme)
                np.testing.assert_allclose(choosing, found[settings][0], rtol=0, atol=1e-4, err_msg=name)
                np.testing.assert_allclose(start, found[settings][1], rtol=0, atol=1e-4, err_msg=name)
            found[settings] = choosing, start
    assert {one.scheme for one in race.trained_here()} <= met


def test_every_line_has_the_same_tries_of_recall_until_it_learns():
    """So that no line learns the task for having been tried more often, or longer."""
    tries = {
        line: np.stack([results.recalled(line, name) for name in ("rate", "steps", "seed")]).T.tolist()
        for line in race.lines()
    }
    longest = max(tries.values(), key=len)
    assert 1 <= len(longest) <= 3
    for line, own in tries.items():
        assert own == longest[: len(own)]
        learned = results.recalled(line, "home").mean(axis=1) >= recall.LEARNED
        assert not learned[:-1].any()
        assert learned[-1] or len(own) == len(longest)


# the code gives these numbers


def test_a_model_trained_now_has_the_stored_table():
    """The first fifty steps of a learned table, before and after, with the settings and texts of the race."""

    class Enough(Exception):
        pass

    def stop(step, model):
        if step in SNAPSHOTS:
            tables[step] = model.parameters["scheme.table"].copy()
        if step == 50:
            raise Enough

    tables = {}
    with threadpool_limits(1, user_api="blas"), pytest.raises(Enough):
        training.train(race.groups()["learned"][3], stop)
    before, after = (measured("learned", f"table after {step}")[3].astype(float) for step in (0, 50))
    np.testing.assert_array_equal(tables[0].astype(np.float16), before)
    assert np.abs(after - before).mean() > 0.02
    assert np.abs(tables[50] - after).max() < 0.0005  # stored as float16


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", ROPES)
def test_the_rope_models_are_those_that_were_measured(name, seed):
    run = results.rope_models(name)[seed]
    assert run.settings == race.groups()[name][seed]
    assert {array.dtype for array in run.parameters.values()} == {np.dtype(np.float32)}
    with threadpool_limits(1, user_api="blas"):
        found = token_losses(run.decoder(), measures.shared_pieces()[:, : LENGTH + 1], chunk=64)
    stored = by_block(name)[seed, :, : LENGTH // 8]
    found = found.reshape(BLOCKS, -1, LENGTH // 8, 8).mean(axis=(1, 3))
    assert np.abs(found - stored).max() < 0.002  # weights are rounded to float16
    assert abs(found.mean() - stored.mean()) < 0.0005


def test_the_live_models_lie_within_the_band_of_the_race():
    """The band of the five seeds, on each side half as wide again, or at least 0.03 nats wider."""
    pieces = text.even_pieces(text.corpus().choose, 512, LENGTH + 1)
    outside = []
    with np.load(DATA / "live_models.npz", allow_pickle=False) as stored:
        for scheme, settings in zip(SCHEMES, race.trained_here(), strict=True):
            start = f"{scheme}/{settings.seed}/"
            weights = {
                key.removeprefix(start): stored[key].astype(np.float32)
                for key in stored.files
                if key.startswith(start)
            }
            with threadpool_limits(1, user_api="blas"):
                model = Run(settings, weights, np.zeros(0), {}).decoder()
                loss = token_losses(model, pieces, chunk=64).mean()
            shipped = measured(scheme, "choosing")
            margin = max(np.ptp(shipped) / 2, 0.03)
            if not shipped.min() - margin <= loss <= shipped.max() + margin:
                outside.append(f"{scheme}: {loss:.3f} is not in {shipped.min():.3f} to {shipped.max():.3f}")
    assert outside == []


# the stretched models


def test_the_same_model_has_the_same_loss_wherever_it_stands():
    """Unscaled at every factor, base 10,000, and notebook 06: all are the models as they were trained."""
    plain = results.stretched("unscaled/as it is")
    np.testing.assert_array_equal(plain, plain[:, :1].repeat(len(FACTORS), axis=1))
    np.testing.assert_array_equal(results.stretched("base")[:, BASES.index(1e4)], plain[:, 0])
    np.testing.assert_array_equal(results.stretched("as trained"), plain[:, 0])
    for (group, start), (ours, theirs) in product(
        ROPES.items(), {"as trained": "all", "window": "window"}.items()
    ):
        gap = results.stretched(start + ours) - measured(group, theirs)
        assert np.abs(gap).max() < 0.02, group  # these weights are rounded to float16
    pi, every_pair = results.stretched("interpolation/as it is")[:, 1], results.stretched("from this pair on")
    np.testing.assert_allclose(every_pair[:, 0], pi, rtol=0, atol=1e-4)  # all pairs slowed 4 times
    for start in ROPES.values():
        last = results.stretched(f"{start}from this pair on")[:, -1]
        np.testing.assert_array_equal(last, results.stretched(f"{start}one pair")[:, -1])


def test_fine_tuning_went_down():
    for method in FINE_TUNED:
        steps = results.stretched(f"{method}/steps")
        assert (steps[:, -10:].mean(axis=1) < steps[:, :2].mean(axis=1) - 0.1).all()
        after, before = (
            stretched_loss(f"{method}/fine-tuned", 512),
            stretched_loss(f"{method}/as it is", 512, 2),
        )
        assert (after < before - 0.3).all()


def recomputed(seed):
    """Settings of one model that notebook 07 shows, with their stored losses: another kind for each seed."""
    run = results.rope_models()[seed]
    scaling, stored = {
        0: (METHODS["ntk"](4), results.stretched("ntk/as it is")[0, 1]),
        1: (METHODS["yarn"](8), results.stretched("yarn/as it is")[1, 2]),
        2: (stretching.change_pairs([3], 4), results.stretched("one pair")[2, 3]),
        3: (stretching.change_pairs([1], np.inf), results.stretched("one pair stopped")[3, 1]),
        4: (unscaled(16, 1e5), results.stretched("base")[4, BASES.index(1e5)]),
    }[seed]
    return stretching.stretched(run, scaling), stored


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_shipped_weights_give_the_stored_losses(seed):
    model, stored = recomputed(seed)
    with threadpool_limits(1, user_api="blas"):
        np.testing.assert_allclose(stretching.losses(model), stored, rtol=0, atol=1e-3)


def test_the_shipped_weights_give_the_stored_losses_with_another_base():
    model = stretching.stretched(
        results.rope_models("rope, base 1000")[3], stretching.change_pairs([4], 4, base=1000)
    )
    stored = results.stretched("base 1000/one pair")[3, 4]
    with threadpool_limits(1, user_api="blas"):
        np.testing.assert_allclose(stretching.losses(model), stored, rtol=0, atol=1e-3)


def test_the_shipped_weights_give_the_stored_losses_with_a_window():
    with threadpool_limits(1, user_api="blas"):
        found = stretching.losses(results.rope_models()[2].decoder(), window=64)
    np.testing.assert_allclose(found, results.stretched("window")[2], rtol=0, atol=1e-3)


@pytest.mark.parametrize("place", [0, 2])
def test_the_shipped_weights_give_the_stored_losses_with_stale_keys(place):
    length = stretching.STALE_LENGTHS[place]
    with threadpool_limits(1, user_api="blas"):
        found = stretching.stale_and_fresh(results.rope_models()[1], (length,))
    stored = results.stretched("stale and fresh")[1, :, place]
    np.testing.assert_allclose(found[:, 0], stored, rtol=0, atol=1e-3)


@pytest.mark.parametrize(("method", "seed"), list(zip(FINE_TUNED, range(SEEDS), strict=True)))
def test_fine_tuning_begins_with_the_stored_losses(monkeypatch, method, seed):
    """The first two of the fifty steps: texts, angles, weights and rates are those of the grid."""
    rates = training.learning_rates
    monkeypatch.setattr(training, "learning_rates", lambda *plan: rates(*plan)[:2])
    monkeypatch.setattr(stretching, "losses", lambda model: np.zeros(BINS))
    found = stretching.fine_tune(method, seed)
    stored = results.stretched(f"{method}/steps")[seed]
    np.testing.assert_allclose(found.steps[:2], stored[:2], rtol=0, atol=1e-2)
    assert not found.steps[2:].any()
