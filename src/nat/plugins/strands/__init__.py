"""Strands: its OpenAI model on recorded clients, and functions as its tools."""
