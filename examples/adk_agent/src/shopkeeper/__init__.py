"""An agent of Google ADK behind the counter of a shop, and the price list that is its tool."""
