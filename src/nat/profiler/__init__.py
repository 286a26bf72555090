"""Import paths of plug-ins; what they name lives in `nat.data_models`."""
