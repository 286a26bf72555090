"""The toolkit's experimental names that workflows import."""
