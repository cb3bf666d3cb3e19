"""The fair race (notebook 06): which settings are tried, followed beyond an edge, chosen, and trained."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest

from helpers import race
from helpers.doors import Facts
from helpers.race import Try, best, beyond_the_edge, grid
from helpers.schemes import SCHEMES, Alibi, Learned, Spec, spec
from helpers.sweeping import path_of
from helpers.training import LENGTH, REACH, Settings

everyone = pytest.mark.parametrize("scheme", list(SCHEMES))
OF_SETTINGS = {field.name for field in fields(Settings)}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache folder of the test's own."""
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


# what is tried


@everyone
def test_every_scheme_gets_the_same_number_of_tries(scheme):
    tries = grid(scheme)
    assert len(tries) == len(set(tries)) == 9
    assert {one.scheme for one in tries} == {scheme}
    assert {one.rate for one in tries} == {5e-3, 1e-2, 2e-2}
    assert {one.knob for one in tries} == set(SCHEMES[scheme].facts.tried)
    assert len(SCHEMES[scheme].facts.tried) == 3


@everyone
def test_the_usual_value_is_tried_and_is_what_the_scheme_has_by_itself(scheme):
    facts = SCHEMES[scheme].facts
    assert facts.usual in facts.tried
    tried, plain = Try(scheme, 1e-2, facts.usual).settings(), Settings(scheme)
    if facts.knob in OF_SETTINGS:
        assert tried == plain
    made, by_itself = tried.new_decoder(), plain.new_decoder()
    for name, value in vars(by_itself.scheme).items():
        np.testing.assert_array_equal(vars(made.scheme)[name], value)


@everyone
def test_a_try_puts_the_knob_where_it_belongs(scheme):
    """Into a field of the settings, or among the scheme's own options; and it changes nothing else."""
    knob = SCHEMES[scheme].facts.knob
    settings = Try(scheme, 0.02, 0.5).settings()
    assert settings.learning_rate == 0.02
    if knob in OF_SETTINGS:
        assert settings == replace(Settings(scheme, learning_rate=0.02), **{knob: 0.5})
    else:
        assert settings == Settings(spec(scheme, **{knob: 0.5}), learning_rate=0.02)
        assert settings.scheme == Spec(scheme, ((knob, 0.5),), None)
        assert getattr(settings.new_decoder().scheme, knob) == 0.5


@everyone
def test_a_try_takes_other_fields_along(scheme):
    one, more = Try(scheme, 0.02, 0.5), {"seed": 3, "length": 128, "text": "novels", "random_start": 4}
    assert one.settings(**more) == replace(one.settings(), **more)


def test_knobs_are_those_of_the_course():
    """Schemes with weights of their own: how fast these learn. Others: their one number; none: the decay."""
    assert {scheme: kind.facts.knob for scheme, kind in SCHEMES.items()} == {
        "none": "weight_decay",
        "sinusoidal": "amplitude",
        "learned": "position_rate",
        "shaw": "position_rate",
        "t5": "position_rate",
        "rope": "base",
        "alibi": "slope_factor",
    }


@everyone
def test_tries_are_different_models(scheme):
    assert len({path_of(one.settings()) for one in grid(scheme)}) == 9


# an eighth scheme


class Eighth(Alibi):
    """A scheme of somebody's own, whose knob is an option of it."""

    facts = Facts(
        "Eighth", 3, "#000000", "#000000", "-", lambda size: 0, "slope_factor", (0.1, 0.3, 0.9), 0.3
    )


class Ninth(Learned):
    """Another, which trains weights and names no knob."""

    facts = Facts("Ninth", 1, "#000000", "#000000", "-", lambda size: 0)


def test_an_eighth_scheme_joins_the_race_by_its_facts(monkeypatch):
    monkeypatch.setitem(SCHEMES, "eighth", Eighth)
    tries = grid("eighth")
    assert len(set(tries)) == 9
    for one in tries:
        assert one.settings(seed=2) == Settings(
            spec("eighth", slope_factor=one.knob), 2, learning_rate=one.rate
        )
        assert one.settings().new_decoder().scheme.slope_factor == one.knob
    assert {one.knob for one in tries} == {0.1, 0.3, 0.9}
    losses = dict.fromkeys(tries, 3.0) | {Try("eighth", 1e-2, 0.9): 2.0}
    assert beyond_the_edge(losses) == [Try("eighth", 1e-2, 2.7)]


def test_a_scheme_that_names_no_knob_is_tried_with_faster_weights(monkeypatch):
    monkeypatch.setitem(SCHEMES, "ninth", Ninth)
    assert [one.settings() for one in grid("ninth")] == [
        Settings("ninth", learning_rate=rate, position_rate=knob)
        for knob in (1, 10, 30)
        for rate in (5e-3, 1e-2, 2e-2)
    ]


# beyond the edge


def lowest_at(scheme, rate, knob, more=()):
    """Losses of the grid and of more tries, the lowest one here."""
    tries = [*grid(scheme), *(Try(scheme, *one) for one in more)]
    losses = {one: 3 + 0.01 * place for place, one in enumerate(tries)}
    assert Try(scheme, rate, knob) in losses
    return losses | {Try(scheme, rate, knob): 2.0}


@pytest.mark.parametrize(
    ("scheme", "rate", "knob", "proposed"),
    [
        ("rope", 1e-2, 100, []),
        ("rope", 2e-2, 100, [(4e-2, 100)]),
        ("rope", 5e-3, 100, [(2.5e-3, 100)]),
        ("rope", 1e-2, 10_000, [(1e-2, 32_000)]),  # a factor of 100 lies between the last two: too far
        ("rope", 1e-2, 10, [(1e-2, 3.2)]),
        ("rope", 2e-2, 10_000, [(4e-2, 10_000), (2e-2, 32_000)]),
        ("rope", 5e-3, 10, [(2.5e-3, 10), (5e-3, 3.2)]),
        ("sinusoidal", 1e-2, 1, []),
        ("sinusoidal", 1e-2, 0.5, [(1e-2, 0.25)]),
        ("sinusoidal", 1e-2, 4, [(1e-2, 13)]),
        ("alibi", 1e-2, 4, [(1e-2, 13)]),
        ("alibi", 1e-2, 0.25, [(1e-2, 0.079)]),
        ("learned", 1e-2, 10, []),
        ("learned", 1e-2, 30, [(1e-2, 90)]),
        ("shaw", 1e-2, 1, [(1e-2, 0.32)]),
        ("none", 1e-2, 0.01, []),
        ("none", 1e-2, 0, []),  # no decay is less than none
        ("none", 5e-3, 0, [(2.5e-3, 0)]),
        ("none", 1e-2, 0.1, [(1e-2, 0.32)]),
    ],
)
def test_an_edge_is_followed_and_nothing_else(scheme, rate, knob, proposed):
    losses = lowest_at(scheme, rate, knob)
    before = dict(losses)
    found = beyond_the_edge(losses)
    assert found == [Try(scheme, *one) for one in proposed]
    assert losses == before
    assert all(type(number) is float or number == knob for one in found for number in one[1:])


@everyone
def test_whatever_is_proposed_lies_further_out(scheme):
    for one in grid(scheme):
        found = beyond_the_edge(lowest_at(scheme, one.rate, one.knob))
        rates, knobs = {5e-3, 1e-2, 2e-2}, set(SCHEMES[scheme].facts.tried)
        for other in found:
            assert (other.rate == one.rate) != (other.knob == one.knob)  # one step at a time
            for value, here, tried in ((other.rate, one.rate, rates), (other.knob, one.knob, knobs)):
                if value != here:
                    assert value > max(tried) or 0 < value < min(tried)
                    assert max(value / here, here / value) <= 10**0.5 * 1.05  # rounded to two digits


def test_an_edge_is_followed_once_more_and_then_inside():
    """The second round: what was proposed is better still, or it is not."""
    more = [(4e-2, 100)]
    assert beyond_the_edge(lowest_at("rope", 4e-2, 100, more)) == [Try("rope", 8e-2, 100)]
    assert beyond_the_edge(lowest_at("rope", 2e-2, 100, more)) == []
    more = [(1e-2, 32_000)]
    assert beyond_the_edge(lowest_at("rope", 1e-2, 32_000, more)) == [Try("rope", 1e-2, 100_000)]
    more = [(1e-2, 0.32)]
    assert beyond_the_edge(lowest_at("none", 1e-2, 0.32, more)) == [Try("none", 1e-2, 1.0)]


def test_what_was_tried_is_not_tried_again():
    """Another edge may have been followed before: then the same values meet."""
    more = [(4e-2, 10_000), (2e-2, 32_000)]
    losses = lowest_at("rope", 4e-2, 10_000, more)
    assert beyond_the_edge(losses) == [Try("rope", 8e-2, 10_000)]  # 10,000 is no edge any more
    assert beyond_the_edge(lowest_at("rope", 2e-2, 10_000, more)) == []
    losses[Try("rope", 8e-2, 10_000)] = 2.5
    assert beyond_the_edge(losses) == []


def test_one_value_alone_has_no_edge():
    assert beyond_the_edge({Try("rope", 1e-2, 100): 2.0}) == []


# the best


def test_best_sorts():
    losses = dict(zip(grid("rope"), [5, 3, 9, 1, 8, 2, 7, 6, 4], strict=True))
    assert best(losses) == [grid("rope")[3]]
    assert [losses[one] for one in best(losses, 3)] == [1, 2, 3]
    assert [losses[one] for one in best(losses, 99)] == sorted(losses.values())
    assert best({}, 3) == []


# what was chosen: on a shelf of made-up tries


@pytest.fixture
def shelf(monkeypatch):
    """In place of grid.npz: each scheme's grid, the first three with a second seed; 4 has the lowest loss."""
    stored, chosen = {}, {}
    for scheme in SCHEMES:
        tries = grid(scheme)
        rows = sorted([(one, 0) for one in tries] + [(one, 1) for one in tries[:3]])
        stored[f"{scheme}/rate"] = np.array([one.rate for one, _ in rows])
        stored[f"{scheme}/knob"] = np.array([one.knob for one, _ in rows])
        stored[f"{scheme}/seed"] = np.array([seed for _, seed in rows])
        losses = {one: 2 + (place - 4) ** 2 / 100 for place, one in enumerate(tries)}
        # A second seed that is luckier than all others decides nothing alone.
        stored[f"{scheme}/choosing"] = np.array([losses[one] - seed for one, seed in rows], np.float32)
        chosen[scheme] = tries[4][1:]
    stored["about"] = np.array(json.dumps({"chosen": chosen, "code": {}, "versions": {}}))
    monkeypatch.setattr(race, "_stored", lambda: stored)
    return stored


def test_tried_names_what_there_is(shelf):
    np.testing.assert_array_equal(race.tried("rope", "rate"), shelf["rope/rate"])
    with pytest.raises(KeyError) as caught:
        race.tried("rope", "speed")
    for word in ("scheme and name must be one of", "'rope/rate'", "'alibi/choosing'", "got 'rope/speed'"):
        assert word in str(caught.value)
    assert "'about'" not in str(caught.value)
    with pytest.raises(KeyError, match="got 'kerple/rate'"):
        race.tried("kerple", "rate")


@everyone
def test_tries_are_in_the_order_of_what_was_measured(shelf, scheme):
    tries = race.tries(scheme)
    assert len(tries) == 12
    assert set(tries) == set(grid(scheme))
    for one, rate, knob in zip(tries, shelf[f"{scheme}/rate"], shelf[f"{scheme}/knob"], strict=True):
        assert one == (scheme, rate, knob)
        assert type(one.rate) is type(one.knob) is float  # and no number of NumPy


@everyone
def test_chosen_is_what_is_said_about_it(shelf, scheme):
    assert race.chosen(scheme) == grid(scheme)[4]
    assert isinstance(race.chosen(scheme), Try)


@everyone
def test_usual_is_the_best_rate_at_the_usual_knob(shelf, scheme):
    """Of the first seed, which all tries have."""
    facts = SCHEMES[scheme].facts
    place = facts.tried.index(facts.usual)
    nearest = min(range(3 * place, 3 * place + 3), key=lambda number: abs(number - 4))
    assert race.usual(scheme) == grid(scheme)[nearest]


@everyone
def test_what_is_read_back_is_found_among_what_was_tried(shelf, scheme):
    """A number of a file is a float where that of the grid may be an int: the same model, kept once."""
    kept = {path_of(one.settings()) for one in grid(scheme)}
    for one in (race.chosen(scheme), race.usual(scheme), *race.tries(scheme)):
        assert path_of(one.settings()) in kept


# what is trained at its best


def test_live_models_are_those_that_were_chosen(shelf):
    assert race.trained_here() == [race.chosen(scheme).settings(seed=5) for scheme in SCHEMES]
    assert race.trained_here(7) == [race.chosen(scheme).settings(seed=7) for scheme in SCHEMES]
    assert len(race.trained_here()) == 7


def test_lines_are_each_scheme_and_some_in_their_usual_form(shelf):
    lines = race.lines()
    assert set(lines) == {*SCHEMES, *(f"{scheme}, usual" for scheme in race.USUAL)}
    assert [line for line in lines if line in SCHEMES] == list(SCHEMES)
    assert "rope" in race.USUAL
    for name, one in lines.items():
        scheme, _, usual = name.partition(", ")
        assert one == (race.usual(scheme) if usual else race.chosen(scheme))


def test_an_eighth_scheme_gets_a_line_a_live_model_and_checks(monkeypatch, shelf):
    monkeypatch.setitem(SCHEMES, "eighth", Eighth)
    shelf["eighth/rate"] = np.array([1e-2, 2e-2])
    shelf["eighth/knob"] = np.array([0.3, 0.9])
    shelf["eighth/seed"] = np.zeros(2, int)
    shelf["eighth/choosing"] = np.array([2.0, 1.9])
    about = json.loads(str(shelf["about"]))
    shelf["about"] = np.array(json.dumps(about | {"chosen": about["chosen"] | {"eighth": [0.02, 0.9]}}))
    assert race.chosen("eighth") == Try("eighth", 0.02, 0.9) == race.lines()["eighth"]
    assert race.usual("eighth") == Try("eighth", 0.01, 0.3)
    assert race.trained_here()[-1] == Settings(spec("eighth", slope_factor=0.9), 5, learning_rate=0.02)
    assert len(race.groups()["eighth"]) == 5
    assert {f"eighth, {check}" for check in race.CHECKS} <= race.checks().keys()


def test_groups_have_the_seeds_that_are_said(shelf):
    groups = race.groups()
    five, two, three = range(5), range(2), range(3)
    seeds = {
        **dict.fromkeys([*race.lines(), "rope, base 1000"], five),
        **dict.fromkeys(["rope, base 100000", "rope, base 1000000", "sinusoidal, random starts"], two),
        **{f"{scheme}, untuned": two for scheme in SCHEMES},
        **dict.fromkeys(race.LAYERS, three),
    }
    assert {name: [one.seed for one in group] for name, group in groups.items()} == {
        name: list(numbers) for name, numbers in seeds.items()
    }
    for group in groups.values():  # within a group, nothing but the seed differs
        assert len({replace(one, seed=0) for one in group}) == 1
    every = [one for group in groups.values() for one in group]
    assert all(one.task == "text" and one.steps == 600 and one.length == LENGTH for one in every)


def test_groups_are_what_their_names_say(shelf):
    groups = {name: group[0] for name, group in race.groups().items()}
    rate = race.usual("rope").rate
    for name, one in race.lines().items():
        assert groups[name] == one.settings()
    for base in (1_000, 100_000, 1_000_000):
        assert groups[f"rope, base {base}"] == Settings(spec("rope", base=base), learning_rate=rate)
    for scheme, kind in SCHEMES.items():
        untuned = groups[f"{scheme}, untuned"]
        assert untuned == Try(scheme, 3e-3, kind.facts.usual).settings()
    starts = groups["sinusoidal, random starts"]
    assert starts == replace(groups["sinusoidal"], random_start=REACH - LENGTH)
    for name, schemes in race.LAYERS.items():
        assert groups[name] == Settings(schemes, learning_rate=rate)


def test_layers_that_differ_are_what_their_names_say():
    """A window with RoPE below a layer that sees all: without positions, with a large base, or like it."""
    for name, last in {
        "window, then none": spec("none"),
        "window, then a large base": spec("rope", base=1_000_000),
        "window, then rope": spec("rope"),
    }.items():
        assert race.LAYERS[name] == (spec("rope", window=32), last)
        made = Settings(race.LAYERS[name]).new_decoder()
        assert [layer.window for layer in made.layers] == [32, None]
    assert len(race.LAYERS) == 3


def test_checks_change_one_thing_for_every_line(shelf):
    assert race.CHECK_SEEDS >= 1
    checks = race.checks()
    assert set(checks) == {f"{name}, {check}" for name in race.lines() for check in race.CHECKS}
    for name, one in race.lines().items():
        for check, more in race.CHECKS.items():
            found = checks[f"{name}, {check}"]
            assert found == [replace(one.settings(seed=seed), **more) for seed in range(race.CHECK_SEEDS)]
            assert found[0] != one.settings()


def test_all_that_is_to_be_trained_can_be_built(shelf):
    """No try, group or check asks for a decoder that there can't be."""
    every = {one.settings() for scheme in SCHEMES for one in grid(scheme)}
    every |= {one for group in (*race.groups().values(), *race.checks().values()) for one in group}
    every |= set(race.trained_here())
    for one in {replace(one, seed=0) for one in every}:
        made = one.new_decoder()
        assert made.n_heads == one.n_heads
        assert path_of(one).suffix == ".npz"


# what is shipped


@everyone
def test_shipped_tries_hold_the_grid_and_what_follows_from_it(scheme):
    """With the first seed the grid and the edges beyond it; with the second one the best three."""
    seeds = race.tried(scheme, "seed")
    choosing = race.tried(scheme, "choosing")
    losses = [
        {
            one: float(loss)
            for one, loss, own in zip(race.tries(scheme), choosing, seeds, strict=True)
            if own == seed
        }
        for seed in (0, 1)
    ]
    rounds = dict.fromkeys(grid(scheme))
    for _ in range(race.ROUNDS):
        rounds |= dict.fromkeys(beyond_the_edge({one: losses[0][one] for one in rounds}))
    assert losses[0].keys() == rounds.keys()
    assert losses[1].keys() == set(best(losses[0], 3))
    mean = {one: (losses[0][one] + loss) / 2 for one, loss in losses[1].items()}
    assert race.chosen(scheme) == best(mean)[0]


@everyone
def test_shipped_tries_are_whole(scheme):
    count = len(race.tries(scheme))
    shapes = {
        "rate": (),
        "knob": (),
        "seed": (),
        "choosing": (),
        "all": (64,),
        "window": (64,),
        "start": (4,),
    }
    for name, shape in shapes.items():
        found = race.tried(scheme, name)
        assert found.shape == (count, *shape)
        assert np.isfinite(found).all()
    assert ((race.tried(scheme, "choosing") > 1) & (race.tried(scheme, "choosing") < 3)).all()
