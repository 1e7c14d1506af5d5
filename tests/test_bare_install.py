"""The wheel in a fresh environment without extras runs the README and the pages that need no extra.

``make test-install PYTHON=...`` makes the environments with another release of Python. A second environment has Bambi and other libraries
that call ``pm.sample``; the scripts of ``tests/libraries`` run there. A third has the packages that the other pages name.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.test_docs import BLOCK, FILE, PAGES, ROOT
from tests.test_project_files import PROJECT

LIBRARIES = ROOT / "tests" / "libraries"
# A page that says so needs a package that the wheel does not bring.
ALSO_NEEDED = re.compile(r"`pip install ([a-z][\w-]*)`")
EXTRA_NEEDED = re.compile(r"`pip install \"\.\[(\w+)\]\"`")
# What the notes about upstream are about, and what a page for developers has from a clone.
OF_DEVELOPERS = {"tests", "lazy_loader"}


def imported(code: str) -> set[str]:
    """Return the packages that some code imports, those of the standard library apart."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Import():
                found |= {alias.name.partition(".")[0] for alias in node.names}
            case ast.ImportFrom(level=0):
                found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"pymc_fastlogp"}


def installed_by(requirements: list[str], seen: set[str]) -> set[str]:
    """Return the names of the packages that pip installs for requirements, without extras."""
    for requirement in map(Requirement, requirements):
        name = normalized(requirement.name)
        if name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        installed_by(distribution(name).requires or [], seen)
    return seen


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def available() -> set[str]:
    """Modules of the packages that a plain install brings."""
    names = installed_by(PROJECT["dependencies"], set())
    return {
        module
        for module, owners in packages_distributions().items()
        if names & {normalized(owner) for owner in owners}
    }


def code_of(page: str) -> str:
    return "\n".join(block[1] for block in BLOCK.finditer(PAGES[page]))


WITH_CODE = [page for page in PAGES if code_of(page)]
FOR_USERS = [page for page in WITH_CODE if not imported(code_of(page)) & OF_DEVELOPERS]
# Those that a bare environment runs.
PLAIN = [page for page in FOR_USERS if not ALSO_NEEDED.search(PAGES[page])]
OTHERS = [page for page in FOR_USERS if page not in PLAIN]


def test_package_imports_only_what_is_installed_with_it(available):
    # explanation.graph() says how to install Graphviz, and table() narwhals and DuckDB. Who gives sample a client of Dask has Dask. Commands of dev.py
    # run in a checkout.
    modules = set(ROOT.glob("pymc_fastlogp/**/*.py")) - {ROOT / "pymc_fastlogp" / "dev.py"}
    found = set().union(*(imported(x.read_text()) for x in modules))
    assert found - available <= {"graphviz", "narwhals", "duckdb", "distributed"}


def test_progress_bar_of_pymc_has_what_it_imports(available):
    import pymc.progress_bar

    folder = Path(pymc.progress_bar.__file__).parent
    found = set().union(*(imported(x.read_text()) for x in folder.glob("*.py")))
    # With IPython or marimo it writes to a notebook, and without to a terminal.
    assert found - available <= {"IPython", "marimo"}


@pytest.mark.parametrize("page", WITH_CODE)
def test_page_says_what_else_it_needs(page, available):
    files = {FILE.match(block[1]) for block in BLOCK.finditer(PAGES[page])} - {None}
    own = {file[1].removesuffix(".py") for file in files} | OF_DEVELOPERS
    assert imported(code_of(page)) - available - own <= {*ALSO_NEEDED.findall(PAGES[page])}


def test_the_readme_needs_nothing_else():
    assert "README.md" in PLAIN


class Environment:
    """A fresh environment with the wheel in it, and a folder from which the repository cannot be seen."""

    def __init__(self, folder: Path, extra: str = "", also: Sequence[str] = ()) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        [wheel] = wheels = list((folder.parent / "wheel").glob("*.whl"))
        assert len(wheels) == 1
        python = os.environ.get("INSTALL_PYTHON") or sys.executable
        subprocess.run([python, "-m", "venv", folder], check=True)
        self.run("-m", "pip", "install", "--quiet", f"{wheel}{extra}", *also)

    def run(self, *arguments: str | Path, **variables: str) -> str:
        """Run its Python there, with empty caches, no option of this process and environment variables, and return what it prints."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PYTENSOR", "PYMC_FASTLOGP", "VIRTUAL_ENV"))
        }
        process = subprocess.run(
            [self.python, *arguments],
            cwd=self.elsewhere,
            env=kept
            | {
                "MPLBACKEND": "Agg",
                "PYTENSOR_FLAGS": f"base_compiledir={self.folder / 'compiled'}",
            }
            | variables,
            capture_output=True,
            text=True,
        )
        assert process.returncode == 0, process.stderr
        return process.stdout

    @property
    def elsewhere(self) -> Path:
        folder = self.folder / "elsewhere"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def version(self, package: str) -> str:
        """Return the version of a package that is installed there."""
        return self.run(
            "-c", f"from importlib.metadata import version; print(version({package!r}))"
        ).strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with the wheel."""
    folder = tmp_path_factory.mktemp("install")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "-w",
            folder / "wheel",
            ROOT,
        ],
        check=True,
    )
    return folder


@pytest.fixture(scope="module")
def bare(folder) -> Environment:
    return Environment(folder / "bare")


def run_page(page: str, environment: Environment) -> None:
    """Run the blocks of a page in an environment, as one script."""
    lines = ["import subprocess, sys"]
    for block in BLOCK.finditer(PAGES[page]):
        if file := FILE.match(block[1]):
            (environment.elsewhere / file[1]).write_text(block[1])
            lines.append(f"subprocess.run([sys.executable, {file[1]!r}], check=True)")
        else:
            lines.append(block[1])
    script = environment.elsewhere / "page.py"
    script.write_text("\n".join(lines))
    environment.run(script)


@pytest.mark.slow
@pytest.mark.parametrize("page", PLAIN)
def test_bare_install_runs_the_page(page, bare):
    run_page(page, bare)


@pytest.fixture(scope="module")
def with_named(folder) -> Environment:
    """An environment with the wheel, and the packages and extras that the other pages name."""
    text = "".join(PAGES[page] for page in OTHERS)
    extras = ",".join(sorted({*EXTRA_NEEDED.findall(text)}))
    return Environment(folder / "named", f"[{extras}]", sorted({*ALSO_NEEDED.findall(text)}))


@pytest.mark.slow
@pytest.mark.parametrize("page", OTHERS)
def test_page_runs_with_what_it_names(page, with_named):
    run_page(page, with_named)


@pytest.mark.slow
def test_bare_install_checks_itself(bare):
    assert "pymc_fastlogp" in bare.run("-m", "pymc_fastlogp")


# The call of Bambi that the page of questions gives, after a model of which centering moves the intercept by 200.
BAMBI = """
import bambi as bmb
import numpy as np
import pandas as pd
import pymc_fastlogp

rng = np.random.default_rng(0)
data = pd.DataFrame({{"x": rng.normal(100, 5, 500)}})
data["y"] = 3 + 2 * data["x"] + rng.normal(size=500)
model = bmb.Model("y ~ x", data)
idata = {call}
new = model.predict(idata, data=pd.DataFrame({{"x": [100.0]}}), inplace=False)
print(float(idata["posterior"]["Intercept"].mean()), float(new["posterior"]["mu"].mean()))
"""
CALL_OF_BAMBI = re.search(r"`(model\.fit\(inference_method.*?\))`", PAGES["docs/faq.md"])


def test_readme_and_questions_fit_models_of_bambi_by_its_own_method():
    assert "compile_kwargs=pymc_fastlogp.compile_kwargs()" in CALL_OF_BAMBI[1]
    assert "Bambi and pymc-marketing: `pymc_fastlogp.patch_pymc()`" in PAGES["README.md"]


@pytest.fixture(scope="module")
def libraries(folder) -> Environment:
    """An environment with the wheel, its extra for Bambi, and libraries that refit models or run processes."""
    return Environment(
        folder / "libraries", "[bambi]", ("simuk", "joblib", "nbclient", "ipykernel")
    )


@pytest.mark.slow
def test_bambi_gives_the_right_intercept_and_does_not_move_pymc(libraries, bare):
    assert libraries.version("pymc") == bare.version("pymc")
    script = libraries.elsewhere / "bambi_model.py"
    script.write_text(BAMBI.format(call=CALL_OF_BAMBI[1]))
    intercept, prediction = map(float, libraries.run(script).split()[-2:])
    # Three standard errors: 0.9 of the intercept, which is extrapolated by 20 standard deviations, and 0.045.
    assert abs(intercept - 3) < 2.7
    assert abs(prediction - 203) < 0.14


# The block of the page on libraries that needs Bambi.
BLOCK_OF_BAMBI = re.search(
    r"^```\{code-block\} python\n(import bambi.*?)^```$",
    PAGES["docs/howto/libraries.md"],
    re.MULTILINE | re.DOTALL,
)
CONVERGED = """
import arviz as az

found = az.summary(idata, var_names=["Intercept", "price", "1|store_sigma"], round_to="none")
assert found["r_hat"].max() < 1.05, found
# A standard error of 0.004, which the spread of 30 slopes makes.
assert abs(found["mean"]["price"] + 0.08) < 0.02, found
"""


@pytest.mark.slow
def test_bambi_block_of_the_page_converges(libraries):
    script = libraries.elsewhere / "bambi_page.py"
    script.write_text(BLOCK_OF_BAMBI[1] + CONVERGED)
    libraries.run(script)


SCRIPTS = sorted(
    x.name for x in LIBRARIES.glob("*.py") if x.name not in ("counting.py", "plain_script.py")
)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_library_is_sampled_by_ours_under_the_patch(script, libraries):
    libraries.run(LIBRARIES / script)


@pytest.mark.slow
def test_script_that_does_not_name_the_plugin_is_patched_from_outside(libraries):
    script = LIBRARIES / "plain_script.py"
    said = libraries.run("-m", "pymc_fastlogp", "run", script, "--fast")
    assert said.endswith("True 100 ['--fast']\n")
    importing = f"import pymc_fastlogp, runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    said = libraries.run("-c", importing, PYMC_FASTLOGP_PATCH="1")
    assert said.endswith("True 100 []\n")
    assert libraries.run(script).startswith("False 100")
