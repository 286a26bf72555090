"""Build the components of a `Config` on one exit stack, which closes them."""
