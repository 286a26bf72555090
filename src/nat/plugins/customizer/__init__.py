"""NeMo Customizer's components, under the toolkit's paths."""
