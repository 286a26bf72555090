"""DPO with NeMo Customizer."""
