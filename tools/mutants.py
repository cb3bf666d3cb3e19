"""Change the helpers at random places, one at a time, and see whether their tests notice.

`python tools/mutants.py 100 --seed 1` makes a hundred mutants in a copy of the checkout, runs each against
its module's own tests, and prints the survivors: places where code can be wrong and no test fails. It takes
about a quarter of a minute a mutant. Survivors may be harmless (a message, a speed-up); somebody has to look.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 600  # a mutant that runs for ever is noticed, too
OTHER = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def modules() -> dict[str, list[str]]:
    """Return the tests of each module of helpers that has some of its own, as paths in the checkout."""
    found = {}
    for path in sorted((ROOT / "helpers").glob("*.py")):
        tests = ROOT / "tests" / f"test_{path.stem.strip('_')}.py"
        if tests.exists():
            found[f"helpers/{path.name}"] = [f"tests/{tests.name}"]
    for path in sorted((ROOT / "helpers" / "check").glob("*.py")):
        found[f"helpers/check/{path.name}"] = ["tests/test_exercises.py", "tests/test_hostile_answers.py"]
    return found


def places(tree: ast.AST) -> list[ast.AST]:
    """Return the nodes that can be changed: operators and numbers, in code that runs."""
    return [
        node
        for node in ast.walk(tree)
        if (isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in OTHER)
        or (isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OTHER)
        or (isinstance(node, ast.Constant) and type(node.value) in (int, float, bool))
    ]


def mutate(source: str, rng: random.Random) -> tuple[str, str]:
    """Return the source with one change, and the change in words."""
    tree = ast.parse(source)
    node = rng.choice(places(tree))
    before = ast.unparse(node)
    if isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    elif isinstance(node, ast.Compare):
        node.ops = [OTHER[type(node.ops[0])]()]
    else:
        node.op = OTHER[type(node.op)]()
    return ast.unparse(tree), f"line {node.lineno}: {before}  →  {ast.unparse(node)}"


def notices(folder: Path, tests: list[str]) -> bool:
    """Say whether these tests fail in a folder, or don't come to their end."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += ["-m", "not browser and not whole", *tests]
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> None:
    """Make the mutants, and print those that survive."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="modules whose path holds this, such as rope")
    parser.add_argument("--but", help="and not this")
    args = parser.parse_args()
    rng, survivors = random.Random(args.seed), 0
    known = {name: tests for name, tests in modules().items() if args.only in name}
    known = {name: tests for name, tests in known.items() if not args.but or args.but not in name}
    sound: dict[str, bool] = {}  # whether a module's own tests pass as it is, in the copy
    sizes = {name: len(places(ast.parse((ROOT / name).read_text()))) for name in known}
    ignored = shutil.ignore_patterns(".git", ".venv*", "my", "build", "*.ipynb_checkpoints", "__pycache__")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "course"
        shutil.copytree(ROOT, folder, ignore=ignored)
        for number in range(1, args.count + 1):
            [module] = rng.choices(list(sizes), weights=sizes.values())
            if module not in sound:
                sound[module] = not notices(folder, known[module])
            if not sound[module]:
                print(f"{number:>4} left out {module}: its tests fail as it is", flush=True)
                continue
            source = (ROOT / module).read_text(encoding="utf-8")
            changed, words = mutate(source, rng)
            (folder / module).write_text(changed, encoding="utf-8")
            survived = not notices(folder, known[module])
            (folder / module).write_text(source, encoding="utf-8")
            survivors += survived
            print(f"{number:>4} {'SURVIVED' if survived else 'noticed '} {module} {words}", flush=True)
    print(f"{survivors} of {args.count} mutants survived.")


if __name__ == "__main__":
    main()
