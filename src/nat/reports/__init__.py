"""Pages about runs: what `nat runs` shows of their journals, and the plan of a dry run. Nothing here changes a run."""
