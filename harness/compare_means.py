"""Geometric means of a comparison's ratios, and which rows they leave out and why."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from harness import stats


@dataclass(frozen=True)
class Mean:
    """The geometric mean of time new/base over the rows that are ok on both sides.

    level: op, family, overall or launch. left_out: rows without a ratio, by what became of them.
    """

    level: str
    name: str
    ratio: float
    n_rows: int
    left_out: dict[str, int]
    at_equal_clock: int

    @property
    def text(self) -> str:
        """One line for a reader."""
        mean = f"{self.ratio:.3f}" if self.n_rows else "none"
        n_left = sum(self.left_out.values())
        why = f": {', '.join(f'{n} {what}' for what, n in self.left_out.items())}" if n_left else ""
        equal = f", {self.at_equal_clock} at equal clock" if self.at_equal_clock else ""
        return (
            f"geometric mean new/base, {self.name}: {mean} over {self.n_rows} rows ok on both "
            f"sides ({n_left} left out{why}{equal})"
        )


def means(rows: pd.DataFrame) -> list[Mean]:
    """Return the means per op, per family, overall, and of launch-bound rows alone."""
    # A launch-bound ratio compares two empty launches; averaging it in would pull towards 1.
    launch = rows["bound"] == "launch"
    kept = rows[~launch]
    found = [_mean("op", str(op), part) for op, part in kept.groupby("op", sort=False)]
    families = kept[kept["family"] != ""].groupby("family", sort=False)
    found += [_mean("family", f"family {name}", part) for name, part in families]
    found.append(_mean("overall", "overall", kept))
    if launch.any():
        found.append(_mean("launch", "launch-bound rows alone", rows[launch]))
    return found


def _mean(level: str, name: str, rows: pd.DataFrame) -> Mean:
    ratios = rows["ratio"].dropna()
    left = rows[rows["ratio"].isna()]
    before, now = (left[f"{side}_status"].replace("", "no row") for side in ("base", "new"))
    fates = before.where(before == now, before + " -> " + now).value_counts()
    equal = int(rows["at_equal_clock"].sum())
    counts = {str(what): int(n) for what, n in fates.items()}
    return Mean(level, name, stats.geometric_mean(ratios), len(ratios), counts, equal)


def told(found: list[Mean], rows: pd.DataFrame) -> list[Mean]:
    """Return the means that say something new: a family of one op has that op's mean."""
    n_ops = rows.groupby("family")["op"].nunique()
    single = {f"family {name}" for name, n in n_ops.items() if n == 1}
    return [mean for mean in found if mean.name not in single]
