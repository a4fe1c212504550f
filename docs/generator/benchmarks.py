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
        machine = result["machine"]
        for key, details in result["figures"].items():
            ratios = details.get("ratios")
            rows.append(
                (
                    code(f"make bench-{path.stem}"),
                    code(key),
                    f"{result[key]:.4g}",
                    _required(details),
                    f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "",
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


def _required(details: dict[str, Any]) -> str:
    for name, words in (("at_least", "at least"), ("at_most", "at most")):
        if details.get(name) is not None:
            return f"{words} {details[name]:g}"
    return ""
