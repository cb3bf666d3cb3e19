"""The language model of notebook 08: tokens, and the forward pass against a slow one and other programs."""

import dataclasses

import numpy as np
import pytest
import tiny_model
from bad_input import frozen
from tiny_model import BOOL, F32, I32, LIST, TEXT, U32, published_model, tiny
from trusted import reference

from helpers import byte_pairs, context_extension
from helpers import language_model as lm
from helpers.context_extension import RotaryScaling

REFERENCE = reference("language_model")
TOKENS = frozen([5, 80, 80, 3, 259, 40, 7, 101, 12, 12, 200, 6])
N = len(TOKENS)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The tiny model, and its numbers as the tests' own writer put them into the file."""
    content, numbers = tiny()
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    path.write_bytes(content)
    return lm.open_model(path), numbers


@pytest.fixture
def model(small):
    return small[0]


@pytest.fixture(scope="module")
def published():
    return lm.open_model(published_model())


# --- The slow form: loops over tokens, heads and pairs, in float64 ---


def slow_logits(w, tokens, positions, inv_freq=None, factor=1.0, layout="interleaved", hidden=()):
    """The logits of each token. positions: a number for each query and key, (n,) or by pair (n, pairs)."""
    heads, kv_heads, width = tiny_model.N_HEADS, tiny_model.N_KV_HEADS, tiny_model.HEAD_DIM
    if inv_freq is None:
        inv_freq = [tiny_model.BASE ** (-2 * i / width) for i in range(width // 2)]
    positions = np.broadcast_to(np.reshape(positions, (len(tokens), -1)), (len(tokens), width // 2))

    def norm(x, gain):
        return x / np.sqrt(np.mean(x**2) + tiny_model.EPSILON) * gain

    def turned(x, position):
        out = np.array(x)
        for i, frequency in enumerate(inv_freq):
            a, b = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + len(inv_freq))
            point = factor * complex(x[a], x[b]) * np.exp(1j * position[i] * frequency)
            out[a], out[b] = point.real, point.imag
        return out if layout != "none" else x

    rows = [w["token_embd"][token].astype(np.float64) for token in tokens]
    for layer in range(tiny_model.N_LAYERS):
        own = {name.split(".")[2]: one for name, one in w.items() if name.startswith(f"blk.{layer}.")}
        normed = [norm(x, own["attn_norm"]) for x in rows]
        q, k, v = ([own[f"attn_{name}"] @ x for x in normed] for name in "qkv")
        for i in range(len(rows)):
            mixed = []
            for head in range(heads):
                at, kv_at = (
                    slice(one * width, (one + 1) * width) for one in (head, head * kv_heads // heads)
                )
                seen = [j for j in range(i + 1) if (i, j) not in hidden]
                scores = [
                    turned(q[i][at], positions[i]) @ turned(k[j][kv_at], positions[j]) / width**0.5
                    for j in seen
                ]
                paid = np.exp(scores - np.max(scores))
                mixed.append(sum(p * v[j][kv_at] for p, j in zip(paid / paid.sum(), seen, strict=True)))
            rows[i] = rows[i] + own["attn_output"] @ np.concatenate(mixed)
            x = norm(rows[i], own["ffn_norm"])
            gate = own["ffn_gate"] @ x
            rows[i] = rows[i] + own["ffn_down"] @ (gate / (1 + np.exp(-gate)) * (own["ffn_up"] @ x))
    return np.array([w["token_embd"] @ norm(x, w["output_norm"]) for x in rows])


def same(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5 * np.abs(expected).max(initial=0))


# --- The forward pass ---


@pytest.mark.parametrize("layout", lm.LAYOUTS)
def test_logits_are_those_of_the_slow_form(layout, small):
    model, w = small
    read = lm.forward(model, TOKENS, layout=layout)
    assert read.logits.dtype == np.float32
    same(read.logits, slow_logits(w, TOKENS, np.arange(N), layout=layout))
    same(read.logits, read.states @ model.embedding.T)


def test_positions_are_free(small):
    model, w = small
    positions = np.array([0, 1, 2.5, 2.5, 4, 90, 91, 92, 93, 1000, 1001, 1002])
    read = lm.forward(model, TOKENS, positions)
    same(read.logits, slow_logits(w, TOKENS, positions))
    assert np.abs(read.logits - lm.forward(model, TOKENS).logits).max() > 0.1


def test_only_distances_count(model):
    same(lm.forward(model, TOKENS, 500 + np.arange(N)).logits, lm.forward(model, TOKENS).logits)


@pytest.mark.parametrize("method", ["position_interpolation", "ntk_aware", "yarn", "stopped pair", "partial"])
def test_a_scaling_changes_the_angles(method, small):
    model, w = small
    if method == "yarn":
        scaling = context_extension.yarn(8, 500.0, trained_length=64, factor=4)
        assert scaling.attention_factor > 1.1
    elif method == "stopped pair":
        scaling = RotaryScaling(np.array([1, 0, 0.1, 0.01]), 1.0)
    elif method == "partial":
        scaling = RotaryScaling(np.array([1, 0.1]), 1.0)
    else:
        scaling = getattr(context_extension, method)(8, 500.0, factor=3.0)
    expected = slow_logits(w, TOKENS, np.arange(N), *scaling)
    same(lm.forward(model, TOKENS, scaling=scaling).logits, expected)
    same(lm.forward(model, TOKENS, scaling=[scaling] * 3).logits, expected)


def test_layers_may_differ_in_their_rotation(model):
    """A layer in which nothing turns (NoPE) is as one in which all pairs stand still."""
    still, trained = RotaryScaling(np.zeros(4), 1.0), context_extension.unscaled(8, 500.0)
    mixed = lm.forward(model, TOKENS, scaling=[trained, None, trained]).logits
    same(mixed, lm.forward(model, TOKENS, scaling=[trained, still, trained]).logits)
    for other in (None, [None, trained, trained], [None] * 3):
        assert np.abs(mixed - lm.forward(model, TOKENS, scaling=other).logits).max() > 0.1


@pytest.mark.parametrize("cut", [1, 5, N - 1])
def test_reading_on_with_a_cache_is_reading_all(cut, model):
    whole = lm.forward(model, TOKENS)
    first = lm.forward(model, TOKENS[:cut])
    kept = [one.copy() for one in (*first.cache.keys, *first.cache.values, first.cache.positions)]
    second = lm.forward(model, TOKENS[cut:], cache=first.cache)
    same(np.concatenate([first.logits, second.logits]), whole.logits)
    for before, after in zip(
        kept, (*first.cache.keys, *first.cache.values, first.cache.positions), strict=True
    ):
        np.testing.assert_array_equal(before, after)  # the first page can be used again
    assert len(second.cache) == N
    assert second.cache.end == N - 1
    for ours, theirs in zip(second.cache.keys, whole.cache.keys, strict=True):
        same(ours, theirs)


def test_blocks_of_queries_change_nothing(model, monkeypatch):
    whole = lm.forward(model, TOKENS, look=[0, 2])
    monkeypatch.setattr(lm, "ROWS", 5)
    blocks = lm.forward(model, TOKENS, look=[0, 2])
    same(blocks.logits, whole.logits)
    for layer in (0, 2):
        same(blocks.weights[layer], whole.weights[layer])
    same(lm.losses(model, blocks.states[:-1], TOKENS[1:]), lm.losses(model, whole.states[:-1], TOKENS[1:]))


def test_weights_of_layers_that_are_looked_at(model):
    first = lm.forward(model, TOKENS[:4])
    found = lm.forward(model, TOKENS[4:], cache=first.cache, look=[1]).weights
    assert list(found) == [1]
    assert found[1].shape == (4, N - 4, N)
    np.testing.assert_allclose(found[1].sum(-1), 1, atol=1e-6)
    for query in range(N - 4):
        assert (found[1][:, query, query + 5 :] == 0).all()
        assert (found[1][:, query, : query + 5] > 0).all()


def test_fewer_logits_and_no_cache_on_request(model):
    whole = lm.forward(model, TOKENS)
    for last in (0, 1, 3, 100):
        read = lm.forward(model, TOKENS, last=last, keep=False)
        assert read.cache is None
        same(read.logits, whole.logits[N - min(last, N) :])


# --- Keys that stand elsewhere ---


def test_a_moved_page_is_a_page_read_there(model):
    """Only distances count, so page one moved back by 100 is page two read 100 further on."""
    first = lm.forward(model, TOKENS[:5]).cache
    far = lm.forward(model, TOKENS[5:], 100 + np.arange(5, N), cache=first).logits
    same(lm.forward(model, TOKENS[5:], cache=lm.moved(first, by=-100)).logits, far)
    same(lm.forward(model, TOKENS[5:], cache=lm.moved(first, to=np.arange(5) - 100)).logits, far)
    assert np.abs(far - lm.forward(model, TOKENS[5:], cache=first).logits).max() > 0.1


def test_a_gap_in_some_pairs_is_a_gap_where_the_others_stand_still(small):
    """In the slow form: each pair has positions of its own, for all layers alike."""
    model, w = small
    scaling = RotaryScaling(np.array([0, 0, 0.1, 0]), 1.0)  # in which pair 2 alone turns
    first = lm.forward(model, TOKENS[:5], scaling=scaling).cache
    far = lm.forward(model, TOKENS[5:], 40 + np.arange(5, N), cache=first, scaling=scaling).logits
    same(lm.forward(model, TOKENS[5:], cache=lm.moved(first, by=-40, pairs=[2]), scaling=scaling).logits, far)
    near = lm.forward(model, TOKENS[5:], cache=first, scaling=scaling).logits
    same(
        lm.forward(model, TOKENS[5:], cache=lm.moved(first, by=-40, pairs=[0, 1, 3]), scaling=scaling).logits,
        near,
    )
    assert np.abs(far - near).max() > 0.05
    positions = np.repeat(np.arange(N, dtype=float)[:, None], 4, axis=1)
    same(near, slow_logits(w, TOKENS, positions, scaling.inv_freq)[5:])


def test_a_gap_in_some_layers_is_a_gap_where_the_others_do_not_turn(model):
    """Layer 1 alone turns: what moves there moves all, and what moves in the others moves nothing."""
    only = [None, context_extension.unscaled(8, 500.0), None]

    def second(cache):
        return lm.forward(model, TOKENS[5:], cache=cache, scaling=only).logits

    first = lm.forward(model, TOKENS[:5], scaling=only).cache
    same(second(lm.moved(first, 0, to=4, layers=[1])), second(lm.moved(first, 0, to=4)))
    same(second(lm.moved(first, 0, to=4, layers=[0, 2])), second(first))
    assert np.abs(second(lm.moved(first, 0, to=4)) - second(first)).max() > 1e-3


def test_moves_add_up(model):
    cache = lm.forward(model, TOKENS).cache
    twice = lm.moved(lm.moved(cache, [1, 2], by=[10, 20]), slice(2, 4), by=-1, pairs=[0, 3], layers=[2])
    assert twice.positions.shape == (3, N, 4)
    assert twice.positions[0, :4, 0].tolist() == [0, 11, 22, 3]
    assert twice.positions[2, :4, 0].tolist() == [0, 11, 21, 2]
    assert twice.positions[2, :4, 1].tolist() == [0, 11, 22, 3]
    back = lm.moved(twice, slice(2, 4), by=1, pairs=[0, 3], layers=[2])
    assert (back.positions == lm.moved(cache, [1, 2], by=[10, 20]).positions).all()
    assert cache.positions.ravel().tolist() == list(range(N))


def test_nobody_sees_what_is_taken_out(small):
    model, w = small
    first = lm.forward(model, TOKENS[:5]).cache
    found = lm.forward(model, TOKENS[5:], cache=lm.without(first, [0, 3])).logits
    hidden = {(i, j) for i in range(5, N) for j in (0, 3)}
    same(found, slow_logits(w, TOKENS, np.arange(N), hidden=hidden)[5:])
    nothing = lm.forward(model, TOKENS[5:], cache=lm.without(first, slice(None))).logits
    same(nothing, lm.forward(model, TOKENS[5:]).logits)


# --- What the numbers say ---


def test_losses_are_of_the_softmax(model):
    read = lm.forward(model, TOKENS)
    logits = read.logits[:-1].astype(np.float64)
    expected = np.log(np.exp(logits).sum(-1)) - logits[np.arange(N - 1), TOKENS[1:]]
    np.testing.assert_allclose(lm.losses(model, read.states[:-1], TOKENS[1:]), expected, rtol=1e-4, atol=1e-5)


def test_likeliest(model):
    logits = lm.forward(model, TOKENS, last=1).logits[0]
    found = lm.likeliest(model, logits, 3)
    order = np.argsort(-logits)[:3]
    assert [text for text, _ in found] == [lm.decode(model, [token]) for token in order]
    weights = np.exp(logits.astype(np.float64) - logits.max())
    np.testing.assert_allclose([p for _, p in found], weights[order] / weights.sum(), rtol=1e-5)


def test_greedy_text_is_the_likeliest_token_each_time(model):
    found = lm.generate(model, TOKENS[:4], 6)
    tokens = list(TOKENS[:4])
    for written, given in zip(found.tokens, found.probabilities, strict=True):
        logits = lm.forward(model, tokens, last=1).logits[0]
        assert written == logits.argmax()
        assert given == pytest.approx(lm.likeliest(model, logits, 1)[0][1], rel=1e-4)
        tokens.append(int(written))
    assert len(found.cache) == len(tokens)
    again = lm.generate(model, TOKENS[:4], 6, temperature=1.0, seed=3)
    assert again.tokens.tolist() == lm.generate(model, TOKENS[:4], 6, temperature=1.0, seed=3).tokens.tolist()
    assert (
        len({tuple(lm.generate(model, TOKENS[:4], 6, temperature=1.0, seed=s).tokens) for s in range(5)}) > 1
    )


def test_text_goes_on_from_where_it_stands(model):
    """With a gap: the next page stands far off, and what is written goes on from there."""
    first = lm.forward(model, TOKENS[:5]).cache
    far = lm.generate(model, TOKENS[5:], 3, 50 + np.arange(5, N), cache=first)
    assert far.cache.end == 50 + N - 1 + 3
    assert far.cache.positions[0, -4:, 0].tolist() == [50 + N - 1 + i for i in range(4)]


def test_text_ends_where_the_model_ends_it(model):
    first = int(lm.generate(model, TOKENS[:4], 1).tokens[0])
    assert lm.generate(dataclasses.replace(model, end=first), TOKENS[:4], 6).tokens.tolist() == [first]


# --- Tokens ---


def test_merges_in_their_order(model):
    assert lm.decode(model, [1, 2]) == "<|im_end|>!"
    words = byte_pairs.words("the the, a 12  the\n")
    assert words == ["the", " the", ",", " a", " ", "1", "2", " ", " the", "\n"]
    by_name = {model.tokenizer.pieces[token]: token for token in range(len(model.tokenizer.pieces))}
    assert lm.encode(model, "the the").tolist() == [by_name[b"the"], by_name[b" the"]]
    assert byte_pairs.merge(b" thath", model.tokenizer.ranks) == [b" th", b"a", b"th"]


def test_special_tokens_stand_for_themselves(model):
    assert lm.encode(model, "a<|im_end|>a").tolist()[1] == 1
    assert lm.encode(model, "<|im_end>").size == len("<|im_end>")


@pytest.mark.parametrize("text", ["héllo wörld 日本 🙂\n\t x", "\x00\x7f\xa0\xad", " "])
def test_any_text_comes_back(text, model):
    assert lm.decode(model, lm.encode(model, text)) == text


def test_half_a_character_is_shown_as_one_that_is_missing(model):
    assert lm.decode(model, lm.encode(model, "é")[:1]) == "\N{REPLACEMENT CHARACTER}"


# --- The published model, against other programs ---


@pytest.mark.parametrize("text", REFERENCE["tokenized"])
def test_tokens_are_those_of_other_tokenizers(text, published):
    assert lm.encode(published, text).tolist() == REFERENCE["tokenized"][text]
    assert lm.decode(published, REFERENCE["tokenized"][text]) == text


def test_losses_and_logits_are_those_of_transformers(published):
    tokens = lm.encode(published, REFERENCE["text"])
    assert tokens.tolist() == REFERENCE["tokens"]
    read = lm.forward(published, tokens)
    np.testing.assert_allclose(
        lm.losses(published, read.states[:-1], tokens[1:]), REFERENCE["losses"], atol=2e-4
    )
    last = REFERENCE["last_logits"]
    np.testing.assert_allclose(read.logits[-1, last["tokens"]], last["logits"], atol=5e-4)
    assert np.argsort(-read.logits[-1])[:5].tolist() == last["tokens"]


@pytest.mark.parametrize("method", ["unscaled", "yarn"])
def test_losses_across_a_gap_are_those_of_transformers(method, published):
    gap, half = REFERENCE["gap_positions"], len(REFERENCE["tokens"]) // 2
    tokens, scaling, expected = REFERENCE["tokens"], None, REFERENCE["losses_with_gap"]
    if method == "yarn":
        scaling = context_extension.yarn(64, 100_000.0, trained_length=8192, factor=4)
        expected = REFERENCE["losses_with_gap_and_yarn_4"]
        assert scaling.attention_factor == pytest.approx(REFERENCE["yarn_attention_factor"])
    first = lm.forward(published, tokens[:half], gap[:half], scaling=scaling)
    second = lm.forward(published, tokens[half:], gap[half:], scaling=scaling, cache=first.cache)
    states = np.concatenate([first.states, second.states])
    np.testing.assert_allclose(lm.losses(published, states[:-1], tokens[1:]), expected, atol=3e-4)


def test_it_knows_the_capital_of_france(published):
    tokens = lm.encode(published, "The capital of France is")
    (word, probability), *_ = lm.likeliest(published, lm.forward(published, tokens, last=1).logits[0])
    assert word == " Paris"
    assert 0.7 < probability < 0.85


# --- What is refused ---


def refused(message, function, *args, **named):
    with pytest.raises(ValueError, match=message):
        function(*args, **named)


def test_bad_tokens(model):
    n = len(model.embedding)
    refused("at least one token, but got ''", lm.encode, model, "")
    refused("tokens must hold at least one token, but got none", lm.forward, model, [])
    refused(f"tokens must be from 0 to {n - 1}, but got {n}", lm.forward, model, [1, n])
    refused(f"tokens must be from 0 to {n - 1}, but got -1", lm.forward, model, [1, -1])
    refused(f"tokens must be from 0 to {n - 1}, but got {n}", lm.decode, model, [n])
    refused(f"targets must be from 0 to {n - 1}, but got -1", lm.losses, model, np.zeros((1, 32)), [-1])
    refused("lone surrogates", lm.encode, model, "a\ud800")
    refused("1 dimension", lm.forward, model, [[1, 2]])
    for tokens in ("abc", [1.0], None):
        with pytest.raises(TypeError, match="tokens must be an array of integers"):
            lm.forward(model, tokens)
    with pytest.raises(TypeError, match="text must be a str, but got 7"):
        lm.encode(model, 7)


def test_bad_positions(model):
    first = lm.forward(model, TOKENS[:5]).cache
    refused("positions must be 2, one a token, but got 3", lm.forward, model, [1, 2], [0, 1, 2])
    refused("positions must be at least 0, but got -1", lm.forward, model, [1, 2], [-1, 2])
    refused("never decrease, but got 2 after 3", lm.forward, model, [1, 2, 3], [0, 3, 2])
    refused("never decrease, but got 3 after 4", lm.forward, model, [1, 2], [3, 9], cache=first)
    refused("positions must hold finite numbers", lm.forward, model, [1, 2], [0, np.nan])
    refused(r"positions must be at most 2\^53", lm.forward, model, [1, 2], [0, 1e17])


def test_bad_scalings_caches_and_choices(model, tmp_path):
    fine = context_extension.unscaled(8)
    refused("for each of 3 layers", lm.forward, model, [1], scaling=[fine] * 2)
    refused("for each of 3 layers", lm.forward, model, [1], scaling="yarn")
    refused(
        "inv_freq must have 1 to 4 entries", lm.forward, model, [1], scaling=RotaryScaling(np.ones(5), 1.0)
    )
    refused(
        "inv_freq must hold finite", lm.forward, model, [1], scaling=RotaryScaling(np.array([np.inf]), 1.0)
    )
    refused("layout must be one of 'interleaved', 'half', 'none'", lm.forward, model, [1], layout="other")
    refused("look must be numbers from 0 to 2", lm.forward, model, [1], look=[3])
    with pytest.raises(TypeError, match="scaling must be of what context_extension returns"):
        lm.forward(model, [1], scaling=[fine, fine, 7])
    cache = lm.forward(model, TOKENS).cache
    refused("either to or by", lm.moved, cache, 0)
    refused("either to or by", lm.moved, cache, 0, to=1, by=1)
    refused("keys must be numbers from 0 to 11", lm.moved, cache, [12], by=1)
    refused("keys must be numbers from 0 to 11", lm.without, cache, [-1])
    refused("keys must be numbers that come once", lm.moved, cache, [1, 1], by=1)
    refused("pairs must be numbers from 0 to 3", lm.moved, cache, by=1, pairs=[4])
    refused("layers must be numbers from 0 to 2", lm.moved, cache, by=1, layers=3)
    refused("one for each of 2 keys", lm.moved, cache, [1, 2], by=[1, 2, 3])
    refused("by must hold finite numbers", lm.moved, cache, by=np.inf)
    refused("states must have shape", lm.losses, model, np.zeros((2, 31)), [1, 2])
    refused("logits must have the width of the vocabulary", lm.likeliest, model, np.zeros(5))
    refused("temperature must be at least 0", lm.generate, model, [1], 1, temperature=-1)
    refused("n must be a whole number of at least 1", lm.generate, model, [1], 0)
    other = dataclasses.replace(cache, keys=cache.keys[:2])
    refused("cache must be of this model", lm.forward, model, [1], cache=other)


def rows(n, *shape):
    return np.zeros((n, *shape))


OTHER_FILES = {
    "architecture": (
        {"general.architecture": (TEXT, "qwen2")},
        {},
        "architecture must be 'llama', but is 'qwen2'",
    ),
    "no architecture": ({"general.architecture": None}, {}, "must say 'general.architecture'"),
    "tokenizer": ({"tokenizer.ggml.model": (TEXT, "llama")}, {}, "model must be 'gpt2', but is 'llama'"),
    "cut of words": (
        {"tokenizer.ggml.pre": (TEXT, "llama-bpe")},
        {},
        "pre must be 'smollm', but is 'llama-bpe'",
    ),
    "a first token": ({"tokenizer.ggml.add_bos_token": (BOOL, True)}, {}, "must be False, but is 'True'"),
    "a scaling": ({"llama.rope.scaling.type": (TEXT, "yarn")}, {}, "must not have 'llama.rope.scaling.type'"),
    "experts": ({"llama.expert_count": (U32, 8)}, {}, "must not have 'llama.expert_count'"),
    "partial rotation": (
        {"llama.rope.dimension_count": (U32, 4)},
        {},
        "dimension_count must be 8, but is '4'",
    ),
    "no layers": ({"llama.block_count": (U32, 0)}, {}, "block_count must be a whole number of at least 1"),
    "too many layers": (
        {"llama.block_count": (U32, 2**31)},
        {},
        "must have 2147483648 layers, but has 29 tensors",
    ),
    "another layer": ({"llama.block_count": (U32, 4)}, {}, "lacks the tensor 'blk.3.attn_k'"),
    "a kind": ({"llama.block_count": (TEXT, "3")}, {}, "block_count must be a whole number .*but got '3'"),
    "heads": (
        {"llama.attention.head_count_kv": (U32, 3)},
        {},
        "heads must share keys evenly.*4 of width 8, and 3",
    ),
    "a width": ({"llama.embedding_length": (U32, 64)}, {}, "dimension_count must be 16"),
    "the base": (
        {"llama.rope.freq_base": (F32, -1.0)},
        {},
        "freq_base must be a finite number above 0, but got -1",
    ),
    "the end": (
        {"tokenizer.ggml.eos_token_id": (U32, 9999)},
        {},
        "eos_token_id must be below 263, but is 9999",
    ),
    "kinds of tokens": ({"tokenizer.ggml.token_type": (LIST, (I32, [1, 6]))}, {}, "token_type must have a 1"),
    "a merge": ({"tokenizer.ggml.merges": (LIST, (TEXT, ["q z"]))}, {}, "must make a token .*'q z'"),
    "letters": ({"tokenizer.ggml.merges": (LIST, (TEXT, ["q €"]))}, {}, "byte letters, but has '€'"),
    "a tensor less": ({}, {"blk.1.ffn_up": None}, "lacks the tensor 'blk.1.ffn_up'"),
    "a tensor more": (
        {},
        {"blk.1.attn_q.bias": ("F32", rows(32))},
        "must not have the tensor 'blk.1.attn_q.bias'",
    ),
    "a shape": ({}, {"blk.1.attn_k": ("F32", rows(8, 32))}, r"must have shape \(16, 32\), but has \(8, 32\)"),
    "NaN": (
        {},
        {"blk.2.attn_norm": ("F32", np.full(32, np.nan))},
        "'blk.2.attn_norm' must hold finite numbers",
    ),
    "inf": ({}, {"output_norm": ("F32", np.full(32, np.inf))}, "'output_norm' must hold finite numbers"),
}


@pytest.mark.parametrize("case", OTHER_FILES)
def test_a_file_of_another_model_is_refused_by_name(case, tmp_path):
    changed_facts, changed_weights, message = OTHER_FILES[case]
    path = tmp_path / "other.gguf"
    path.write_bytes(tiny(changed_facts, changed_weights)[0])
    with pytest.raises(ValueError, match=message) as problem:
        lm.open_model(path)
    assert str(path) in str(problem.value)


def test_an_unembedding_of_its_own_is_used(small, tmp_path):
    table = np.random.default_rng(9).normal(size=small[0].embedding.shape)
    path = tmp_path / "untied.gguf"
    path.write_bytes(tiny({}, {"output": ("F16", table)})[0])
    model = lm.open_model(path)
    read = lm.forward(model, TOKENS)
    same(read.logits, read.states @ table.T.astype(np.float16).astype(np.float32))
    same(read.states, lm.forward(small[0], TOKENS).states)


def test_weights_cannot_be_changed_by_a_slip(model):
    with pytest.raises(ValueError, match="read-only"):
        model.layers[0]["attn_q"] += 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.base = 1.0
