"""Stretched models (notebook 07): other angles and the same weights, fine-tuning that is kept, stale keys."""

import hashlib
import math
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bad_input import NOT_A_COUNT, NOT_A_NUMBER, NOT_FINITE, cases, refuses
from threadpoolctl import threadpool_info, threadpool_limits

from helpers import cache, context_extension, measures, results, rope, stretching, text, training, versions
from helpers.context_extension import RotaryScaling
from helpers.measures import token_losses
from helpers.schemes import Rope, spec
from helpers.stretching import FACTORS, FINE_TUNED, METHODS, PAIRS, StaleRope
from helpers.text import LENGTH, REACH
from helpers.training import Run, Settings
from helpers.transformer import forward, loss_and_gradients

HELPERS = Path(stretching.__file__).parent
OLD = [10_000 ** (-2 * i / 16) for i in range(8)]

everything = pytest.mark.parametrize("method", list(METHODS))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache folder of the test's own."""
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def one_thread():
    """As in the course: on matrices this small, two threads are slower, and far slower on a busy machine."""
    with threadpool_limits(1, user_api="blas"):
        yield


def made_up(seed):
    """A model that was not trained, with queries and keys so large that its heads look at something."""
    settings = Settings(spec("rope", base=10_000), seed)
    weights = settings.new_decoder().parameters
    for layer in range(2):
        weights[f"{layer}.qkv"][:, :128] *= 3
    return Run(settings, weights, np.zeros(0), {})


@pytest.fixture(autouse=True)
def models(monkeypatch):
    """Five models in place of those that the course ships; tests/test_results.py has the shipped ones."""
    five = [made_up(seed) for seed in range(5)]
    monkeypatch.setattr(results, "rope_models", lambda name="rope, usual": five)
    return five


@pytest.fixture
def run(models):
    return models[1]


def fewer_pieces(monkeypatch, count, length=REACH):
    """Let all that is measured be measured on this many pieces only, and return them."""
    pieces = measures.shared_pieces()[:count, : length + 1]
    monkeypatch.setattr(measures, "shared_pieces", lambda *sizes: pieces)
    return pieces


def same_arrays(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def never(*args, **options):
    raise AssertionError("this should not be called")


# the methods


EXPECTED = {
    "unscaled": lambda factor: context_extension.unscaled(16),
    "interpolation": lambda factor: context_extension.position_interpolation(16, factor=factor),
    "ntk": lambda factor: context_extension.ntk_aware(16, factor=factor),
    "ntk_twice": lambda factor: context_extension.ntk_aware(16, factor=2 * factor),
    "by_parts_paper": lambda factor: context_extension.ntk_by_parts(16, trained_length=64, factor=factor),
    "llama3": lambda factor: context_extension.llama3(16, trained_length=64, factor=factor),
    "by_parts": lambda factor: context_extension.ntk_by_parts(
        16, trained_length=64, factor=factor, low_rotations=0.5, high_rotations=4
    ),
    "yarn": lambda factor: context_extension.yarn(
        16, trained_length=64, factor=factor, beta_slow=0.5, beta_fast=4
    ),
}


def test_the_methods_are_named():
    assert list(METHODS) == list(EXPECTED)
    assert set(FINE_TUNED) <= set(METHODS)
    assert FACTORS == (2, 4, 8)
    assert FACTORS[-1] * LENGTH == REACH


@everything
@pytest.mark.parametrize("factor", [1.5, *FACTORS, 16])
def test_a_method_is_the_one_of_its_name(method, factor):
    found, expected = METHODS[method](factor), EXPECTED[method](factor)
    np.testing.assert_array_equal(found.inv_freq, expected.inv_freq)
    assert found.inv_freq.dtype == np.float64
    assert found.attention_factor == expected.attention_factor


@everything
def test_factor_1_leaves_the_model_alone(method, run):
    scaling = METHODS[method](1)
    np.testing.assert_array_equal(scaling.inv_freq, Rope(64, 4, 64).inv_freq)
    assert scaling.attention_factor == 1
    piece = measures.shared_pieces()[:1, :100]
    np.testing.assert_array_equal(
        forward(stretching.stretched(run, scaling), piece).logits, forward(run.decoder(), piece).logits
    )


@pytest.mark.parametrize("method", ["by_parts", "yarn"])
def test_thresholds_are_in_turns(method):
    given = METHODS[method](4, 0.2, 0.3)
    if method == "by_parts":
        kept = [1 if 64 * w / (2 * math.pi) >= 0.3 else 0.25 for w in OLD]  # none lies between the two
        np.testing.assert_allclose(given.inv_freq, np.multiply(OLD, kept), rtol=1e-12)
    expected = {
        "by_parts": lambda: context_extension.ntk_by_parts(
            16, trained_length=64, factor=4, low_rotations=0.2, high_rotations=0.3
        ),
        "yarn": lambda: context_extension.yarn(16, trained_length=64, factor=4, beta_slow=0.2, beta_fast=0.3),
    }[method]()
    np.testing.assert_array_equal(given.inv_freq, expected.inv_freq)
    assert given.attention_factor == expected.attention_factor


def test_only_yarn_changes_the_scores():
    for method, scale in METHODS.items():
        expected = 1 + 0.1 * math.log(4) if method == "yarn" else 1
        assert scale(4).attention_factor == pytest.approx(expected, rel=1e-14)


@everything
def test_a_result_that_is_overwritten_spoils_no_later_one(method):
    expected = METHODS[method](4).inv_freq.copy()
    METHODS[method](4).inv_freq[:] = 7
    np.testing.assert_array_equal(METHODS[method](4).inv_freq, expected)


# changes by pair, and turns


@pytest.mark.parametrize(
    ("pairs", "factor"), [([3], 4), ([0, 7], 2.5), ([2, 3, 4, 5, 6, 7], 8), ([1], 0.5), ([], 4)]
)
def test_change_pairs_divides_these_and_no_others(pairs, factor):
    found = stretching.change_pairs(pairs, factor)
    expected = [w / factor if i in pairs else w for i, w in enumerate(OLD)]
    np.testing.assert_allclose(found.inv_freq, expected, rtol=1e-14)
    assert found.attention_factor == 1


@pytest.mark.parametrize("base", [10, 1000, 10_000.0, 1e6])
def test_change_pairs_of_another_base(base):
    """Each group of models has a base of its own, and its other pairs must stay as they were trained."""
    found = stretching.change_pairs([2, 5], 4, base)
    expected = [base ** (-2 * i / 16) / (4 if i in (2, 5) else 1) for i in range(8)]
    np.testing.assert_allclose(found.inv_freq, expected, rtol=1e-14)
    assert found.attention_factor == 1
    assert (stretching.change_pairs([], 4, base).inv_freq == Rope(64, 4, 64, base=base).inv_freq).all()


@pytest.mark.parametrize("pair", range(PAIRS))
def test_an_infinite_factor_stops_a_pair(pair):
    found = stretching.change_pairs([pair], np.inf)
    assert found.inv_freq[pair] == 0
    assert np.count_nonzero(found.inv_freq) == PAIRS - 1
    x = np.random.default_rng(0).normal(size=(20, 16))
    turned = rope.rotate(x, np.arange(20), *found)
    np.testing.assert_array_equal(turned[:, 2 * pair : 2 * pair + 2], x[:, 2 * pair : 2 * pair + 2])


def test_change_pairs_leaves_what_it_was_given():
    pairs, before = [5, 3], stretching.unscaled().inv_freq
    stretching.change_pairs(pairs, np.inf)
    assert pairs == [5, 3]
    np.testing.assert_array_equal(stretching.unscaled().inv_freq, before)


def test_turns_are_counted():
    np.testing.assert_allclose(stretching.turns(np.array(OLD)), [64 * w / (2 * math.pi) for w in OLD])
    np.testing.assert_allclose(stretching.turns(np.array([2 * math.pi / 8]), 512), [64])
    turned = stretching.turns(stretching.unscaled().inv_freq)
    assert turned.shape == (PAIRS,)
    assert round(turned[0]) == 10  # as the module says: the fastest 10 times, the slowest 0.003 times
    assert round(turned[-1], 3) == 0.003


# the model with other angles


@everything
def test_a_stretched_model_differs_in_nothing_but_its_angles(method, run):
    scaling = METHODS[method](8)
    model, plain = stretching.stretched(run, scaling), run.decoder()
    same_arrays(model.parameters, plain.parameters)
    np.testing.assert_array_equal(model.scheme.inv_freq, scaling.inv_freq)
    assert model.scheme.attention_factor == scaling.attention_factor
    assert (model.n_heads, model.n_layers) == (plain.n_heads, plain.n_layers)
    assert [layer[1:] for layer in model.layers] == [layer[1:] for layer in plain.layers]
    assert type(model.scheme) is Rope
    changed = {"inv_freq", "attention_factor"}
    assert {k: v for k, v in vars(model.scheme).items() if k not in changed} == {
        k: v for k, v in vars(plain.scheme).items() if k not in changed
    }
    x = np.random.default_rng(0).normal(size=(2, 4, 30, 16))
    np.testing.assert_array_equal(
        model.scheme.rotate(x, np.arange(30))[0], rope.rotate(x, np.arange(30), *scaling)
    )


def test_stretching_does_not_touch_the_stored_weights(run):
    before = {name: array.copy() for name, array in run.parameters.items()}
    model = stretching.stretched(run, stretching.ntk(8))
    for name, array in model.parameters.items():
        assert not np.shares_memory(array, run.parameters[name])
        array += 1
    same_arrays(run.parameters, before)
    same_arrays(run.decoder().parameters, before)
    np.testing.assert_allclose(run.decoder().scheme.inv_freq, OLD, rtol=1e-14)


def test_layers_that_differ_are_stretched_where_they_have_angles():
    """A scheme for each layer, as in the race: the one without positions has nothing to stretch."""
    settings = Settings((spec("rope", window=32), spec("none")), 3)
    model = stretching.stretched(
        Run(settings, settings.new_decoder().parameters, np.zeros(0), {}), stretching.yarn(8)
    )
    (first, _, window), (second, _, no_window) = model.layers
    np.testing.assert_array_equal(first.inv_freq, stretching.yarn(8).inv_freq)
    assert first.attention_factor == stretching.yarn(8).attention_factor > 1
    assert not hasattr(second, "inv_freq")
    assert (window, no_window) == (32, None)


def test_what_has_no_angles_is_refused():
    settings = Settings("alibi")
    run = Run(settings, settings.new_decoder().parameters, np.zeros(0), {})
    with pytest.raises(AttributeError, match="inv_freq"):
        stretching.stretched(run, stretching.ntk(4))


# the texts and their losses


def test_the_texts_are_those_of_all_other_measures(monkeypatch, run):
    seen = []

    def note(model, pieces, **options):
        seen.append(pieces)
        return np.zeros((len(pieces), pieces.shape[1] - 1))

    monkeypatch.setattr(measures, "token_losses", note)
    measures.of_text(run.decoder())
    [theirs, *more] = [pieces for pieces in seen if pieces.shape[1] == REACH + 1]
    assert theirs.shape == (64, REACH + 1)
    assert all((other == theirs).all() for other in more)
    stretching.losses(run.decoder())
    np.testing.assert_array_equal(seen[-1], theirs)
    stretching.losses(run.decoder(), 5)
    np.testing.assert_array_equal(seen[-1], theirs[:5])


@pytest.mark.parametrize("options", [{}, {"window": 64}, {"start": 3}], ids=str)
def test_losses_are_means_over_texts_and_eight_positions(options, run):
    model = stretching.stretched(run, stretching.yarn(4))
    found = stretching.losses(model, 3, **options)
    by_token = token_losses(model, measures.shared_pieces()[:3], **options)
    assert found.shape == (64,)
    expected = [sum(by_token[:, 8 * b + i].mean() for i in range(8)) / 8 for b in range(64)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


# fine-tuning


@pytest.fixture
def short(monkeypatch):
    """Two steps on a few short texts."""
    for name, value in {"STEPS": 2, "BATCH": 3, "WARM_UP": 1}.items():
        monkeypatch.setattr(stretching, f"TUNING_{name}", value)
    monkeypatch.setattr(stretching, "REACH", 32)
    fewer_pieces(monkeypatch, 4, 32)


def files_in(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def equal_results(one, other):
    same_arrays(one._asdict(), other._asdict())
    return True


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("method", "seed", "factor", "rate"),
    [("unscaled", 0, 8, 3e-3), ("yarn", 2, 4, 3e-3), ("ntk", 4, 8, 0.02)],
)
def test_fine_tuning_takes_steps_on_longer_texts(method, seed, factor, rate):
    asked = {} if rate == stretching.TUNING_RATE else {"rate": rate}
    found = stretching.fine_tune(method, seed, factor, **asked)
    model = stretching.stretched(made_up(seed), METHODS[method](factor))
    rng, state, expected = np.random.default_rng([seed, 3]), {}, []
    for step, now in enumerate(training.learning_rates(rate, 2, 1), start=1):
        piece = text.random_pieces(text.corpus().train, 3, 33, rng)
        loss, gradients = loss_and_gradients(model, piece[:, :-1], piece[:, 1:])
        training.adamw(model.parameters, gradients, state, step, now, weight_decay=0.01)
        expected.append(loss)
    np.testing.assert_allclose(found.steps, expected, rtol=1e-5)
    np.testing.assert_allclose(found.losses, stretching.losses(model), rtol=1e-5)
    assert (found.steps.shape, found.losses.shape) == ((2,), (4,))
    assert found.steps[1] != pytest.approx(found.steps[0], abs=1e-3)


def test_the_plan_is_fifty_steps(monkeypatch):
    """On batches of 16 texts, each eight times as long as those of the training."""
    seen = []

    def note(model, tokens, targets):
        seen.append((tokens, targets))
        return 3.0, {}

    taken = []
    monkeypatch.setattr(stretching, "loss_and_gradients", note)
    monkeypatch.setattr(training, "adamw", lambda *args, **options: taken.append(args[3:]))
    monkeypatch.setattr(stretching, "losses", lambda model: np.zeros(64))
    found = stretching.fine_tune("ntk", 0)
    assert found.steps.shape == (50,)
    assert {tokens.shape for tokens, _ in seen} == {(16, REACH)}
    assert all((tokens[:, 1:] == targets[:, :-1]).all() for tokens, targets in seen)
    assert len({tokens.tobytes() for tokens, _ in seen}) == 50
    steps, rates = zip(*taken, strict=True)
    assert steps == tuple(range(1, 51))
    np.testing.assert_allclose(rates, training.learning_rates(3e-3, 50, 5))
    assert np.argmax(rates) in (4, 5)  # after the warm-up
    assert rates[-1] < 0.01 * max(rates)


@pytest.mark.usefixtures("short")
def test_fine_tuning_leaves_the_shipped_models_alone(models):
    stretching.fine_tune("ntk", 3)
    same_arrays(models[3].parameters, made_up(3).parameters)


@pytest.mark.usefixtures("short")
def test_what_was_fine_tuned_is_found_again(monkeypatch, folder, capsys):
    first = stretching.fine_tune("ntk", 0)
    (kept,) = files_in(folder)
    assert kept.startswith("fine_tuning_rope-0-")
    assert kept.endswith(".npz")
    monkeypatch.setattr(stretching, "_fine_tune", never)
    assert equal_results(stretching.fine_tune("ntk", 0), first)
    assert files_in(folder) == [kept]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "other",
    [{"method": "yarn"}, {"seed": 1}, {"factor": 4}, {"rate": 1e-2}],
    ids=lambda other: next(iter(other)),
)
def test_another_fine_tuning_is_done(monkeypatch, folder, other):
    done = []

    def quick(model, seed, rate, show):
        done.append(seed)
        return stretching.FineTuned(np.zeros(2), np.zeros(4))

    monkeypatch.setattr(stretching, "_fine_tune", quick)
    call = {"method": "ntk", "seed": 0}
    for wanted in (call, call | other, call, call | other):
        stretching.fine_tune(**wanted)
    assert len(done) == len(files_in(folder)) == 2


def test_the_usual_rate_is_the_same_said_or_not(monkeypatch, folder):
    """Nor does it matter how a number is written: what was done is not done again."""
    rates = []

    def quick(model, seed, rate, show):
        rates.append(rate)
        return stretching.FineTuned(np.zeros(2), np.zeros(4))

    monkeypatch.setattr(stretching, "_fine_tune", quick)
    stretching.fine_tune("ntk", 0)
    stretching.fine_tune("ntk", 0, rate=3e-3)
    stretching.fine_tune("ntk", 0, rate=np.float64(3e-3))
    assert rates == [3e-3]
    stretching.fine_tune("ntk", 0, 8.0, rate=1)
    stretching.fine_tune("ntk", 0, 8, rate=1.0)
    assert rates == [3e-3, 1]
    assert len(files_in(folder)) == 2


def test_after_a_change_of_code_it_is_done_anew(monkeypatch, folder):
    quick = stretching.FineTuned(np.zeros(2), np.zeros(4))
    monkeypatch.setattr(stretching, "_fine_tune", lambda model, seed, rate, show: quick)
    stretching.fine_tune("ntk", 0)
    version = stretching.code_version()
    monkeypatch.setattr(stretching, "code_version", lambda: version[::-1])
    stretching.fine_tune("ntk", 0)
    assert len(files_in(folder)) == 2


def test_the_code_is_that_of_rope_of_this_module_and_the_weights(monkeypatch, tmp_path):
    weights = hashlib.sha256((HELPERS / "data" / "rope_models.npz").read_bytes()).hexdigest()
    assert stretching.code_version() == f"{cache.code_version('rope', more=stretching.CODE)} {weights}"
    (tmp_path / "data").mkdir()
    found = {stretching.code_version()}
    monkeypatch.setattr(stretching, "files", lambda package: tmp_path)
    for content in (b"one", b"other"):
        (tmp_path / "data" / "rope_models.npz").write_bytes(content)
        found.add(stretching.code_version())
    assert len(found) == 3


@pytest.fixture
def changes(monkeypatch, tmp_path):
    """changes(module, old, new) returns whether that makes another version of what was measured."""
    shutil.copytree(HELPERS, tmp_path / "helpers", ignore=shutil.ignore_patterns("__pycache__", "data"))
    monkeypatch.setattr(versions, "files", lambda package: tmp_path / package)
    versions._module.cache_clear()
    before = stretching.code_version()

    def change(module, old, new):
        path = tmp_path / "helpers" / f"{module}.py"
        content = path.read_text(encoding="utf-8")
        assert content.count(old) == 1, f"{module}.py must have {old!r} once: the test must follow the code"
        path.write_text(content.replace(old, new), encoding="utf-8")
        versions._module.cache_clear()
        return stretching.code_version() != before

    yield change
    versions._module.cache_clear()


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("stretching", "TUNING_WARM_UP = 50, 16, 5", "TUNING_WARM_UP = 50, 16, 6"),
        ("stretching", "TUNING_RATE = 3e-3", "TUNING_RATE = 4e-3"),
        ("stretching", "weight_decay=0.01", "weight_decay=0.02"),
        ("stretching", "HIGH_TURNS = 0.5, 4.0", "HIGH_TURNS = 0.5, 5.0"),
        ("stretching", "1 else 2 * factor", "1 else 3 * factor"),
        ("stretching", "by_parts(factor, 1, 32)", "by_parts(factor, 1, 16)"),
        ("stretching", "inv_freq[pairs] /= factor", "inv_freq[pairs] *= factor"),
        ("stretching", "[position], dynamic(position + 1)", "[position], dynamic(position)"),
        ("stretching", "[:, -16:].mean()", "[:, -8:].mean()"),
        ("context_extension", "1 + factor * max(length / trained_length - 1, 0)", "factor"),
        ("measures", "PIECES, BLOCKS = 64, 8", "PIECES, BLOCKS = 32, 8"),
        ("rope", "(attention_factor * wave(angles))", "(wave(angles))"),
        ("schemes", "(self.attention_factor * wave(angles))", "(wave(angles))"),
        ("steps", "np.square(positive)", "positive"),
        ("training", "math.sqrt(1 - betas[1] ** step)", "math.sqrt(1 - betas[1])"),
        ("text", "REACH = 512", "REACH = 256"),
    ],
)
def test_a_changed_formula_is_another_version(changes, module, old, new):
    assert changes(module, old, new)


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("stretching", '"""Position interpolation."""', '"""Interpolation."""'),
        ("stretching", "This can't be kept", "It can't be kept"),
        ("stretching", "seed must be one of", "seed has to be one of"),
        ("stretching", "lengths[0] * lengths[1]", "lengths[0] + lengths[1]"),  # strengths are not stored
        ("schemes", "(self.slope_factor * alibi_slopes(self.n_heads))", "(alibi_slopes(self.n_heads))"),
    ],
)
def test_what_changes_no_stored_number_is_no_other_version(changes, module, old, new):
    assert not changes(module, old, new)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "text"])
def test_a_damaged_file_is_said_and_made_anew(monkeypatch, folder, capsys, damage):
    first = stretching.fine_tune("by_parts", 0)
    (path,) = folder.iterdir()
    content = path.read_bytes()
    middle = content.index(first.losses.tobytes())
    spoiled = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    path.write_bytes({"flipped": spoiled, "cut": content[:-50], "empty": b"", "text": b"hello"}[damage])
    assert equal_results(stretching.fine_tune("by_parts", 0), first)
    assert path.name in capsys.readouterr().out
    monkeypatch.setattr(stretching, "_fine_tune", never)
    assert equal_results(stretching.fine_tune("by_parts", 0), first)
    assert files_in(folder) == [path.name]


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("when", ["in a step", "in the measuring", "in the writing"])
def test_an_interrupt_keeps_nothing(monkeypatch, folder, when):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if when == "in a step":
            patch.setattr(training, "adamw", interrupt)
        elif when == "in the measuring":
            patch.setattr(stretching, "losses", interrupt)
        else:
            patch.setattr(cache.os, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            stretching.fine_tune("ntk", 0)
    assert files_in(folder) == []
    assert stretching.fine_tune("ntk", 0).steps.shape == (2,)
    assert len(files_in(folder)) == 1


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    "in_the_way", ["a file for the cache folder", "a folder for the file", "no right to write"]
)
def test_what_cannot_be_kept_is_still_returned(monkeypatch, folder, capsys, in_the_way):
    expected = stretching.fine_tune("ntk", 0)
    (path,) = folder.iterdir()
    path.unlink()
    capsys.readouterr()
    if in_the_way.startswith("a file"):
        folder.rmdir()
        folder.write_text("")
    elif in_the_way.startswith("a folder"):
        path.mkdir()
    else:
        mkstemp = tempfile.mkstemp

        def refused(*args, **kwargs):
            if Path(kwargs.get("dir") or "/").is_relative_to(folder):
                raise PermissionError(13, "Permission denied")
            return mkstemp(*args, **kwargs)

        monkeypatch.setattr(cache.tempfile, "mkstemp", refused)
    assert equal_results(stretching.fine_tune("ntk", 0), expected)
    printed = capsys.readouterr().out
    assert f"can't be kept for next time in {folder}" in printed


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("show", [True, False])
def test_the_bar_is_shown_when_asked_for(monkeypatch, show):
    asked = []

    def bar(steps, **options):
        asked.append(options["disable"])
        return steps

    monkeypatch.setattr(stretching, "tqdm", bar)
    stretching.fine_tune("ntk", 0, show=show)
    assert asked == [not show]


def test_fine_tuning_uses_one_thread_and_gives_the_others_back(monkeypatch):
    def threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    seen = []

    def quick(model, seed, rate, show):
        seen.append(threads())
        return stretching.FineTuned(np.zeros(2), np.zeros(4))

    monkeypatch.setattr(stretching, "_fine_tune", quick)
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        stretching.fine_tune("ntk", 0)
        assert threads() == before
    assert seen[0] <= {1}


@pytest.mark.parametrize(
    ("method", "seed", "said"),
    [("pi", 0, ("method", "'pi'", "interpolation")), ("ntk", 5, ("seed", "5", "4"))],
)
def test_a_fine_tuning_that_there_is_not_is_refused_in_words(method, seed, said):
    """Notebook 07 asks its readers to put in another method."""
    with pytest.raises(ValueError, match=said[0]) as caught:
        stretching.fine_tune(method, seed)
    assert [word for word in said if word not in str(caught.value)] == []


@pytest.mark.parametrize("seed", [*cases(NOT_A_COUNT), pytest.param(-1, id="negative")])
def test_a_seed_that_is_no_count_is_refused(monkeypatch, seed):
    monkeypatch.setattr(stretching, "_fine_tune", never)
    refuses(lambda: stretching.fine_tune("ntk", seed), ValueError if seed == -1 else TypeError, "seed", seed)


@pytest.mark.parametrize("rate", cases(NOT_A_NUMBER))
def test_a_rate_that_is_no_number_is_refused(monkeypatch, rate):
    monkeypatch.setattr(stretching, "_fine_tune", never)
    refuses(lambda: stretching.fine_tune("ntk", 0, rate=rate), TypeError, "rate", rate)


@pytest.mark.parametrize("rate", [*cases(NOT_FINITE), 0, -3e-3])
def test_a_rate_that_is_not_above_0_is_refused(monkeypatch, rate):
    monkeypatch.setattr(stretching, "_fine_tune", never)
    refuses(lambda: stretching.fine_tune("ntk", 0, rate=rate), ValueError, "rate", rate)


@pytest.mark.parametrize("method", ["ntk", "unscaled"])  # without scaling, nothing else would look at it
@pytest.mark.parametrize("factor", [0, -8, np.nan])
def test_a_factor_that_is_not_above_0_is_refused_and_nothing_is_kept(monkeypatch, folder, method, factor):
    monkeypatch.setattr(stretching, "_fine_tune", never)
    refuses(lambda: stretching.fine_tune(method, 0, factor), ValueError, "factor", factor)
    assert files_in(folder) == []


# what the first layer asks for


def test_queries_and_keys_are_those_that_the_first_layer_turns(monkeypatch, run):
    turned = []

    def note(scheme, x, positions):
        turned.append(x.copy())
        return x

    model = run.decoder()
    with monkeypatch.context() as patch:
        patch.setattr(Rope, "rotate", note)
        forward(model, measures.shared_pieces()[:3, :40])
    q, k = stretching.first_queries_and_keys(run, 40, 3)
    assert q.shape == k.shape == (3, 4, 40, 16)
    np.testing.assert_allclose(q, turned[0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(k, turned[1], rtol=0, atol=1e-5)


def test_strengths_equal_a_loop(run):
    q, k = stretching.first_queries_and_keys(run, LENGTH)
    expected = []
    for pair in range(PAIRS):
        of_heads = []
        for head in range(4):
            mean_length = []
            for x in (q, k):
                lengths = [
                    math.hypot(*x[text, head, position, 2 * pair : 2 * pair + 2])
                    for text in range(8)
                    for position in range(LENGTH)
                ]
                mean_length.append(sum(lengths) / len(lengths))
            of_heads.append(mean_length[0] * mean_length[1] / 4)  # 4 is the root of head_dim
        expected.append(sum(of_heads) / 4)
    found = stretching.strengths(run)
    assert found.shape == (PAIRS,)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


# keys that are out of date


def base_at(length):
    """Dynamic NTK for 16 features, trained on 64."""
    return 10_000 * max(length / 64, 1) ** (16 / 14)


def turned_by_a_loop(x, bases, positions):
    """Each row turned by its own base, pair by pair, in Python's own numbers: (..., n, 16)."""
    out = np.zeros(x.shape)
    for row, (base, position) in enumerate(zip(bases, positions, strict=True)):
        for pair in range(8):
            angle = position * base ** (-2 * pair / 16)
            u, v = x[..., row, 2 * pair].astype(float), x[..., row, 2 * pair + 1].astype(float)
            out[..., row, 2 * pair] = u * math.cos(angle) - v * math.sin(angle)
            out[..., row, 2 * pair + 1] = u * math.sin(angle) + v * math.cos(angle)
    return out


def stale_rope():
    return StaleRope(64, 4, LENGTH)


def test_a_stale_model_reads_and_is_not_trained(run):
    """Its rotation has no way back, and the decoder says so instead of training without one."""
    model = run.decoder()
    stale = replace(model, layers=tuple(layer._replace(scheme=stale_rope()) for layer in model.layers))
    piece = measures.shared_pieces()[:1, :21]
    assert forward(stale, piece).logits.shape == (1, 21, 62)
    with pytest.raises(TypeError, match=r"StaleRope\.rotate must return its output and back"):
        loss_and_gradients(stale, piece[:, :-1], piece[:, 1:])


@pytest.mark.parametrize("length", [1, 64, 65, 128, 300])
def test_dynamic_has_the_base_of_the_length(length):
    found = stretching.dynamic(length)
    np.testing.assert_allclose(found.inv_freq, [base_at(length) ** (-2 * i / 16) for i in range(8)])
    assert found.attention_factor == 1
    expected = context_extension.dynamic_ntk(16, trained_length=64, length=length)
    np.testing.assert_array_equal(found.inv_freq, expected.inv_freq)


def test_stale_rope_equals_a_loop_with_the_base_of_each_moment():
    x = np.random.default_rng(1).normal(size=(2, 4, 150, 16))
    given, positions = x.copy(), np.arange(150)
    found = stale_rope().rotate(x, positions)
    expected = turned_by_a_loop(x, [base_at(position + 1) for position in positions], positions)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(x, given)
    last = turned_by_a_loop(x, [base_at(150)] * 150, positions)
    assert np.abs(found - last)[:, :, 100].max() > 0.05  # a key that came at 100 is not what it would be now


def test_stale_rope_of_later_positions():
    """A text that starts at position 60 crosses the trained length with its fifth token."""
    x = np.random.default_rng(2).normal(size=(1, 4, 20, 16)).astype(np.float32)
    positions = np.arange(60, 80)
    found = stale_rope().rotate(x, positions)
    assert found.dtype == np.float32
    expected = turned_by_a_loop(x, [base_at(position + 1) for position in positions], positions)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("length", [1, 63, 64, 65])
def test_up_to_the_trained_length_stale_rope_is_rope(length):
    x = np.random.default_rng(3).normal(size=(2, 4, length, 16))
    plain, _ = Rope(64, 4, LENGTH).rotate(x, np.arange(length))
    found = stale_rope().rotate(x, np.arange(length))
    np.testing.assert_allclose(found[:, :, :64], plain[:, :, :64], rtol=0, atol=1e-14)
    assert np.allclose(found, plain, rtol=0, atol=1e-14) == (length <= 64)


@pytest.mark.parametrize("nearest", [None, 1, 16])
@pytest.mark.parametrize("length", [1, 2, 63, 64])
def test_up_to_the_trained_length_no_score_is_off(run, length, nearest):
    assert stretching.stale_score_error(run, length, nearest) < 1e-6


@pytest.mark.parametrize("nearest", [None, 1, 16])
def test_stale_score_error_equals_a_loop(run, nearest):
    length = 90
    q, k = stretching.first_queries_and_keys(run, length)
    places = np.arange(length)
    query = turned_by_a_loop(q[:, :, -1:], [base_at(length)], [length - 1])
    scores = {}
    for name, bases in (("right", [base_at(length)] * length), ("wrong", [base_at(p + 1) for p in places])):
        scores[name] = (query * turned_by_a_loop(k, bases, places)).sum(axis=-1)
    right = scores["right"].ravel()
    spread = math.sqrt(np.mean((right - right.mean()) ** 2))
    first = 0 if nearest is None else length - nearest
    off = math.sqrt(np.mean((scores["wrong"] - scores["right"])[:, :, first:] ** 2))
    found = stretching.stale_score_error(run, length, nearest)
    assert found == pytest.approx(off / spread, rel=1e-3, abs=1e-6)


def test_the_newest_key_is_never_stale(run):
    for length in (80, 200):
        assert stretching.stale_score_error(run, length, 1) < 1e-6
        assert stretching.stale_score_error(run, length) > 0.02


def test_stale_and_fresh(monkeypatch, run):
    pieces = fewer_pieces(monkeypatch, 3)
    found = stretching.stale_and_fresh(run, (40, 64, 100))
    assert found.shape == (2, 3)
    np.testing.assert_allclose(found[0, :2], found[1, :2], rtol=0, atol=1e-5)
    assert abs(found[0, 2] - found[1, 2]) > 1e-3
    for place, length in enumerate((40, 64, 100)):
        fresh = stretching.stretched(run, RotaryScaling(stretching.dynamic(length).inv_freq, 1.0))
        expected = token_losses(fresh, pieces[:, : length + 1])[:, length - 16 :].mean()
        assert found[1, place] == pytest.approx(expected, abs=1e-5)


def test_stale_keys_are_what_the_model_reads(monkeypatch, run):
    """The first number is the loss of a model whose rotation is the loop above."""
    pieces = fewer_pieces(monkeypatch, 2)
    found = stretching.stale_and_fresh(run, (90,))[0, 0]
    model = run.decoder()
    monkeypatch.setattr(
        model.scheme,
        "rotate",
        lambda x, positions: turned_by_a_loop(x, [base_at(p + 1) for p in positions], positions).astype(
            x.dtype
        ),
    )
    expected = token_losses(model, pieces[:, :91])[:, -16:].mean()
    assert found == pytest.approx(expected, abs=1e-4)


def test_stale_and_fresh_leaves_the_model_alone(monkeypatch, run):
    fewer_pieces(monkeypatch, 1)
    stretching.stale_and_fresh(run, (96,))
    same_arrays(run.parameters, made_up(1).parameters)
    assert type(run.decoder().scheme) is Rope
    np.testing.assert_allclose(run.decoder().scheme.inv_freq, OLD, rtol=1e-14)
