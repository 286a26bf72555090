"""A LlamaIndex agent at the desk of a library, and the catalogue that is its tool."""
