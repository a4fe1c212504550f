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
                    code(f"make bench-{path.stem.replace('_', '-')}"),
                    code(key),
                    f"{result[key]:.4g}",
                    _required(details, result[key]),
                    f"{min(ratios):.2g} to {max(ratios):.2g}" if ratios else "",
                    machine.get("busy_before"),
                    f"{machine['cores']} x {machine['cpu']}",
                    machine["at"][:10],
                    code(machine.get("commit")),
                )
            )
    columns = (
        *("benchmark", "key", "figure", "required", "pairs", "busy before"),
        *("cores", "day", "commit"),
    )
    return page(
        "Benchmarks",
        f"Each figure is a ratio of two ways to do one thing, [measured]({_METHOD}) by turns on one"
        " machine: the median of its pairs. *pairs* are the lowest and the highest of them; *busy"
        " before* is how many processors others kept busy when it began, where that was looked at."
        " What is **short** of what was required of it is said to be, and why, in"
        " [Speed](../explanation/speed.md). A figure is of the commit beside it, or the day."
        " Run them on your machine; the absolute rates are in `bench/results`.",
        table(columns, rows),
    )


def _required(details: dict[str, Any], value: float) -> str:
    least, most = details.get("at_least"), details.get("at_most")
    if least is not None:
        words, is_short = f"at least {least:g}", value < least
    elif most is not None:
        words, is_short = f"at most {most:g}", value > most
    else:
        return ""
    return f"{words}: **short**" if is_short else words
