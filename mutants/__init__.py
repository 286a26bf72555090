"""Mutation tests of the code that decides what is learned."""
