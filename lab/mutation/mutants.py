"""The mutants of a module: each is its syntax tree with one small change.

An operand of a guard is left out, a condition is always true or never, a bound moves by one, a statement or a row of a
table is missing. Texts, annotations, decorators and assertions stay as they are. Changes that another one implies are
left out: a test that notices ``if True`` and one that notices ``if False`` would also notice the negation.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

MODULE = "(module)"
"""The function of a mutant outside every function."""

Edit = Callable[[ast.AST], ast.AST | None]
"""Changes a copy of a node, which may be its argument; None takes the node out of the list that holds it."""

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
CALLED = {"any": "all", "all": "any", "min": "max", "max": "min", "sorted": "list", "reversed": "list"}


@dataclass(frozen=True)
class Mutant:
    """A change of a module. ``lines``: those of the statement, or of the header, that has it."""

    path: str
    function: str
    change: str
    lines: tuple[int, ...]
    at: int = field(compare=False)
    edit: Edit = field(compare=False)

    @property
    def key(self) -> str:
        """Distinguishes the mutant, also after lines have moved."""
        return f"{self.path} {self.function}: {self.change}"

    @property
    def in_function(self) -> bool:
        """Whether the change is in the code of a function, not in what runs at import."""
        return self.function != MODULE

    def tree(self, source: str) -> ast.Module:
        """The tree of the module with the change."""
        tree = ast.parse(source)
        nodes = list(ast.walk(tree))
        target = nodes[self.at]
        changed = self.edit(target)
        if changed is target:
            return ast.fix_missing_locations(tree)
        for node in nodes:
            for name, value in ast.iter_fields(node):
                if value is target:
                    setattr(node, name, changed)
                    return ast.fix_missing_locations(tree)
                if isinstance(value, list) and any(each is target for each in value):
                    place = next(i for i, each in enumerate(value) if each is target)
                    value[place : place + 1] = [] if changed is None else [changed]
                    return ast.fix_missing_locations(tree)
        raise AssertionError(f"the tree of {self.path} lost a node")


def mutants(path: str, source: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    all_mutants = list(_Finder(path, ast.parse(source)).every_mutant())
    seen: Counter[str] = Counter()
    named = []
    for mutant in sorted(all_mutants, key=lambda each: (each.lines[0], each.at)):
        seen[mutant.key] += 1
        again = seen[mutant.key]
        named.append(mutant if again == 1 else replace(mutant, change=f"{mutant.change} [{again}]"))
    return named


def digest(*texts: str) -> str:
    """A short digest of texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def mutants_of(root: Path, package: str) -> list[Mutant]:
    """Every mutant of a package's modules."""
    all_mutants = []
    for module in sorted((root / package).glob("*.py")):
        all_mutants += mutants(module.relative_to(root).as_posix(), module.read_text(encoding="utf-8"))
    return all_mutants


class _Finder:
    """Walks a tree, and knows of each node its function and its statement."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.path = path
        self.tree = tree
        self.at = {id(node): number for number, node in enumerate(ast.walk(tree))}
        self.conditions = {id(node.test) for node in ast.walk(tree) if isinstance(node, (ast.If, ast.IfExp))}

    def every_mutant(self) -> Iterator[Mutant]:
        yield from self._body(self.tree.body, "", None)

    def _body(self, body: list[ast.stmt], scope: str, function: str | None) -> Iterator[Mutant]:
        for statement in body:
            yield from self._statement(statement, body, scope, function)

    def _statement(
        self, statement: ast.stmt, body: list[ast.stmt], scope: str, function: str | None
    ) -> Iterator[Mutant]:
        if isinstance(statement, (ast.Import, ast.ImportFrom, ast.Assert, ast.Global, ast.Nonlocal)):
            return
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            name = f"{scope}.{statement.name}" if scope else statement.name
            inner = function
            if isinstance(statement, ast.FunctionDef):
                inner = function or name
                defaults = [each for each in (*statement.args.defaults, *statement.args.kw_defaults) if each]
                for each in defaults:
                    yield from self._expressions(each, statement.lineno, statement.body[0].lineno - 1, function)
            yield from self._body(statement.body, name, inner)
            return
        if _is_text(statement) or _types_only(statement):
            return
        bodies = [getattr(statement, each, []) for each in ("body", "orelse", "finalbody")]
        bodies += [each.body for each in getattr(statement, "handlers", ())]
        bodies += [each.body for each in getattr(statement, "cases", ())]
        inner_statements = [each for block in bodies for each in block]
        last = min((each.lineno for each in inner_statements), default=0) - 1
        last = max(last, statement.lineno) if inner_statements else (statement.end_lineno or statement.lineno)
        headers = [
            value
            for value in ast.iter_child_nodes(statement)
            if not isinstance(value, (ast.stmt, ast.ExceptHandler, ast.match_case))
        ]
        if isinstance(statement, ast.AnnAssign):
            headers = [] if statement.value is None else [statement.value]
        yield from self._statement_itself(statement, body, last, function)
        for header in headers:
            yield from self._expressions(header, statement.lineno, last, function)
        for case in getattr(statement, "cases", ()):
            if case.guard is not None:
                yield from self._expressions(case.guard, case.pattern.lineno, case.guard.lineno, function)
        for block in bodies:
            yield from self._body(block, scope, function)

    def _mutant(self, node: ast.AST, change: str, edit: Edit, first: int, last: int, function: str | None) -> Mutant:
        lines = tuple(range(first, last + 1))
        return Mutant(self.path, function or MODULE, change, lines, self.at[id(node)], edit)

    # STATEMENTS

    def _statement_itself(
        self, statement: ast.stmt, body: list[ast.stmt], last: int, function: str | None
    ) -> Iterator[Mutant]:
        def mutant(node: ast.AST, change: str, edit: Edit) -> Mutant:
            return self._mutant(node, change, edit, statement.lineno, last, function)

        if isinstance(statement, (ast.If, ast.While)):
            condition = ast.unparse(statement.test)
            word = "if" if isinstance(statement, ast.If) else "while"
            for value in (True, False) if word == "if" else (False,):
                yield mutant(statement.test, f"{word} {condition} -> {word} {value}", _constant(value))
        elif _removable(statement) and function is not None:
            yield mutant(statement, f"{ast.unparse(statement)} -> pass", lambda _: ast.Pass())
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and function is None:
            yield from self._rows(statement.value, mutant)

    def _rows(self, value: ast.expr | None, mutant: Callable[[ast.AST, str, Edit], Mutant]) -> Iterator[Mutant]:
        """A table without one of its rows."""
        if isinstance(value, ast.Call) and len(value.args) == 1:
            value = value.args[0]
        if isinstance(value, ast.Dict) and len(value.values) > 1:
            for row, (key, held) in enumerate(zip(value.keys, value.values, strict=True)):
                text = f"**{ast.unparse(held)}" if key is None else f"{ast.unparse(key)}: {ast.unparse(held)}"
                yield mutant(value, f"row {text} -> none", _without_entry(row))
        elif isinstance(value, (ast.Tuple, ast.List, ast.Set)) and len(value.elts) > 1:
            for row, element in enumerate(value.elts):
                yield mutant(value, f"row {ast.unparse(element)} -> none", _without_element("elts", row))

    # EXPRESSIONS

    def _expressions(self, root: ast.AST, first: int, last: int, function: str | None) -> Iterator[Mutant]:
        stack = [root]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.JoinedStr):
                continue
            for edit in () if self._implied(node) else _edits(node):
                changed = edit(copy.deepcopy(node))
                assert changed is not None
                change = f"{ast.unparse(node)} -> {ast.unparse(changed)}"
                yield self._mutant(node, change, edit, first, last, function)
            stack.extend(each for each in ast.iter_child_nodes(node) if not _is_strict(each))

    def _implied(self, node: ast.AST) -> bool:
        """A negated condition, which is noticed if both its values are."""
        return id(node) in self.conditions and isinstance(node, ast.Compare) and not isinstance(node.ops[0], ORDERED)


def _edits(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.BoolOp):
        for operand in range(len(node.values)):
            yield _without_operand(operand)
    elif isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            yield _compared(place, COMPARED[type(operator)])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield lambda each: each.operand  # type: ignore[attr-defined]
    elif isinstance(node, ast.BinOp):
        yield lambda each: each.left  # type: ignore[attr-defined]
        yield lambda each: each.right  # type: ignore[attr-defined]
    elif isinstance(node, ast.IfExp):
        yield lambda each: each.body  # type: ignore[attr-defined]
        yield lambda each: each.orelse  # type: ignore[attr-defined]
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield _constant(not node.value)
        elif isinstance(node.value, int):
            yield _constant(node.value + 1)
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        for at, generator in enumerate(node.generators):
            for place in range(len(generator.ifs)):
                yield _without_filter(at, place)
    elif isinstance(node, ast.Call):
        yield from _called(node)


def _called(node: ast.Call) -> Iterator[Edit]:
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if name in {"replace", "_replace"} and node.keywords:
        for place, keyword in enumerate(node.keywords):
            if keyword.arg is not None:
                yield _without_element("keywords", place)
    elif isinstance(node.func, ast.Name) and name in CALLED:
        if name in {"sorted", "reversed"}:
            yield lambda each: ast.Call(ast.Name("list", ast.Load()), each.args[:1], [])  # type: ignore[attr-defined]
        else:
            yield _renamed(CALLED[name])


def _constant(value: bool | int) -> Edit:
    return lambda _: ast.Constant(value)


def _without_operand(operand: int) -> Edit:
    def edit(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.BoolOp)
        rest = [*node.values[:operand], *node.values[operand + 1 :]]
        return rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)

    return edit


def _compared(place: int, operator: type[ast.cmpop]) -> Edit:
    def edit(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.Compare)
        node.ops[place] = operator()
        return node

    return edit


def _without_filter(at: int, place: int) -> Edit:
    def edit(node: ast.AST) -> ast.AST:
        del node.generators[at].ifs[place]  # type: ignore[attr-defined]
        return node

    return edit


def _without_element(name: str, place: int) -> Edit:
    def edit(node: ast.AST) -> ast.AST:
        del getattr(node, name)[place]
        return node

    return edit


def _without_entry(place: int) -> Edit:
    def edit(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.Dict)
        del node.keys[place], node.values[place]
        return node

    return edit


def _renamed(name: str) -> Edit:
    def edit(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.Call)
        node.func = ast.Name(name, ast.Load())
        return node

    return edit


def _is_strict(node: ast.AST) -> bool:
    """The argument of ``zip`` that only asserts equal lengths."""
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _is_text(statement: ast.stmt) -> bool:
    """A docstring, or the ``...`` of a protocol."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _types_only(statement: ast.stmt) -> bool:
    """``if TYPE_CHECKING`` and names of types, which no test sees."""
    if isinstance(statement, ast.If):
        return ast.unparse(statement.test) == "TYPE_CHECKING"
    if not isinstance(statement, ast.Assign):
        return False
    name = ast.unparse(statement.targets[0])
    return name == "__all__" or bool(re.fullmatch(r"[A-Z]+[a-z]\w*", name))


def _removable(statement: ast.stmt) -> bool:
    """Statements that a function may do without, so that the lack of them means something."""
    if isinstance(statement, (ast.Expr, ast.Raise, ast.Continue, ast.Break, ast.AugAssign, ast.Delete)):
        return True
    if not isinstance(statement, ast.Assign):
        return False
    target = statement.targets[0]
    if isinstance(target, (ast.Attribute, ast.Subscript)):
        return True
    if isinstance(target, ast.Name):
        used = {each.id for each in ast.walk(statement.value) if isinstance(each, ast.Name)}
        return target.id in used
    return False
