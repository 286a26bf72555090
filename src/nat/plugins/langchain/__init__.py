"""LangChain and LangGraph: ChatOpenAI and StructuredTool."""
