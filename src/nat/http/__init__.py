"""HTTP as all servers of this package share it: errors, guards, limits, server-sent events, listening.

Routes belong to each server. Only `server`, `connection` and `starlette` need the packages of the `serve` extra.
"""
