"""Make a program that fails smaller, while it fails in the same way."""

from collections.abc import Iterator
from dataclasses import replace

from tests.fuzz.agreement import Finding, findings
from tests.fuzz.programs import Point, Program, needed


def shrunk(program: Program, finding: Finding) -> tuple[Program, Finding]:
    """Return a program that no single change makes smaller, and what is wrong with it."""
    while True:
        for candidate in _smaller(program):
            found = _same_finding(candidate, finding)
            if found:
                program, finding = candidate, found
                break
        else:
            return program, finding


def _same_finding(program: Program, finding: Finding) -> Finding | None:
    names = [line.name for line in program.inputs]
    point: Point = {name: finding.point[name] for name in names if name in finding.point}
    try:
        for found in findings(program, [(finding.label, point)]):
            if found.kind == finding.kind:
                return found
    except Exception:  # It can't be built, or fails in another way.
        return None
    return None


def _smaller(program: Program) -> Iterator[Program]:
    """Yield programs with an output less, or with a line that is another one or a constant."""
    for name in program.outputs:
        if len(program.outputs) > 1:
            rest = tuple(x for x in program.outputs if x != name)
            yield needed(replace(program, outputs=rest))
    if program.like_a_model:
        yield replace(program, like_a_model=False)
    steps = {line.name for line in program.steps}
    for k, line in reversed(list(enumerate(program.lines))):
        if line.name not in steps:
            continue
        if line.name in program.outputs:
            for earlier in program.lines[:k]:
                if earlier.name in steps and earlier.name not in program.outputs:
                    outputs = tuple(earlier.name if x == line.name else x for x in program.outputs)
                    yield needed(replace(program, outputs=outputs))
        alike = [
            x.name for x in program.lines[:k] if (x.shape, x.dtype) == (line.shape, line.dtype)
        ]
        constant = f"pt.constant(np.ones({line.shape}, dtype={line.dtype!r}))"
        is_constant = line.expression == constant or line.expression in alike
        for expression in [] if is_constant else [*alike, constant]:
            lines = list(program.lines)
            lines[k] = replace(line, expression=expression)
            yield needed(replace(program, lines=tuple(lines)))
