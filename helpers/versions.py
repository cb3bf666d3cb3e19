"""Name the code that a result depends on by a hash, so that a kept model is found again, or made anew.

What counts is the code that makes the numbers. From the functions that are named, it is followed through
every helper that they mention, and the tokens of what is found are hashed. Comments, docstrings, checks of
arguments, what is printed or raised, and what is only said about a scheme are left out: prose can be improved
without training anything again. The names of modules don't count either, so code can move.
"""

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import NamedTuple

# Checks of arguments, keeping and reporting change no number. A model has one scheme of all in SCHEMES.
_LEFT_OUT = {"arguments", "cache", "processes", "schemes.SCHEMES"}
_SAID = {"facts"}  # what a scheme says about itself: its label, its colour
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}


class _Module(NamedTuple):
    """A module's text, its definitions by name, and what its imports mean: "module" or "module.name"."""

    text: str
    definitions: dict[str, ast.stmt]
    imports: dict[str, str]


def version(*names: str) -> str:
    """Return a hash of the code that makes the numbers of these definitions, each as "module.name".

    Raises KeyError for a name that no helper has.
    """
    waiting, found = list(names), {}
    while waiting:
        module, _, own = waiting.pop().partition(".")
        while own not in _module(module).definitions and own in _module(module).imports:  # passed on
            module, _, own = _module(module).imports[own].partition(".")
        name = f"{module}.{own}"
        if name in found:
            continue
        node = _module(module).definitions[own]
        found[name] = _tokens(_module(module).text, node)
        waiting += [other for other in _mentioned(_module(module), module, node) if other not in found]
    return hashlib.sha256("\n\n".join(sorted(found.values())).encode()).hexdigest()


@cache
def _module(name: str) -> _Module:
    text = (files("helpers") / f"{name}.py").read_text(encoding="utf-8").replace("\r\n", "\n")
    definitions, imports = {}, {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "helpers":
            inside = node.module.partition(".")[2]
            for alias in node.names:
                imports[alias.asname or alias.name] = f"{inside}.{alias.name}" if inside else alias.name
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            definitions[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name):
                        definitions[part.id] = node
    return _Module(text, definitions, imports)


def _mentioned(module: _Module, name: str, node: ast.AST) -> Iterator[str]:
    """Yield the definitions of helpers that a definition mentions, by their names."""
    if _says_or_checks(node):
        return
    if isinstance(node, ast.Name):
        own = f"{name}.{node.id}" if node.id in module.definitions else module.imports.get(node.id, "")
        if "." in own and not {own, own.split(".")[0]} & _LEFT_OUT:
            yield own
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        whose = module.imports.get(node.value.id, "")
        if whose and "." not in whose and whose not in _LEFT_OUT:
            yield f"{whose}.{node.attr}"
    for child in ast.iter_child_nodes(node):
        yield from _mentioned(module, name, child)


def _says_or_checks(node: ast.AST) -> bool:
    """Return whether a statement changes no number: a docstring, an error, a check, a message, a label."""
    match node:
        case ast.Raise():
            return True
        case ast.If(body=[ast.Raise()], orelse=[]):
            return True
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"))):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="arguments")))):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name in _SAID
    return False


def _tokens(text: str, node: ast.stmt) -> str:
    """Return the tokens of a definition, one a line, without what changes no number.

    Tokens and not ast.dump, which differs from one Python to the next. A formatted string is one token up to
    Python 3.11 and many from 3.12 on, so it is taken as it stands in the text.
    """
    lines = text.encode().splitlines(keepends=True)  # the tree counts bytes
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
    own = b"".join(lines[first - 1 : node.end_lineno])
    cut = [
        ((part.lineno - first + 1, part.col_offset), (part.end_lineno - first + 1, part.end_col_offset))
        for part in ast.walk(node)
        if isinstance(part, ast.stmt) and _says_or_checks(part)
    ]
    rows = own.splitlines(keepends=True)

    def place(position: tuple[int, int]) -> tuple[int, int]:
        line, column = position
        return line, len(rows[line - 1].decode()[:column].encode()) if line <= len(rows) else 0

    kept, depth, start, open_blocks = [], 0, (0, 0), 0
    for token in tokenize.tokenize(io.BytesIO(own).readline):
        at, end, kind = place(token.start), place(token.end), tokenize.tok_name[token.type]
        inside = any(since <= at and end <= until for since, until in cut)
        # The line's end and the block's end stand behind what was cut.
        ends = any(at == until for _, until in cut) if kind == "NEWLINE" else kind == "DEDENT" and open_blocks
        if inside or ends:
            open_blocks += {"INDENT": 1, "DEDENT": -1}.get(kind, 0)
        elif kind in ("FSTRING_START", "FSTRING_END"):
            opens = kind.endswith("START")
            start = at if opens and not depth else start
            depth += 1 if opens else -1
            if not depth:
                kept.append(_between(rows, start, end))
        elif not depth and token.type not in _LAYOUT:
            kept.append("" if kind == "NEWLINE" else token.string.strip() or kind)
    return "\n".join(kept)


def _between(rows: list[bytes], start: tuple[int, int], end: tuple[int, int]) -> str:
    part = rows[start[0] - 1 : end[0]]
    part[-1] = part[-1][: end[1]]
    part[0] = part[0][start[1] :]
    return b"".join(part).decode()
