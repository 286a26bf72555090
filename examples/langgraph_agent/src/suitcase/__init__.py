"""A LangGraph agent that packs a suitcase with two tools: travel plans and a weather forecast."""
