"""What `nat runs` shows: records and pages about runs, made from their journals. Nothing here changes a run."""
