"""Layers of the package: the imports that each room may make."""

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.limits import LIMITS

PACKAGE = "pymc_fastlogp"
FILES = sorted((Path(__file__).parents[1] / PACKAGE).rglob("*.py"))

# From the ground up: a room imports those above it in this list, not those below it.
STOREYS = [
    ["_upstream"],
    ["config", "decisions", "file_cache", "lazy_import", "patching"],
    ["analysis", "ops", "tables"],
    ["kernel"],
    ["rewrites"],
    ["rules"],
    ["registration"],
    ["models", "display"],
    ["reparametrization"],
    ["model_cache"],
    ["callbacks"],
    ["compilation"],
    ["sampling"],
    ["many"],
    ["verification", "explanation", "benchmarking", "testing"],
    ["__init__", "__main__", "dev"],
]
STOREY = {room: k for k, rooms in enumerate(STOREYS) for room in rooms}

# Allowed imports within the kernel, bottom-up: subpackages, or single modules, that each may import besides itself. `lower`, `passes` and `emit`
# do not import each other: `graph` calls `lower` and `passes`, `native` calls `emit`.
KERNEL = {
    "defects": set(),
    "ir": set(),
    "llvm": set(),
    "native.blas": set(),
    "native.target": set(),
    "vecmath": {"llvm"},
    "scalars": {"ir", "llvm", "vecmath"},
    "passes": {"ir", "native.target", "scalars"},  # which rows fit into registers
    "emit": {"ir", "llvm", "native.blas", "native.target", "scalars", "vecmath"},
    "lower": {"defects", "ir", "native.blas", "scalars"},
    "native": {"emit", "ir", "native.blas", "native.target", "scalars"},
    "threads": {"emit", "llvm", "native"},
    "graph.boundary": set(),
    "graph": {"defects", "graph.boundary", "ir", "lower", "native", "passes"},
    "numba": {"defects", "emit", "graph", "graph.boundary", "ir", "llvm", "native"},
}


def module_of(path: Path) -> str:
    parts = path.with_suffix("").parts
    name = ".".join(parts[parts.index(PACKAGE) :])
    return name.removesuffix(".__init__")


# Run as a script, in a process of its own, where it does what a user does.
SCRIPTS = {f"{PACKAGE}.benchmarking.wait_child"}
MODULES = {module_of(path): path for path in FILES if module_of(path) not in SCRIPTS}


@cache
def imports(module: str) -> frozenset[str]:
    """Return the modules of the package that a module imports, inside of functions and for types too."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in MODULES else str(node.module))
    return frozenset(found & MODULES.keys())


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


@pytest.mark.parametrize("module", MODULES)
def test_imports_nothing_from_above(module):
    here = STOREY[room_of(module)]
    above = {x for x in imports(module) if STOREY[room_of(x)] > here}
    assert not above


def kernel_room_of(module: str) -> str:
    """Return the key of KERNEL for a module, that of its file where it has one."""
    below = module.removeprefix(f"{PACKAGE}.kernel.")
    return below if below in KERNEL else below.partition(".")[0]


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith(f"{PACKAGE}.kernel.")])
def test_rooms_of_the_kernel_import_what_they_may(module):
    here = kernel_room_of(module)
    there = {kernel_room_of(x) for x in imports(module) if x.startswith(f"{PACKAGE}.kernel.")}
    assert there - {here} <= KERNEL[here]


def test_rooms_of_the_kernel_stand_on_those_above_in_the_list():
    rooms = list(KERNEL)
    assert all(rooms.index(x) < rooms.index(room) for room in rooms for x in KERNEL[room])


def is_number(node: ast.expr) -> bool:
    """Return whether a constant is made of numbers alone."""
    parts = [part for part in ast.walk(node) if isinstance(part, ast.Constant)]
    is_plain = not any(isinstance(part, ast.Call | ast.Name) for part in ast.walk(node))
    return is_plain and bool(parts) and all(type(p.value) in (int, float) for p in parts)


# Vector mathematics is made of numbers, whose reasons are in its derivations.
@pytest.mark.parametrize(
    "module", [m for m in MODULES if f"{PACKAGE}.kernel." in m and ".vecmath" not in m]
)
def test_numbers_of_the_kernel_stand_below_their_reason(module):
    code = MODULES[module].read_text()
    lines = code.splitlines()
    for node in ast.parse(code).body:
        if isinstance(node, ast.Assign) and is_number(node.value):
            # One comment may be about several lines.
            *_, block = "\n".join(lines[: node.lineno - 1]).rpartition("\n\n")
            assert "# " in block, f"{module} does not say why {lines[node.lineno - 1]}"


@pytest.mark.parametrize(
    "name", sorted({x for limit in LIMITS for x in (limit.full_name, *limit.others)})
)
def test_measured_limits_are_constants_of_the_package(name):
    module, _, constant = name.rpartition(".")
    assert isinstance(vars(import_module(f"{PACKAGE}.{module}"))[constant], int | float)


def test_modules_that_name_the_measurement_of_limits_have_a_limit_that_is_measured():
    named = {m for m, path in MODULES.items() if "python -m benchmarks.limits" in path.read_text()}
    # The Ops' limits are measured where kernels use them.
    assert named - {f"{PACKAGE}.{limit.module}" for limit in LIMITS} <= {f"{PACKAGE}.ops"}


def test_modules_have_no_import_cycles():
    try:
        TopologicalSorter({module: imports(module) for module in MODULES}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


# Not public, or not documented: modules, and attributes of what others made.
PRIVATE = re.compile(
    r"from \S+ import .*\b_[a-z]\w*|\S+\._[a-z]\w* import|numba\.(?:core|np)\b|pytensor\.link\.numba|"
    r"\.(?:__db__|__pyx_capi__|_getvalue|_library|_dispose)\b"
)


@pytest.mark.parametrize("module", [m for m in MODULES if room_of(m) != "_upstream"])
def test_private_names_of_others_are_used_in_one_room(module):
    code = "\n".join(
        line for line in MODULES[module].read_text().splitlines() if " numba.core." not in line
    )
    assert not PRIVATE.findall(code)
