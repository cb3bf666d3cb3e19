"""A page that stands far away: how it is moved, and what is shipped of a published model."""

import numpy as np
import pytest
from tiny_model import published_model

from helpers import far_page
from helpers.far_page import (
    COPY_GAPS,
    FACTORS,
    FAR,
    FIRST,
    GAPS,
    PAGES,
    PAIRS,
    PANEL_GAPS,
    SECOND,
    WAYS,
    Condition,
)
from helpers.key_cache import Cache
from helpers.language_model import forward, open_model
from helpers.stretching import turns as turns_of

PAGE = Cache(
    keys=(np.zeros((1, FIRST, 2 * PAIRS)),) * 2,
    values=(np.zeros((1, FIRST, 2 * PAIRS)),) * 2,
    positions=np.arange(float(FIRST))[None, :, None],
    end=FIRST - 1.0,
)


# How a page is moved


def test_a_page_without_a_gap_stays_where_it_was():
    np.testing.assert_array_equal(far_page.stand(PAGE, Condition()).positions, PAGE.positions)


def test_a_gap_moves_all_keys_back():
    np.testing.assert_array_equal(far_page.stand(PAGE, Condition(500)).positions, PAGE.positions - 500)


def test_a_gap_in_some_pairs_leaves_the_others():
    found = far_page.stand(PAGE, Condition(500, pairs=(3, 7))).positions
    moved = np.isin(np.arange(PAIRS), (3, 7))
    np.testing.assert_array_equal(found[0, :, moved], np.tile(np.arange(FIRST) - 500, (2, 1)))
    np.testing.assert_array_equal(found[0, :, ~moved], np.tile(np.arange(FIRST), (PAIRS - 2, 1)))


@pytest.mark.parametrize(("sink", "token"), [("near", 0), ("token 1", 1), ("token 100", 100)])
def test_one_token_stands_right_before_the_second_page(sink, token):
    found = far_page.stand(PAGE, Condition(500, sink=sink)).positions[0, :, 0]
    expected = np.arange(FIRST) - 500
    expected[token] = FIRST - 1
    np.testing.assert_array_equal(found, expected)


def test_an_absent_first_token_is_gone():
    found = far_page.stand(PAGE, Condition(500, sink="absent"))
    assert len(found) == FIRST - 1
    np.testing.assert_array_equal(found.positions[0, :, 0], np.arange(1, FIRST) - 500)


def test_slowed_pairs_are_divided_and_the_others_stay():
    before, after = far_page.scaled("as trained"), far_page.scaled("slowed", 22, 31, 2.1)
    np.testing.assert_array_equal(after.inv_freq[:22], before.inv_freq[:22])
    np.testing.assert_allclose(after.inv_freq[22:], before.inv_freq[22:] / 2.1)


@pytest.mark.parametrize("name", ["interpolation", "ntk", "by parts", "yarn"])
def test_every_method_divides_the_slowest_pair_by_its_factor(name):
    ratio = far_page.scaled("as trained").inv_freq / far_page.scaled(name, 8).inv_freq
    assert ratio[-1] == pytest.approx(8)
    assert ratio[0] == pytest.approx(8 if name == "interpolation" else 1)


def test_an_unknown_scaling_is_named():
    with pytest.raises(ValueError, match=r"^name must be "):
        far_page.scaled("by magic", 8)


def test_turns_are_those_of_the_context():
    expected = turns_of(far_page.scaled("as trained").inv_freq, far_page.CONTEXT)
    np.testing.assert_allclose(far_page.turns(), expected)
    assert 0.3 < far_page.turns()[23] < far_page.turns()[22] < 0.5


# What is shipped


def everything():
    """The conditions that the tables of notebook 08 need."""
    found = [Condition(gap, copy=copy) for gap in GAPS for copy in (False, True)]
    found += [Condition(FAR, pairs=tuple(range(start, start + 4))) for start in range(0, PAIRS, 4)]
    return found + [Condition(gap, ("by parts", f), copy=True) for gap in COPY_GAPS for f in FACTORS]


@pytest.mark.parametrize("condition", everything(), ids=Condition.name)
def test_each_condition_was_measured_on_twelve_passages(condition):
    losses = far_page.measured(*condition)
    assert losses.shape == (12,)
    assert 0 < losses.min() <= losses.max() < 8
    np.testing.assert_array_equal(far_page.changed(*condition), losses - far_page.stored("nothing"))


def test_the_panel_finds_all_that_it_shows():
    for page in PAGES:
        for gap in PANEL_GAPS:
            for way in WAYS:
                losses, text = far_page.shown(page, gap, way)
                assert losses.shape == (SECOND - 1,)
                assert losses.min() >= 0
                assert text


def test_weights_of_the_first_token_are_shares():
    for gap in (0, 4000, 7600, FAR):
        shares = far_page.stored(f"sink/{gap}")
        assert shares.shape == (12, 30)
        assert 0 <= shares.min() <= shares.max() <= 1


def test_what_was_not_measured_is_named():
    with pytest.raises(KeyError, match="but got 'text/17/as trained/all/far'"):
        far_page.measured(17)


@pytest.mark.parametrize(
    "condition",
    [
        Condition(),
        Condition(16_000),
        Condition(16_000, copy=True),
        Condition(16_000, ("by parts", 4), copy=True),
        Condition(16_000, ("slowed", 22, 31, 2.1), sink="near"),
    ],
    ids=Condition.name,
)
@pytest.mark.parametrize("passage", [0, 11])
def test_the_model_gives_the_stored_losses(condition, passage):
    """On a processor of another kind the last digits differ, and the loss by less than this."""
    model, tokens = open_model(published_model()), far_page.stored("tokens")[passage]
    page = forward(model, tokens[:FIRST], last=1).cache
    second = tokens[:SECOND] if condition.copy else tokens[FIRST:]
    losses = far_page.second_losses(model, page, second, condition)
    assert losses.mean() == pytest.approx(far_page.measured(*condition)[passage], abs=0.01)
