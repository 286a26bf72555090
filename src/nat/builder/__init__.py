"""From a `Config` to living components: opened on one exit stack, closed by it."""
