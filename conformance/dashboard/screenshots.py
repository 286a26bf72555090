"""Take the pictures of docs/recipes/dashboard.md: `python -m conformance.dashboard.screenshots RUN_DIR`."""

import asyncio
import sys
from pathlib import Path

from conformance.dashboard.visits import visiting

from nat.dashboard.runs import slug_of
from nat.runs.journal import reading
from nat.runs.records import Phase

IMAGES = Path(__file__).parents[2] / "docs" / "images"


async def take(run_dir: Path) -> None:
    """The run's page, an epoch of its middle, and the first rollout of that epoch; without scrolling."""
    with reading(run_dir) as journal:
        epoch = journal.played(Phase.TRAIN)[journal.num_epochs() // 2]
        (example, _), *_ = journal.examples(Phase.TRAIN, epoch)
    here = f"/runs/{slug_of(run_dir)}"
    pages = {
        "run": (here, "light", 1000),
        "epoch": (f"{here}/train/{epoch + 1}", "light", 900),
        "rollout": (f"{here}/train/{epoch + 1}/rollout?id={example}&generation=0#tokens", "dark", 620),
    }
    async with visiting(run_dir) as visits:
        await visits(
            *(
                {
                    "path": path,
                    "scheme": scheme,
                    "width": 1000,
                    "height": height,
                    "acts": [["shot", str(IMAGES / f"dashboard_{name}.png")]],
                }
                for name, (path, scheme, height) in pages.items()
            )
        )


if __name__ == "__main__":
    asyncio.run(take(Path(sys.argv[1])))
