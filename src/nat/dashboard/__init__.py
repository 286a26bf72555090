"""Pages about runs in a browser, from their journals alone: `nat ui`, and the report of `nat runs report`."""
