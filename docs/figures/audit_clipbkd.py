"""The picture of the audit guide: what ClipBKD reached, from the results in results/audit."""

import json
from pathlib import Path

from plrvo.audit.plot import Point, plot_audits

_ROOT = Path(__file__).parents[2]
_FILES = {
    "gaussian": "Gaussian",
    "laplace": "Laplace",
    "gamma": "Gamma-PLRV, k = 100",
    "no-clipping": "Gaussian, clipping left out",
}


def main() -> None:
    """Draw docs/images/audit-clipbkd.png."""
    points, models = [], 0
    for name, label in _FILES.items():
        result = json.loads((_ROOT / "results" / "audit" / f"clipbkd-{name}.json").read_text())
        for row in result["rows"]:
            models += row["runs"]
            points.append(Point(label, row["epsilon_claimed"], row["epsilon_audited"], row["epsilon_certifiable"]))
    title = f"ClipBKD, Fashion-MNIST, logistic regression: {models:,} models"
    plot_audits(points, _ROOT / "docs" / "images" / "audit-clipbkd.png", title)


if __name__ == "__main__":
    main()
