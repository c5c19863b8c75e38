"""Every error code that the source can give is explained in docs/errors.md, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "drumbeat"
KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

# ---- reading the source


Function = ast.FunctionDef | ast.AsyncFunctionDef
Values = dict[str, list[ast.expr]]


@attrs.frozen(kw_only=True)
class Scan:
    """The codes of some source, and the places whose code could not be read off."""

    codes: frozenset[str]
    unread: tuple[str, ...]


def _functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Every function, by what a caller calls it: a class stands for its `__init__`."""
    for node in ast.walk(tree):
        owner = node.name if isinstance(node, ast.ClassDef) else None
        for function in node.body if isinstance(node, ast.ClassDef | ast.Module) else ():
            if isinstance(function, Function):
                made = owner is not None and function.name == "__init__"
                yield owner if owner and made else function.name, function


def _position(function: Function) -> int | None:
    """The position at which a caller gives the parameter `code`."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if "code" not in names:
        return None
    return names.index("code") - (names[0] in ("self", "cls"))


def _fits(function: Function, call: ast.Call) -> bool:
    """Whether a call may mean `function`: another one of its name may want other arguments."""
    arguments = function.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    needed = set(names[: len(names) - len(arguments.defaults)])
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    needed |= {each.arg for each, default in keywords if default is None}
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    given = {word.arg for word in call.keywords}
    if None in given or any(isinstance(each, ast.Starred) for each in call.args):
        return True
    by_place = set(names[: len(call.args)])
    return needed - {"self", "cls"} <= by_place | given


def _assigned(body: ast.AST) -> Values:
    """What is assigned to each name anywhere below `body`; an unpacked call stands for itself."""
    values: Values = {}
    for node in ast.walk(body):
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            pairs = [(node.target, node.value)]
        else:
            continue
        for target, value in pairs:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            for index, name in enumerate(names):
                if isinstance(name, ast.Name):
                    said = _picked(value, index) if isinstance(target, ast.Tuple) else [value]
                    values.setdefault(name.id, []).extend(said)
    return values


def _picked(value: ast.expr, index: int) -> list[ast.expr]:
    """What stands at `index` of a tuple that is written out, chosen, or returned by a call."""
    match value:
        case ast.Tuple(elts=elements) if index < len(elements):
            return [elements[index]]
        case ast.IfExp(body=body, orelse=orelse):
            return _picked(body, index) + _picked(orelse, index)
        case _:
            return [ast.copy_location(ast.Subscript(value, ast.Constant(index)), value)]


def _elements(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.Dict(values=values):
            return values
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            return elements
        case ast.Call(args=[inner]):
            return _elements(inner)
        case _:
            return []


class _Reader(ast.NodeVisitor):
    """Walks one module and notes each code, knowing which function it stands in."""

    def __init__(self, name: str, tree: ast.Module, package: dict[str, list[Function]]) -> None:
        self.name = name
        self.codes: set[str] = set()
        self.unread: list[str] = []
        self.package = package
        self.own: dict[str, list[Function]] = {}
        for called, function in _functions(tree):
            self.own.setdefault(called, []).append(function)
        self.constants = _assigned(ast.Module([n for n in tree.body if not _scope(n)], []))
        self.scopes: list[tuple[list[str], Values]] = []
        for table, values in self.constants.items():
            if table.endswith("CODES"):
                for value in values:
                    self.note(*_elements(value))
        self.visit(tree)

    def note(self, *expressions: ast.expr) -> None:
        for expression in expressions:
            found = self.strings(expression)
            if found is None:
                self.unread.append(f"{self.name}:{expression.lineno}: {ast.unparse(expression)}")
            else:
                self.codes |= found

    def called(self, function: ast.expr) -> list[Function]:
        """The functions of the package that a call may mean; its own module's come first."""
        name = getattr(function, "attr", getattr(function, "id", ""))
        return self.own.get(name) or self.package.get(name, [])

    def strings(self, node: ast.expr) -> set[str] | None:
        """The texts it can be; an empty set where a code is only passed on; None where unknown."""
        match node:
            case ast.Constant(value=str() as text):
                return {text} - {""}
            case ast.Constant(value=None) | ast.Attribute(attr="code"):
                return set()
            case ast.IfExp(body=body, orelse=orelse):
                return self.union([body, orelse])
            case ast.BoolOp(values=values):
                return self.union(values)
            case ast.Subscript(slice=ast.Constant(value="code")):
                return set()
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value="code"), *_]):
                return set()
            case ast.Call(args=[ast.Subscript(slice=ast.Constant(value="code")), *_]):
                return set()  # from outside, checked on its way
            case ast.Subscript(value=ast.Name(id=table)) if table.endswith("CODES"):
                return set()
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int() as index)):
                values = self.said(name)
                return (
                    None
                    if values is None
                    else self.union(
                        [picked for value in values for picked in _picked(value, index)]
                    )
                )
            case ast.Subscript(
                value=ast.Call(func=function), slice=ast.Constant(value=int() as index)
            ):
                return self.returned(function, index)
            case ast.Name(id=name):
                values = self.said(name)
                if values is None:
                    passed = any(name in parameters for parameters, _ in self.scopes)
                    return set() if passed and name == "code" else None
                return self.union(values)
            case _:
                return None

    def said(self, name: str) -> list[ast.expr] | None:
        """What is assigned to `name` where the reader stands; None when nothing is."""
        for parameters, values in reversed(self.scopes):
            if name in values:
                return values[name]
            if name in parameters:
                return None
        return self.constants.get(name)

    def returned(self, function: ast.expr, index: int) -> set[str] | None:
        """What a function of the package returns at `index` of its tuple."""
        found: list[ast.expr] = []
        for each in self.called(function):
            for node in ast.walk(each):
                if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple | ast.IfExp):
                    found += _picked(node.value, index)
        texts = [node for node in found if isinstance(node, ast.Constant)]
        return self.union(texts) if texts and len(texts) == len(found) else None

    def union(self, nodes: list[ast.expr]) -> set[str] | None:
        found: set[str] = set()
        for node in nodes:
            part = self.strings(node)
            if part is None:
                return None
            found |= part
        return found

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.enter(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.enter(node)

    def enter(self, node: Function) -> None:
        arguments = node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults = zip(positional[::-1], arguments.defaults[::-1], strict=False)
        keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        for parameter, default in (*defaults, *keywords):
            if parameter.arg == "code" and default is not None:
                self.note(default)
        self.scopes.append(
            ([each.arg for each in (*positional, *arguments.kwonlyargs)], _assigned(node))
        )
        self.generic_visit(node)
        self.scopes.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if not self.scopes and getattr(node.target, "id", "") == "code" and node.value:
            self.note(node.value)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.note(*(word.value for word in node.keywords if word.arg == "code"))
        called = [function for function in self.called(node.func) if _fits(function, node)]
        positions = {_position(function) for function in called} - {None}
        for position in positions:
            self.note(*_argument(node, position or 0))
        self.generic_visit(node)


def _argument(call: ast.Call, position: int) -> list[ast.expr]:
    """What a call gives at `position`, looking into a starred argument."""
    for index, argument in enumerate(call.args[: position + 1]):
        if isinstance(argument, ast.Starred):
            return _picked(argument.value, position - index)
    return call.args[position : position + 1]


def _scope(node: ast.AST) -> bool:
    return isinstance(node, Function | ast.ClassDef)


def scan(sources: dict[str, str]) -> Scan:
    """Read off every code of the given files, by name.

    Read are `code=…` in calls, the argument that a function with a parameter `code` gets for it,
    the defaults of parameters and fields named `code`, and tables whose name ends in `CODES`
    (their elements, or the values of a mapping). An expression may be a text, a name that such
    texts are assigned to, a choice between them, a place in a tuple that is written out or that a
    function of the package returns, or a code that is passed on from elsewhere.
    """
    trees = {name: ast.parse(text) for name, text in sources.items()}
    package: dict[str, list[Function]] = {}
    for tree in trees.values():
        for called, function in _functions(tree):
            if not called.startswith("_"):
                package.setdefault(called, []).append(function)
    readers = [_Reader(name, tree, package) for name, tree in trees.items()]
    return Scan(
        codes=frozenset().union(*(reader.codes for reader in readers)),
        unread=tuple(place for reader in readers for place in reader.unread),
    )


# ---- comparing


def documented() -> list[str]:
    """The codes that stand as headings in docs/errors.md, in its order."""
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    return re.findall(r"^### `([^`]+)`$", text, re.MULTILINE)


@pytest.fixture(scope="module")
def package() -> Scan:
    """The codes of the whole package."""
    return scan(
        {
            str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
            for path in sorted(SOURCE.rglob("*.py"))
        }
    )


def test_every_code_can_be_read_off(package: Scan) -> None:
    """A code is written so that this comparison sees it."""
    assert package.unread == ()


def test_every_code_is_kebab_case(package: Scan) -> None:
    """Codes keep to one form."""
    assert [code for code in sorted(package.codes) if not KEBAB.fullmatch(code)] == []


def test_every_code_has_a_heading_in_errors_md(package: Scan) -> None:
    """An author who meets a code finds it explained."""
    assert sorted(package.codes - set(documented())) == []


def test_errors_md_explains_no_code_that_is_never_given(package: Scan) -> None:
    """A heading whose code is gone is gone too."""
    assert sorted(set(documented()) - package.codes) == []


def test_errors_md_explains_each_code_once() -> None:
    """One heading a code."""
    headings = documented()
    assert sorted(headings) == sorted(set(headings))


@pytest.mark.parametrize(
    ("source", "codes"),
    [
        ('Problem(code="a-b", message="")', {"a-b"}),
        ('Problem(code="a" if x else "b")', {"a", "b"}),
        ('ODD = "c"\nProblem(code=ODD)', {"c"}),
        ('def f(self, *, code: str = "d"): ...', {"d"}),
        ('def refuse(code, message): ...\nrefuse("e", "m")', {"e"}),
        ('class P:\n    def add(self, m, code): ...\np.add("m", "f")', {"f"}),
        ('class E(Exception):\n    def __init__(self, code): ...\nE("g")', {"g"}),
        ('_CODES = {1: "h", 2: "i"}\nProblem(code=_CODES[1])', {"h", "i"}),
        ('CODES = frozenset({"j"})', {"j"}),
        ("def f(code): return Problem(code=code)", set()),
        ("raise Problem(code=error.problem.code)", set()),
        ('def f():\n    code, text = "k", "t"\n    return Problem(code=code)', {"k"}),
        (
            'def f(x):\n    code, _ = ("n", 1) if x else ("o", 2)\n    return P(code=code)',
            {"n", "o"},
        ),
        ('def f():\n    return "p", 1\ndef g(code, m): ...\ng(*f())', {"p"}),
        ('def f():\n    return 1, "q"\ndef h():\n    x, code = f()\n    P(code=code)', {"q"}),
        ('def f(code): ...\nt = ("r", 1)\nf(*t)', {"r"}),
        ('def f(code, m): ...\nf(m="m", code="s")\nf("t", m="m")', {"s", "t"}),
        (
            'class A:\n    def p(self, code, m): ...\ndef f(a, b):\n    a.p("u", "m")\n    b.p(b)',
            {"u"},
        ),
        ("def f(code, *, m): ...\ndef g(b):\n    b.f(b)", set()),
        ('P(code=row["code"], other=Q(code=row.get("code")))', set()),
        ('def f(e):\n    code = text(e["code"])\n    P(code=code)', set()),
        (
            'def f(x):\n    code = "l"\n    if x:\n        code = "m"\n    g(code=code)',
            {"l", "m"},
        ),
    ],
)
def test_a_code_is_seen_however_it_is_written(source: str, codes: set[str]) -> None:
    """Each form in which a code stands in the package."""
    assert scan({"x.py": source}) == Scan(codes=frozenset(codes), unread=())


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ('Problem(code=f"no-{x}")', "x.py:1: f'no-{x}'"),
        ("def f():\n    code = g()\n    return Problem(code=code)", "x.py:3: code"),
        ("def f(cause):\n    return Problem(code=cause)", "x.py:2: cause"),
    ],
)
def test_a_code_that_cannot_be_read_off_is_reported(source: str, place: str) -> None:
    """A code that is built while running would pass the comparison by."""
    assert scan({"x.py": source}).unread == (place,)


def test_the_package_gives_codes_at_all(package: Scan) -> None:
    """The comparison reads real files, so that it means something."""
    assert "setting-invalid" in package.codes
