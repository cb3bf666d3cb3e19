"""The language model of notebook 08 in PyTorch and llama.cpp, for bench.py to measure the course against.

PyTorch takes the same float32 weights, with its own norm, rotation and fused attention. llama.cpp takes the
file itself: its weights stay in their blocks of four bits, which is other work. Neither is needed:
what is not installed is None here.
"""

from collections.abc import Callable

import numpy as np

from helpers.language_model import Model

try:
    import torch
    from torch.nn import functional
except ImportError:
    torch = None
try:
    import llama_cpp
except ImportError:
    llama_cpp = None

Step = Callable[[], object]


def products(model: Model, n: int) -> Step:
    """Only multiply n rows by each matrix: what no program with these weights can do without."""
    rng = np.random.default_rng(0)
    rows = {
        width: rng.normal(size=(n, width)).astype(np.float32) for width in (model.d_model, model.d_hidden)
    }
    matrices = [one for layer in model.layers for one in layer.values() if one.ndim == 2]

    def step() -> None:
        for matrix in (*matrices, model.unembedding):
            rows[matrix.shape[1]] @ matrix.T

    return step


class TorchModel:
    """The same model in PyTorch, with a cache of turned keys, as its users keep it."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.layers = [{name: torch.tensor(one) for name, one in layer.items()} for layer in model.layers]
        self.embedding, self.norm = torch.tensor(model.embedding), torch.tensor(model.norm)
        exponents = torch.arange(0, model.head_dim, 2, dtype=torch.float64) / model.head_dim
        self.inv_freq = model.base**-exponents

    @torch.inference_mode() if torch is not None else lambda function: function
    def read(self, tokens: np.ndarray, cache: list | None = None) -> tuple["torch.Tensor", list]:
        m, before = self.model, 0 if cache is None else cache[0][0].shape[1]
        angles = torch.outer(torch.arange(before, before + len(tokens)).double(), self.inv_freq)
        turns = torch.polar(torch.ones_like(angles), angles).to(torch.complex64)

        def turned(x):
            return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns).flatten(-2)

        def heads(x):
            return x.unflatten(-1, (-1, m.head_dim)).transpose(0, 1).contiguous()

        x, kept = self.embedding[torch.from_numpy(tokens)], []
        for number, w in enumerate(self.layers):
            normed = functional.rms_norm(x, (m.d_model,), w["attn_norm"], m.epsilon)
            q, k, v = (heads(functional.linear(normed, w[f"attn_{name}"])) for name in "qkv")
            q, k = turned(q), turned(k)
            if cache is not None:
                k, v = (torch.cat(pair, dim=1) for pair in zip(cache[number], (k, v), strict=True))
            kept.append((k, v))
            groups = m.n_heads // m.n_kv_heads  # written out: enable_gqa takes the slow kernel on a processor
            mixed = functional.scaled_dot_product_attention(
                q[None],
                k.repeat_interleave(groups, 0)[None],
                v.repeat_interleave(groups, 0)[None],
                is_causal=len(tokens) > 1 and not before,
            )[0]
            x = x + functional.linear(mixed.transpose(0, 1).flatten(1), w["attn_output"])
            wide = functional.rms_norm(x, (m.d_model,), w["ffn_norm"], m.epsilon)
            gate = functional.silu(functional.linear(wide, w["ffn_gate"]))
            x = x + functional.linear(gate * functional.linear(wide, w["ffn_up"]), w["ffn_down"])
        states = functional.rms_norm(x, (m.d_model,), self.norm, m.epsilon)
        return functional.linear(states, self.embedding), kept


class LlamaCpp:
    """The file itself in llama.cpp, read with so many threads; logits of all tokens, as the others give."""

    def __init__(self, path: str, threads: int) -> None:
        self.model = llama_cpp.Llama(
            path,
            n_ctx=1024,
            n_batch=512,
            n_threads=threads,
            n_threads_batch=threads,
            logits_all=True,
            verbose=False,
        )

    def read(self, tokens: np.ndarray) -> np.ndarray:
        self.model.reset()
        self.model.eval(tokens.tolist())
        return self.model.scores[: len(tokens)]

    def read_on(self, token: int, before: int) -> None:
        self.model.n_tokens = before  # forget what came after
        self.model.eval([token])
