"""How fast the helpers are, as ratios measured side by side in one run: `make bench`. Nothing is asserted.

Candidates take turns, and each time is the median of many turns, so that a busy machine slows all alike. All
use one thread. Plain loops are timed on a slice and scaled up. PyTorch and JAX are compared where they are
installed, and pictures in JupyterLab are counted where Chromium is. `make bench ARGS="training"` measures one
group alone.
"""

import gc
import importlib.util
import math
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import matplotlib
import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from helpers import processes, relative_bias, rope
from helpers.drawing import new_figure, png
from helpers.live import live, log_slider, slider  # noqa: F401, for the notebooks of frames_in_a_drag
from helpers.schemes import SCHEMES
from helpers.sinusoidal import sinusoidal_encoding
from helpers.training import LENGTH, Settings, adamw, batches, corpus, learning_rates
from helpers.transformer import Decoder, loss_and_gradients, new_decoder

WIDTH = 62
POSITIONS, D_MODEL, PAIRS = 100, 64, 128
BASES = [base for _, base in log_slider(10_000, 10, 1_000_000).options]
SECONDS_OF_DRAG = 5


def compare(
    title: str, candidates: dict[str, tuple[Callable, float]], seconds: float = 3
) -> dict[str, list[float]]:
    """Print the median time of each candidate, multiplied by its scale, and its ratio to the first one's.

    Returns the times, one a turn.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for call, _ in candidates.values():
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < 5:
        for name, (call, scale) in candidates.items():
            start = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - start) * scale)
    medians = {name: statistics.median(values) for name, values in times.items()}
    report(title, {name: (f"{1000 * m:,.3g} ms", m) for name, m in medians.items()})
    return times


def report(title: str, rows: dict[str, tuple[str, float]]) -> None:
    """Print a table; the last column says how many times as fast as the first row each row is."""
    print(f"\n{title}")
    first = next(iter(rows.values()))[1]
    for name, (shown, cost) in rows.items():
        print(f"  {name:<{WIDTH}} {shown:>14} {first / cost:>10,.1f} x", flush=True)


# --- A slider step ---


def build(figure):
    """Build a panel of a heat map, six curves and a similarity matrix, all of which a step changes."""
    figure.set_size_inches(10, 5)
    table, waves, similar = figure.subplots(1, 3)
    figure.subplots_adjust(left=0.07, right=0.97, bottom=0.14, top=0.88, wspace=0.3)
    image = table.imshow(np.zeros((POSITIONS, D_MODEL)), aspect="auto", vmin=-1, vmax=1, cmap="RdBu_r")
    table.set(title="The table", xlabel="feature", ylabel="position")
    lines = waves.plot(np.zeros((POSITIONS, 6)))
    waves.set(title="Six waves", xlabel="position", ylim=(-1.1, 1.1))
    matrix = similar.imshow(np.zeros((PAIRS, PAIRS)), vmin=-1, vmax=1)
    similar.set(title="Similarity", xlabel="position", ylabel="position")

    def update(base):
        encoding = sinusoidal_encoding(PAIRS, D_MODEL, base)
        image.set_data(encoding[:POSITIONS])
        for line, column in zip(lines, encoding[:POSITIONS, ::10].T, strict=False):
            line.set_ydata(column)
        matrix.set_data(encoding @ encoding.T / (D_MODEL / 2))
        return f"Base {base:,.0f}: the slowest wave takes {2 * math.pi * base:,.0f} positions a turn."

    return update


def show_with_pyplot(base):
    """Draw as `interact` users do: a new figure each time."""
    from matplotlib import pyplot

    build(pyplot.figure())(base=base)
    pyplot.show()


def slider_step() -> None:
    matplotlib.use("agg")
    from IPython.core.pylabtools import print_figure
    from matplotlib import pyplot

    turn = {"interact": 0, "whole": 0, "live": 0}

    def next_base(name: str) -> float:
        turn[name] += 1
        return BASES[turn[name] % len(BASES)]

    def new_figure_each_time() -> None:
        figure = pyplot.figure()
        build(figure)(base=next_base("interact"))
        print_figure(figure, fmt="png", bbox_inches="tight", base64=True)  # the inline backend's own function
        pyplot.close(figure)

    kept = new_figure()
    update = build(kept)

    def drawn_in_full() -> None:
        update(base=next_base("whole"))
        kept.canvas.draw()
        png(kept)

    panel = live(build, base=log_slider(10_000, 10, 1e6))

    def moved() -> None:
        panel.controls["base"].value = next_base("live")

    candidates = {
        "interact: a new pyplot figure, encoded as the inline backend does": (new_figure_each_time, 1),
        "a figure that is kept, drawn in full": (drawn_in_full, 1),
        "live: what moved is drawn": (moved, 1),
    }
    compare("Kernel time of a slider step (heat map, six curves, matrix)", candidates, seconds=12)


def memory_of_steps(steps: int = 500) -> None:
    """Print how much memory a panel takes more after many slider steps, once everything was used."""
    title = f"Memory after {steps} slider steps"
    if importlib.util.find_spec("psutil") is None:
        print(f"\n{title}: left out, psutil is not installed.")
        return
    import psutil

    panel, process = live(build, base=log_slider(10_000, 10, 1e6)), psutil.Process()

    def move(count: int) -> float:
        for base in islice(cycle(BASES), count):
            panel.controls["base"].value = base
        gc.collect()
        return process.memory_info().rss / 2**20

    before, after = move(2 * len(BASES)), move(steps)
    print(f"\n{title}\n  {before:.1f} MB before, {after:.1f} MB after: {after - before:+.1f} MB")


def memory_of_reruns(times: int = 50) -> None:
    """Print how much memory a kernel takes more after it ran one panel's cell many times."""
    title = f"Memory of a kernel after a panel's cell ran {times} times more"
    if importlib.util.find_spec("psutil") is None:
        print(f"\n{title}: left out, psutil is not installed.")
        return
    import psutil
    from jupyter_client.manager import start_new_kernel

    head = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport bench\n"
    cell = f"{head}bench.live(bench.build, base=bench.log_slider(10_000, 10, 1e6))"
    manager, client = start_new_kernel()
    try:
        process = psutil.Process(manager.provisioner.pid)

        def run(count: int) -> float:
            for _ in range(count):
                content = {"code": cell, "silent": False, "store_history": True, "allow_stdin": True}
                # JupyterLab names the cell; a panel knows by it which one it replaces.
                message = client.session.msg("execute_request", content, metadata={"cellId": "one"})
                client.shell_channel.send(message)
                answer = client.get_shell_msg(timeout=60)
                while client.iopub_channel.msg_ready():  # what nobody reads, the kernel would keep
                    client.get_iopub_msg()
                if answer["content"]["status"] != "ok":
                    raise RuntimeError(answer["content"])
            return process.memory_info().rss / 2**20

        before, after = run(10), run(times)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    print(f"\n{title}\n  {before:.1f} MB before, {after:.1f} MB after: {after - before:+.1f} MB")


def frames_in_a_drag() -> None:
    """Count the pictures that JupyterLab shows while a slider is dragged with 60 moves a second."""
    title = (
        f"Pictures a second that JupyterLab shows in a drag of {SECONDS_OF_DRAG} seconds, 60 moves a second"
    )
    if importlib.util.find_spec("playwright") is None:
        print(f"\n{title}: left out, Playwright is not installed")
        return
    import nbformat
    from lab import Lab, chromium, errors_in_cells, find_chromium, run_all

    if find_chromium() is None:
        print(f"\n{title}: left out, Chromium is not installed")
        return
    head = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport bench\n"
    control = "base=bench.slider(10_000, 10, 1_000_000, 2_000)"
    codes = {
        "interact": f"{head}from ipywidgets import interact\ninteract(bench.show_with_pyplot, {control});",
        "live": f"{head}bench.live(bench.build, {control})",
    }
    rates = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{name}.ipynb" for name in codes]
        for path, code in zip(paths, codes.values(), strict=True):
            cells = [nbformat.v4.new_code_cell("%matplotlib inline"), nbformat.v4.new_code_cell(code)]
            notebook = nbformat.v4.new_notebook(cells=cells)
            notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
            nbformat.write(notebook, path)
        with Lab(paths) as lab, chromium() as browser:
            for path in paths:
                page = browser.new_page(viewport={"width": 1280, "height": 720})
                lab.open(page, path.name)
                run_all(page)
                if errors := errors_in_cells(page):
                    raise RuntimeError(f"{path.name}: {errors}")
                rates[path.stem] = count_frames(page) / SECONDS_OF_DRAG
                page.close()
    names = {"interact": "interact, a new pyplot figure each time", "live": "live"}
    report(title, {names[name]: (f"{rate:.1f} a s", 1 / rate) for name, rate in rates.items()})


def count_frames(page) -> int:
    picture = ".jp-OutputArea :is(.widget-image, .jp-RenderedImage img)"
    page.locator(picture).wait_for()
    page.evaluate(
        """(selector) => {
            const seen = { count: -1, source: null };  // the picture that is there already does not count
            window.benchSeen = seen;
            const look = () => {
                const image = document.querySelector(selector);
                if (image && image.complete && image.naturalWidth > 0 && image.src !== seen.source) {
                    seen.source = image.src;
                    seen.count += 1;
                }
                requestAnimationFrame(look);
            };
            requestAnimationFrame(look);
        }""",
        picture,
    )
    page.wait_for_function("() => window.benchSeen.count === 0")
    handle, track = page.locator(".noUi-handle").bounding_box(), page.locator(".noUi-base").bounding_box()
    y = handle["y"] + handle["height"] / 2
    page.mouse.move(handle["x"] + handle["width"] / 2, y)
    page.mouse.down()
    start = time.perf_counter()
    move = 0
    while (elapsed := time.perf_counter() - start) < SECONDS_OF_DRAG:
        share = 0.5 + 0.4 * math.sin(2 * math.pi * elapsed / 4)  # there and back in four seconds
        page.mouse.move(track["x"] + share * track["width"], y)
        move += 1
        time.sleep(max(0.0, start + move / 60 - time.perf_counter()))
    count = page.evaluate("() => window.benchSeen.count")
    page.mouse.up()
    return count


# --- Rotary embedding ---


def rotation() -> None:
    n_heads, n, head_dim = 8, 4096, 64
    x = np.random.default_rng(0).normal(size=(1, n_heads, n, head_dim)).astype(np.float32)
    positions, inv_freq = np.arange(n), rope.inverse_frequencies(head_dim)
    factors = np.exp(1j * np.outer(positions, inv_freq)).astype(np.complex64)
    for layout in rope.LAYOUTS:
        candidates = {
            "loop over heads, positions and pairs (64 positions, scaled)": (
                partial(rotate_by_loop, x[:, :, :64], inv_freq, layout),
                n / 64,
            ),
            "rope.rotate, angles computed": (partial(rope.rotate, x, positions, inv_freq, layout=layout), 1),
            "its bare arithmetic, angles given (rope.rotate takes none)": (
                partial(bare_rotation, x, factors, factors.real.copy(), factors.imag.copy(), layout),
                1,
            ),
        }
        candidates |= torch_rotations(x, positions, inv_freq, layout)
        compare(f"Rotating float32 {x.shape}, {layout}", candidates, seconds=15)
    if importlib.util.find_spec("torch") is None:
        print("  (PyTorch is not installed, and left out)")


def rotate_by_loop(x: np.ndarray, inv_freq: np.ndarray, layout: str) -> np.ndarray:
    out = x.copy()
    m = len(inv_freq)
    for head in range(x.shape[1]):
        for position in range(x.shape[2]):
            for i in range(m):
                a, b = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + m)
                cos, sin = math.cos(position * inv_freq[i]), math.sin(position * inv_freq[i])
                u, v = x[0, head, position, a], x[0, head, position, b]
                out[0, head, position, a], out[0, head, position, b] = u * cos - v * sin, u * sin + v * cos
    return out


def bare_rotation(x, factors, cos, sin, layout):
    """Compute what rope.rotate does once its input is checked and its angles are known."""
    out = x.copy()
    if layout == "interleaved":
        out.view(np.complex64)[...] *= factors
    else:
        m = cos.shape[-1]
        u, v = x[..., :m], x[..., m:]
        out[..., :m] = u * cos - v * sin
        out[..., m:] = u * sin + v * cos
    return out


def torch_rotations(x, positions, inv_freq, layout) -> dict[str, tuple[Callable, float]]:
    """PyTorch as models use it: complex numbers as in Llama's own code, or rotate_half as in transformers."""
    if importlib.util.find_spec("torch") is None:
        return {}
    import torch

    torch.set_num_threads(1)
    tensor = torch.from_numpy(x)
    places, frequencies = torch.from_numpy(positions).double(), torch.from_numpy(inv_freq)

    def angles():
        turns = torch.outer(places, frequencies)
        if layout == "interleaved":
            return (torch.polar(torch.ones_like(turns), turns).to(torch.complex64),)
        turns = torch.cat((turns, turns), dim=-1)
        return turns.cos().float(), turns.sin().float()

    def rotate(*known):
        if layout == "interleaved":
            pairs = torch.view_as_complex(tensor.reshape(*tensor.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * known[0]).flatten(-2)
        cos, sin = known
        first, second = tensor.chunk(2, dim=-1)
        return tensor * cos + torch.cat((-second, first), dim=-1) * sin

    known = angles()
    return {
        "PyTorch eager, angles computed": (lambda: rotate(*angles()), 1),
        "PyTorch eager, angles given": (lambda: rotate(*known), 1),
    }


# --- Tables and biases ---


def tables() -> None:
    rng = np.random.default_rng(0)
    compare(
        "Sinusoidal table, 2048 x 512",
        {
            "loop (32 rows, scaled)": (lambda: sinusoidal_by_loop(32, 512), 2048 / 32),
            "sinusoidal.sinusoidal_encoding": (lambda: sinusoidal_encoding(2048, 512), 1),
        },
    )
    compare(
        "ALiBi bias, 32 heads, 512 x 512, causal",
        {
            "loop (1 head, scaled)": (lambda: alibi_by_loop(32, 1, 512), 32),
            "relative_bias.alibi_bias": (lambda: relative_bias.alibi_bias(32, 512), 1),
        },
    )
    offsets = relative_bias.relative_offsets(1024)
    compare(
        "T5 buckets, 1024 x 1024",
        {
            "loop (16 rows, scaled)": (lambda: t5_by_loop(offsets[:16]), 1024 / 16),
            "relative_bias.t5_buckets": (lambda: relative_bias.t5_buckets(offsets), 1),
        },
    )
    q, k = rng.normal(size=(2, 8, 256, 64))
    rows = rng.normal(size=(33, 64))
    compare(
        "Shaw scores, 8 heads, 256 x 256, width 64, clip 16",
        {
            "loop over queries and keys (1 head, 32 queries, scaled)": (
                lambda: shaw_by_loop(q[0, :32], k[0], rows),
                8 * 256 / 32,
            ),
            "relative_bias.shaw_scores": (lambda: relative_bias.shaw_scores(q, k, rows), 1),
        },
    )


def sinusoidal_by_loop(n: int, d_model: int) -> list[list[float]]:
    table = []
    for position in range(n):
        row = []
        for i in range(d_model // 2):
            angle = position / 10_000 ** (2 * i / d_model)
            row += [math.sin(angle), math.cos(angle)]
        table.append(row)
    return table


def alibi_by_loop(n_heads: int, n_computed: int, n: int) -> list:
    slopes = [2 ** (-8 * h / n_heads) for h in range(1, n_computed + 1)]
    return [[[-m * (i - j) if j <= i else -math.inf for j in range(n)] for i in range(n)] for m in slopes]


def t5_by_loop(offsets: np.ndarray) -> list[list[int]]:
    def bucket(offset: int) -> int:
        distance, side = abs(offset), 16 if offset > 0 else 0
        if distance < 8:
            return side + distance
        return side + min(8 + int(math.log(distance / 8) / math.log(128 / 8) * 8), 15)

    return [[bucket(offset) for offset in row] for row in offsets.tolist()]


def shaw_by_loop(q: np.ndarray, k: np.ndarray, rows: np.ndarray) -> list[list[float]]:
    clip = len(rows) // 2
    scale = math.sqrt(q.shape[-1])
    return [
        [q[i] @ (k[j] + rows[max(-clip, min(clip, j - i)) + clip]) / scale for j in range(len(k))]
        for i in range(len(q))
    ]


# --- Training ---


def training_as_the_course_does() -> None:
    """Measure training in one of the course's own processes: their memory is set up before they start."""
    sys.stdout.flush()  # the process writes to the same place
    # For JAX's sake: else glibc may map its 38 MB of work space anew each step, which makes it take half as
    # long again. In such a process NumPy and PyTorch have no page faults either way.
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(2**30))
    pool = processes.local_processes(1)
    try:
        pool.submit(training).result()
    finally:
        processes.end_now(pool)


def training() -> None:
    threadpool_limits(1)
    import bench_models as others

    for scheme in SCHEMES:
        training_step(scheme, others)
    missing = [name for name, module in (("PyTorch", others.torch), ("JAX", others.jax)) if module is None]
    for name in missing:
        print(f"  ({name} is not installed, and left out)")
    gradients_of_all_schemes(others)
    sys.stdout.flush()  # the process is ended without a chance to do so


def notebook_kernel() -> None:
    """Measure a step in a process whose memory nobody set up, like a notebook's kernel, and then kept."""
    sys.stdout.flush()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        before, faults, after, left = pool.submit(steps_with_and_without).result()
    print("\nA training step in a notebook's own kernel, RoPE, memory given back and kept (mallopt)")
    print(f"  {'given back':<{WIDTH}} {before * 1e3:>11.1f} ms   {faults:,.0f} page faults a step")
    print(f"  {'kept':<{WIDTH}} {after * 1e3:>11.1f} ms   {left:,.0f} page faults a step")
    print(f"  {'kept / given back':<{WIDTH}} {after / before:>14.2f}")


def steps_with_and_without(steps: int = 40) -> tuple[float, float, float, float]:
    """Return the median seconds and the page faults of a training step, before and after keep_memory."""
    threadpool_limits(1)
    settings = Settings("rope")
    call = partial(next_step, numpy_step(training_model("rope"), settings), lessons(settings))
    found = []
    for _ in range(2):
        times = []
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(steps):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
        found += [statistics.median(times), faults / steps]
        processes.keep_memory()
    return tuple(found)


def training_step(scheme: str, others) -> None:
    settings = Settings(scheme)
    model = training_model(scheme)
    steps = {"NumPy (the course)": numpy_step(training_model(scheme), settings)}
    aims = {}
    if others.torch is not None:
        steps["PyTorch (eager)"] = others.torch_step(model, settings, LENGTH)
        aims["PyTorch (eager)"] = "NumPy / PyTorch: aim 1.0"
    if others.jax is not None:
        steps["JAX (compiled)"] = others.jax_step(model, settings)
        aims["JAX (compiled)"] = "NumPy / JAX: aim 1.0"
    calls = {name: partial(next_step, step, lessons(settings)) for name, step in steps.items()}
    # These show that all do the same; the first also compiles.
    losses = {name: [call() for _ in range(5)][-1] for name, call in calls.items()}
    cores = {name: cores_used(call) for name, call in calls.items()}

    title = f"A training step, {scheme}, {settings.batch} x {LENGTH} tokens"
    times = compare(title, {name: (call, 1) for name, call in calls.items()}, seconds=15)
    first, *_ = times.values()
    for name, aim in aims.items():
        ratio = statistics.median(a / b for a, b in zip(first, times[name], strict=True))
        print(f"  {aim:<{WIDTH}} {ratio:>14.2f}")
    print("  the loss of the fifth step:", ", ".join(f"{name} {loss:.5f}" for name, loss in losses.items()))
    for name, used in cores.items():
        if used > 1.15:
            print(f"  ({name} used {used:.1f} cores: not one thread, and not comparable)")


def training_model(scheme: str) -> Decoder:
    return new_decoder(scheme, len(corpus().letters), n_positions=LENGTH)


def numpy_step(model: Decoder, settings: Settings) -> Callable[[np.ndarray, np.ndarray, float], float]:
    state, count = {}, 0

    def step(tokens: np.ndarray, targets: np.ndarray, rate: float) -> float:
        nonlocal count
        count += 1
        loss, gradients = loss_and_gradients(model, tokens, targets)
        adamw(model.parameters, gradients, state, count, rate, settings.weight_decay)
        return loss

    return step


def lessons(settings: Settings) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """Yield tokens, targets and rate of each step. The batches come again: making them is not measured."""
    pieces = list(islice(batches(settings), 20))
    rates = learning_rates(settings.learning_rate, settings.steps, settings.warm_up)
    for piece, rate in zip(cycle(pieces), cycle(rates), strict=True):
        yield piece[:, :-1], piece[:, 1:], float(rate)


def next_step(step: Callable, lessons: Iterator) -> float:
    return step(*next(lessons))


def cores_used(call: Callable, turns: int = 10) -> float:
    """Return the processor time of all threads over the time that passed."""
    wall, used = time.perf_counter(), time.process_time()
    for _ in range(turns):
        call()
    return (time.process_time() - used) / (time.perf_counter() - wall)


def gradients_of_all_schemes(others) -> None:
    """Print the largest difference from autograd's gradient, relative to that gradient's largest entry."""
    title = "Gradients of all parameters against PyTorch's autograd, float32, relative difference"
    if others.torch is None:
        print(f"\n{title}: left out, PyTorch is not installed")
        return
    print(f"\n{title}")
    tokens, targets, _ = next(lessons(Settings("none")))
    largest = 0.0
    for scheme in SCHEMES:
        model = training_model(scheme)
        rng = np.random.default_rng(1)
        for array in model.parameters.values():  # a new decoder's gains are all one, and T5's table zero
            array += rng.normal(0, 0.05, array.shape).astype(array.dtype)
        _, ours = loss_and_gradients(model, tokens, targets)
        theirs = others.torch_gradients(model, scheme, tokens, targets)
        differences = {name: np.abs(ours[name] - g).max() / np.abs(g).max() for name, g in theirs.items()}
        worst = max(differences, key=differences.get)
        print(f"  {f'{scheme}, the largest of {len(theirs)}: {worst}':<{WIDTH}} {differences[worst]:>14.1e}")
        largest = max(largest, differences[worst])
    print(f"  {'the largest of all: aim 1e-5':<{WIDTH}} {largest:>14.1e}")


# --- The language model ---


def language_model() -> None:
    """Measure reading and writing with the model of notebook 08, beside others with the same weights."""
    import bench_language_model as others

    from helpers import fetch_model
    from helpers import language_model as lm

    if (path := fetch_model.find()) is None:
        print(f"\nThe language model, left out. {fetch_model.MISSING}")
        return
    model = lm.open_model(path)
    tokens = lm.encode(model, (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8"))[:512]
    cache = lm.forward(model, tokens).cache
    for name, module in (("PyTorch", others.torch), ("llama-cpp-python", others.llama_cpp)):
        if module is None:
            print(f"\n({name} is not installed, and left out)")
    theirs = others.torch and others.TorchModel(model)
    logits = {"NumPy (the course)": lm.forward(model, tokens).logits[-1]}
    for threads in (1, 2):
        reading = {
            "NumPy (the course)": lambda: lm.forward(model, tokens),
            "the floor: the products with the weights alone": others.products(model, len(tokens)),
        }
        writing = {
            "NumPy (the course)": lambda: lm.forward(model, [5], cache=cache),
            "the floor: the products with the weights alone": others.products(model, 1),
        }
        if theirs:
            others.torch.set_num_threads(threads)
            first, kept = theirs.read(tokens)
            logits["PyTorch"] = first[-1].numpy()
            reading["PyTorch (float32)"] = lambda: theirs.read(tokens)
            writing["PyTorch (float32)"] = partial(theirs.read, np.array([5]), kept)
        if others.llama_cpp:
            file = others.LlamaCpp(str(path), threads)
            logits["llama.cpp"] = file.read(tokens)[-1].copy()
            reading["llama.cpp (weights in blocks of 4 bits)"] = partial(file.read, tokens)
            writing["llama.cpp (weights in blocks of 4 bits)"] = partial(file.read_on, 5, len(tokens))
        with threadpool_limits(threads):
            for what, count, calls in (
                ("Reading 512 tokens", 512, reading),
                ("Writing one more", 1, writing),
            ):
                title = f"{what}, SmolLM2-135M, {threads} thread{'s' * (threads > 1)}"
                times = compare(title, {name: (call, 1) for name, call in calls.items()}, seconds=10)
                rates = {name: count / statistics.median(values) for name, values in times.items()}
                print("  tokens a second:", ", ".join(f"{rate:,.0f}" for rate in rates.values()))
                if theirs:
                    ratio = rates["PyTorch (float32)"] / rates["NumPy (the course)"]
                    print(f"  {'NumPy / PyTorch: aim 2.0':<{WIDTH}} {ratio:>14.2f}")
    for name, found in logits.items():
        best = np.argsort(-found)[:3].tolist()
        print(f"  the likeliest next tokens of {name}: {lm.decode(model, best)!r}, {found[best].round(3)}")


GROUPS = {
    "slider": slider_step,
    "memory": memory_of_steps,
    "drag": frames_in_a_drag,
    "rotation": rotation,
    "tables": tables,
    "kernel": notebook_kernel,
    "model": language_model,
    "training": training_as_the_course_does,  # last, since it changes the environment
}


def main() -> int:
    chosen = sys.argv[1:] or list(GROUPS)
    if unknown := [name for name in chosen if name not in GROUPS]:
        print(f"There is no group {unknown[0]}; there are {', '.join(GROUPS)}.")
        return 2
    threadpool_limits(1)
    pools = ", ".join(
        f"{pool['internal_api']} {pool['num_threads']} ({pool.get('architecture')})"
        for pool in threadpool_info()
    )
    print(
        f"Python {platform.python_version()}, NumPy {np.__version__}, Matplotlib {matplotlib.__version__}, "
        f"{platform.machine()}, {os.cpu_count()} cores; threads: {pools}"
    )
    if kernel := os.environ.get("OPENBLAS_CORETYPE"):
        print(f"OPENBLAS_CORETYPE is {kernel}: unset it, or NumPy may not use its fastest kernels.")
    for name in chosen:
        GROUPS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
