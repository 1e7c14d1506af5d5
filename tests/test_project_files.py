"""Metadata that several tools read from files of their own are equal."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import pymc_fastlogp

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECIPE = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())

# PyMC and PyTensor of conda-forge without the compilers that this package does without.
CONDA_NAMES = {"pymc": "pymc-base", "pytensor": "pytensor-base"}


def test_version_is_the_same_everywhere():
    assert PROJECT["dynamic"] == ["version"]
    assert {CITATION["version"], RECIPE["context"]["version"]} == {pymc_fastlogp.__version__}


def test_license_and_summary_are_the_same_everywhere():
    assert CITATION["license"] == RECIPE["about"]["license"] == PROJECT["license"]
    assert CITATION["abstract"] == RECIPE["about"]["summary"] == PROJECT["description"]


def test_conda_asks_for_what_pip_asks_for():
    wanted = {"python": PROJECT["requires-python"]}
    for dependency in PROJECT["dependencies"]:
        name, limits = re.fullmatch(r"([\w-]+)(.*)", dependency).groups()
        wanted[CONDA_NAMES.get(name, name)] = limits
    run = dict(requirement.split(" ", 1) for requirement in RECIPE["requirements"]["run"])
    assert run == wanted


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name
)
def test_files_of_github_are_valid_yaml(path):
    assert yaml.safe_load(path.read_text())


def test_every_issue_template_says_what_it_is_for():
    templates = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md"))
    assert templates
    for template in templates:
        _, header, body = template.read_text().split("---\n", 2)
        assert {"name", "about"} <= yaml.safe_load(header).keys()
        assert "python -m pymc_fastlogp" in body
