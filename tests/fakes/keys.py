"""The key of servers in tests."""

KEY = "sk-test"
