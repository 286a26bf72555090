"""NeMo Customizer: preference pairs from test-time compute, and the service that trains on them."""
