"""``benchmarks.md``: the figures of the latest run of each benchmark, from bench/results."""

import json
from pathlib import Path
from typing import Any

from .markdown import code, page, table

_METHOD = "../../bench/METHOD.md"


def build(root: Path) -> str:
    """Return the page for the results under ``root``/bench/results."""
    rows = []
    for path in sorted((root / "bench" / "results").glob("*.json")):
        result = json.loads(path.read_text())
        key = next(iter(result))
        machine = result["machine"]
        also = result.get("also", {})
        for name, figure, one in (
            (key, result[key], result),
            *((name, one["figure"], one) for name, one in also.items()),
        ):
            ratios = one.get("ratios", [figure])
            rows.append(
                (
                    code(f"make bench-{path.stem}"),
                    code(name),
                    f"{figure:.2f}",
                    _required(one),
                    f"{min(ratios):.2f} to {max(ratios):.2f}",
                    f"{machine['cores']} x {machine['cpu']}",
                    machine["at"][:10],
                )
            )
    columns = ("benchmark", "key", "figure", "required", "pairs", "cores", "day")
    return page(
        "Benchmarks",
        f"Each figure is a ratio of two ways to do one thing, [measured]({_METHOD}) by turns on one"
        " machine: the median of its pairs. *pairs* are the lowest and the highest of them, so they"
        " show how much else the machine did. Run them on yours; the absolute rates are in"
        " `bench/results`.",
        table(columns, rows),
    )


def _required(one: dict[str, Any]) -> str:
    if (most := one.get("at_most")) is not None:
        return f"at most {most:g}"
    least = one.get("required")
    return "" if least is None else f"{least:g}"
