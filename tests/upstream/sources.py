"""Sources of upstream's tests: a checkout named by the user, else the source distribution of the installed release."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent

# What tests need of a package's own folder besides `tests`. The package itself stays behind: its installed release is tested.
CONFIGURATION = ("conftest.py", "pyproject.toml", "setup.cfg")


@dataclass(frozen=True)
class Package:
    """A package whose tests are run, and the flags of PyTensor that its ``conftest.py`` would set."""

    name: str
    flags: str = ""


# `pytest -p` imports PyTensor before any conftest.py could set flags.
STRICT = "on_opt_error=raise,on_shape_error=raise,warn__ignore_bug_before=all"
PACKAGES = (Package("pytensor", STRICT), Package("pymc", STRICT), Package("nutpie"))


def fetch(package: Package, folder: Path, checkouts: Path | None) -> Path:
    """Return a folder below `folder` with the tests of a package and what configures them, and nothing else.

    Parameters
    ----------
    package : Package
    folder : pathlib.Path
        Where what was fetched stays.
    checkouts : pathlib.Path, optional
        A folder with a checkout of a package by its name. What is not in it comes from the source distribution.
    """
    checkout = checkouts / package.name if checkouts else None
    if checkout and checkout.is_dir():
        target = folder / f"{package.name}-checkout"
        _copy_tests(checkout, target)
        return target
    target = folder / f"{package.name}-{version(package.name)}"
    if not target.is_dir():
        with TemporaryDirectory() as temporary:
            _copy_tests(_source_distribution(package.name, Path(temporary)), target)
        _stand_in(package, target)
    return target


def _copy_tests(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source / "tests", target / "tests")
    # Else `import tests` would find those of this repository.
    (target / "tests" / "__init__.py").touch()
    for name in CONFIGURATION:
        if (source / name).exists():
            shutil.copy(source / name, target)


def _source_distribution(name: str, temporary: Path) -> Path:
    """Return the folder of a source distribution.

    pip always asks it for its metadata. Where that needs a compiler that is not there, as for nutpie, pip fails, but
    leaves what it has unpacked.
    """
    release = f"{name}=={version(name)}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", name]
    downloaded = temporary / "downloaded"
    process = subprocess.run(
        [*command, "--no-clean", "--dest", downloaded, release],
        env=os.environ | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    for archive in downloaded.glob("*.tar.gz"):
        shutil.unpack_archive(archive, temporary / "unpacked", filter="data")
    found = [tests.parent for tests in temporary.glob("*/*/tests")]
    if not found:
        raise RuntimeError(f"no tests of {release}, pip says:\n{process.stdout}{process.stderr}")
    return found[0]


def _stand_in(package: Package, target: Path) -> None:
    """Put a helper beside the tests of PyTensor, whose source distribution leaves it out."""
    helper = target / "tests" / "unittest_tools.py"
    if package.name == "pytensor" and not helper.exists():
        shutil.copy(HERE / "stand_in.py", helper)
