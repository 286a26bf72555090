"""The Tinker protocol: its official clients train and sample through this project's backend."""
