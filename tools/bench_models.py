"""The decoder of helpers/transformer.py once more, in PyTorch and in JAX, as their users would write it.

bench.py measures the course against these. They take nothing from the course but its weights: every scheme
is written anew from its paper, and the gradients are autograd's. Neither library is needed: what is not
installed is None here.
"""

import os
from collections.abc import Callable
from functools import partial

import numpy as np

from helpers.training import Settings
from helpers.transformer import Decoder

# JAX sizes its pool of threads by this, when it first computes. XLA's flag --xla_cpu_multi_thread_eigen=false
# leaves the pool as large as the machine: with it, a step used 1.7 of two cores.
os.environ["NPROC"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"

try:
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
except ImportError:
    torch = None
try:
    import jax
    from jax import numpy as jnp
except ImportError:
    jax = None

Step = Callable[[np.ndarray, np.ndarray, float], float]  # tokens, targets and rate to the loss

BETAS = 0.9, 0.98
EPSILON = 1e-6  # of the norm


def decays(name: str, weight: object) -> bool:
    """Only the matrices of the decoder are pulled to zero."""
    return weight.ndim == 2 and not name.startswith("scheme.")


# --- PyTorch ---


class TorchDecoder:
    """All seven schemes. What does not change from step to step is computed once, as buffers are."""

    def __init__(self, model: Decoder, scheme: str, n: int) -> None:
        self.scheme, self.n, self.n_heads, self.n_layers = scheme, n, model.n_heads, model.n_layers
        self.parameters = {
            name: torch.tensor(array, requires_grad=True) for name, array in model.parameters.items()
        }
        self.d_model = self.parameters["embedding"].shape[1]
        self.head_dim = self.d_model // self.n_heads
        positions = torch.arange(n)
        offsets = positions - positions[:, None]  # key - query
        self.mask = torch.zeros(n, n).masked_fill(offsets > 0, -torch.inf)
        if scheme == "sinusoidal":
            angles = self.angles(self.d_model)
            waves = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)
            self.waves = (waves / self.d_model**0.5).float()
        elif scheme == "shaw":
            clip = len(self.parameters["scheme.key_table"]) // 2
            self.rows = offsets.clamp(-clip, clip) + clip
        elif scheme == "t5":
            # T5's own formula; a key after the query has distance 0, and is hidden anyway.
            n_buckets, distances = len(self.parameters["scheme.table"]), (-offsets).clamp(min=0)
            exact = n_buckets // 2
            octaves = torch.log(distances.double() / exact) / np.log(model.scheme.n_positions / exact)
            far = (exact + (octaves * (n_buckets - exact)).clamp(min=0).long()).clamp(max=n_buckets - 1)
            self.buckets = torch.where(distances < exact, distances, far)
        elif scheme == "rope":
            angles = self.angles(self.head_dim)
            self.turns = torch.polar(torch.ones_like(angles), angles).to(torch.complex64)
        elif scheme == "alibi":
            slopes = 2.0 ** (-8 * torch.arange(1, self.n_heads + 1) / self.n_heads)
            self.mask = self.mask - slopes[:, None, None] * offsets.abs()

    def angles(self, width: int) -> "torch.Tensor":
        frequencies = 10_000.0 ** (-torch.arange(0, width, 2).double() / width)
        return torch.outer(torch.arange(self.n).double(), frequencies)

    def loss(self, tokens: "torch.Tensor", targets: "torch.Tensor") -> "torch.Tensor":
        p = self.parameters
        x = self.with_positions(functional.embedding(tokens, p["embedding"]))
        for layer in range(self.n_layers):
            projected = self.norm(x, f"{layer}.norm_1") @ p[f"{layer}.qkv"]
            q, k, v = projected.unflatten(-1, (3, self.n_heads, self.head_dim)).permute(2, 0, 3, 1, 4)
            mixed = self.attend(self.turned(q), self.turned(k), v)
            x = x + mixed.transpose(1, 2).flatten(2) @ p[f"{layer}.out"]
            wide = self.norm(x, f"{layer}.norm_2") @ p[f"{layer}.up"]
            x = x + functional.relu(wide).square() @ p[f"{layer}.down"]
        logits = self.norm(x, "norm") @ p["unembedding"]
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def norm(self, x: "torch.Tensor", gain: str) -> "torch.Tensor":
        return functional.rms_norm(x, (self.d_model,), self.parameters[gain], EPSILON)

    def with_positions(self, x: "torch.Tensor") -> "torch.Tensor":
        if self.scheme == "sinusoidal":
            return x + self.waves
        return x + self.parameters["scheme.table"][: self.n] if self.scheme == "learned" else x

    def turned(self, x: "torch.Tensor") -> "torch.Tensor":
        if self.scheme != "rope":
            return x
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * self.turns).flatten(-2)

    def attend(self, q: "torch.Tensor", k: "torch.Tensor", v: "torch.Tensor") -> "torch.Tensor":
        if self.scheme == "t5":
            by_head = functional.embedding(self.buckets, self.parameters["scheme.table"])
            bias = self.mask + by_head.movedim(-1, 0)
        elif self.scheme == "shaw":
            # As the paper has it, with a row for each query and key; a gather of products is no faster here.
            rows = functional.embedding(self.rows, self.parameters["scheme.key_table"])
            bias = self.mask + torch.einsum("bhqd,qkd->bhqk", q, rows) * self.head_dim**-0.5
        else:  # the fused kernel is faster, but has no gradient of a bias
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
        return torch.softmax(q @ k.mT * self.head_dim**-0.5 + bias, dim=-1) @ v


def torch_step(model: Decoder, settings: Settings, n: int) -> Step:
    """Eager mode, autograd, and the fused form of PyTorch's own AdamW."""
    decoder = TorchDecoder(model, settings.scheme, n)
    groups: dict[bool, list] = {True: [], False: []}
    for name, weight in decoder.parameters.items():
        groups[decays(name, weight)].append(weight)
    optimizer = torch.optim.AdamW(
        [{"params": groups[True]}, {"params": groups[False], "weight_decay": 0.0}],
        weight_decay=settings.weight_decay,
        betas=BETAS,
        fused=True,
    )

    def step(tokens: np.ndarray, targets: np.ndarray, rate: float) -> float:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = decoder.loss(torch.from_numpy(tokens), torch.from_numpy(targets))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def torch_gradients(
    model: Decoder, scheme: str, tokens: np.ndarray, targets: np.ndarray
) -> dict[str, np.ndarray]:
    """Return autograd's gradient of every parameter by its name."""
    decoder = TorchDecoder(model, scheme, tokens.shape[1])
    decoder.loss(torch.from_numpy(tokens), torch.from_numpy(targets)).backward()
    return {name: weight.grad.numpy() for name, weight in decoder.parameters.items()}


# --- JAX ---


def jax_loss(
    scheme: str,
    n_heads: int,
    n_layers: int,
    n_positions: int,
    p: dict,
    tokens: "jax.Array",
    targets: "jax.Array",
):
    """The mean loss, for all seven schemes. The compiler computes once what depends on no weight."""
    batch, n = tokens.shape
    d_model = p["embedding"].shape[1]
    head_dim = d_model // n_heads
    offsets = np.arange(n) - np.arange(n)[:, None]
    mask = np.where(offsets > 0, -np.inf, 0).astype(np.float32)

    def waves(width):
        angles = np.outer(np.arange(n), 10_000.0 ** (-np.arange(0, width, 2) / width))
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def norm(x, gain):
        return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + EPSILON) * gain

    def with_positions(x):
        if scheme == "sinusoidal":
            cos, sin = waves(d_model)
            return x + np.stack((sin, cos), axis=-1).reshape(n, d_model) / np.float32(d_model**0.5)
        return x + p["scheme.table"][:n] if scheme == "learned" else x

    def turned(x):
        if scheme != "rope":
            return x
        cos, sin = waves(head_dim)
        u, v = x[..., 0::2], x[..., 1::2]
        return jnp.stack((u * cos - v * sin, u * sin + v * cos), axis=-1).reshape(x.shape)

    def scores(q, k):
        if scheme == "shaw":
            clip = len(p["scheme.key_table"]) // 2
            rows = p["scheme.key_table"][np.clip(offsets, -clip, clip) + clip]
            return (q @ k.mT + jnp.einsum("bhqd,qkd->bhqk", q, rows)) * head_dim**-0.5 + mask
        content = q @ k.mT * head_dim**-0.5 + mask
        if scheme == "alibi":
            slopes = 2.0 ** (-8 * np.arange(1, n_heads + 1) / n_heads)
            return content - (slopes[:, None, None] * np.abs(offsets)).astype(np.float32)
        if scheme == "t5":
            n_buckets, distances = len(p["scheme.table"]), np.maximum(-offsets, 0)
            exact = n_buckets // 2
            octaves = np.log(np.maximum(distances, 1) / exact) / np.log(n_positions / exact)
            far = np.minimum(exact + (octaves * (n_buckets - exact)).astype(int), n_buckets - 1)
            return content + jnp.moveaxis(
                p["scheme.table"][np.where(distances < exact, distances, far)], -1, 0
            )
        return content

    x = with_positions(p["embedding"][tokens])
    for layer in range(n_layers):
        projected = norm(x, p[f"{layer}.norm_1"]) @ p[f"{layer}.qkv"]
        q, k, v = projected.reshape(batch, n, 3, n_heads, head_dim).transpose(2, 0, 3, 1, 4)
        mixed = jax.nn.softmax(scores(turned(q), turned(k)), axis=-1) @ v
        x = x + mixed.swapaxes(1, 2).reshape(batch, n, d_model) @ p[f"{layer}.out"]
        wide = norm(x, p[f"{layer}.norm_2"]) @ p[f"{layer}.up"]
        x = x + jnp.square(jax.nn.relu(wide)) @ p[f"{layer}.down"]
    guesses = jax.nn.log_softmax(norm(x, p["norm"]) @ p["unembedding"], axis=-1)
    return -jnp.take_along_axis(guesses, targets[..., None], axis=-1).mean()


def jax_step(model: Decoder, settings: Settings) -> Step:
    """Loss, gradients and AdamW compiled as one function, which may reuse the memory of what it replaces."""
    sizes = model.n_heads, model.n_layers, model.scheme.n_positions
    loss = partial(jax_loss, settings.scheme, *sizes)

    @partial(jax.jit, donate_argnums=0)
    def compiled(state, count, rate, tokens, targets):
        p, m, v = state
        now, gradients = jax.value_and_grad(loss)(p, tokens, targets)
        m = {name: BETAS[0] * m[name] + (1 - BETAS[0]) * g for name, g in gradients.items()}
        v = {name: BETAS[1] * v[name] + (1 - BETAS[1]) * g * g for name, g in gradients.items()}
        unbias = jnp.sqrt(1 - BETAS[1] ** count) / (1 - BETAS[0] ** count)
        p = {
            name: weight * (1 - rate * settings.weight_decay * decays(name, weight))
            - rate * unbias * m[name] / (jnp.sqrt(v[name]) + 1e-8)
            for name, weight in p.items()
        }
        return (p, m, v), now

    p = {name: jnp.array(array) for name, array in model.parameters.items()}
    state, count = (p, jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p)), 0

    def step(tokens: np.ndarray, targets: np.ndarray, rate: float) -> float:
        nonlocal state, count
        count += 1
        state, now = jax.block_until_ready(compiled(state, float(count), rate, tokens, targets))
        return float(now)

    return step
