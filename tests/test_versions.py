"""The version of the code: prose, checks and colours may change, formulas may not, on every Python alike."""

import ast
import shutil
from pathlib import Path

import pytest

from helpers import versions

HELPERS = Path(versions.__file__).parent
MODEL = ("training.train", "training.SNAPSHOTS", "measures.of_text", "schemes.Rope")


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A copy of the helpers. change(module, old, new) returns whether that makes another version."""
    shutil.copytree(HELPERS, tmp_path / "helpers", ignore=shutil.ignore_patterns("__pycache__", "data"))
    monkeypatch.setattr(versions, "files", lambda package: tmp_path / package)
    versions._module.cache_clear()
    before = versions.version(*MODEL)

    def change(module, old, new, names=MODEL):
        path = tmp_path / "helpers" / f"{module}.py"
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{module}.py has no {old!r}: the test must follow the code"
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        versions._module.cache_clear()
        changed = versions.version(*names) != before
        path.write_text(text, encoding="utf-8")
        return changed

    yield change
    versions._module.cache_clear()


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("schemes", "(np.cos, np.sin)", "(np.sin, np.cos)"),
        ("rope", "base ** (-np.arange", "base ** (-2 * np.arange"),
        ("training", "0.5 * (1 + np.cos", "0.25 * (1 + np.cos"),
        ("text", "LENGTH = 64", "LENGTH = 65"),
        ("training", "learning_rate: float = 1e-2", "learning_rate: float = 1.1e-2"),
        ("transformer", "shrink = (2 * n_layers)", "shrink = (3 * n_layers)"),
        ("transformer", '"embedding": rng.normal(0,', '"embedding": rng.normal(1,'),
        ("steps", "d_x *= 2", "d_x *= 3"),
    ],
)
def test_a_changed_formula_is_another_version(copied, module, old, new):
    assert copied(module, old, new)


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("rope", '"""Rotary position embedding', '"""The rotary position embedding'),
        ("rope", '    """Return the radians each pair', '    """Return what each pair'),
        ("rope", "inv_freq must have at most", "inv_freq must not have more than"),
        ("rope", "is too close to 0", "lies too close to 0"),
        ("transformer", "# so that the sum", "# to make the sum"),
        ("sweeping", "Stopped: ", "Interrupted: "),  # a message of what keeps models
        ("arguments", "must be True or False", "has to be True or False"),
        ("schemes", '"RoPE",', '"rotary",'),
        ("schemes", '"#D55E00"', '"#FF0000"'),
        ("schemes", "class Alibi(Scheme):", "class Kerple(Scheme):\n    pass\n\n\nclass Alibi(Scheme):"),
        ("schemes", '    "rope": Rope,', '    "rope": Rope,\n    "rope again": Rope,'),
        ("schemes", "self.slope_factor * alibi_slopes", "2 * self.slope_factor * alibi_slopes"),  # not RoPE's
    ],
)
def test_what_changes_no_number_is_no_other_version(copied, module, old, new):
    assert not copied(module, old, new)


def test_line_endings_are_no_change(copied, tmp_path):
    """Git may check files out with the line endings of Windows."""
    before = versions.version(*MODEL)
    for path in (tmp_path / "helpers").glob("*.py"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    versions._module.cache_clear()
    assert versions.version(*MODEL) == before


def test_code_may_move_to_another_module(copied, tmp_path):
    before = versions.version("rope.inverse_frequencies")
    rope = (tmp_path / "helpers" / "rope.py").read_text(encoding="utf-8")
    (tmp_path / "helpers" / "elsewhere.py").write_text(rope, encoding="utf-8")
    assert versions.version("elsewhere.inverse_frequencies") == before


def test_the_names_decide_nothing_but_what_is_reached(copied):
    assert versions.version(*MODEL) == versions.version(*reversed(MODEL))
    assert versions.version("training.train", "schemes.Rope") != versions.version(
        "training.train", "schemes.Alibi"
    )


def test_a_name_that_no_helper_has(copied):
    with pytest.raises(KeyError):
        versions.version("rope.nothing")


TRICKY = '''
@cache
def f(x: int, *, names=("ä", "b")) -> str:
    """Prose."""
    # a comment, ä
    if x < 0:
        raise ValueError(f"x must be at least 0, but got {x!r}")
    arguments.same_width("x", x, "y", 2)
    print("said")
    x = x + 1
    if x > 5:
        raise ValueError("x is too large")
    label = f"{names[0]}.{{x}} {x:>{3 + 1}} ä"  # formatted
    return (
        label +
        "ä" + f'{x}'
    )
'''
# What every Python must make of it: a formatted string is one token, whatever the tokenizer says.
TOKENS = (
    '@|cache||def|f|(|x|:|int|,|*|,|names|=|(|"ä"|,|"b"|)|)|->|str|:||INDENT|x|=|x|+|1||'
    'label|=|f"{names[0]}.{{x}} {x:>{3 + 1}} ä"||return|(|label|+|"ä"|+|f\'{x}\'|)||DEDENT'
)


def test_tokens_are_the_same_on_every_python():
    [node] = ast.parse(TRICKY).body
    assert versions._tokens(TRICKY, node).split("\n") == TOKENS.split("|")


@pytest.mark.parametrize("path", sorted(HELPERS.glob("*.py")), ids=lambda path: path.stem)
def test_every_definition_can_be_read(path):
    for name in versions._module(path.stem).definitions:
        versions.version(f"{path.stem}.{name}")
