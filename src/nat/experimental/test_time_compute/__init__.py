"""Test-time compute: a workflow searches, scores and selects among candidates, which preferences are collected from."""
