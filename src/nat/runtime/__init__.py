"""Loading of configurations and workflows, for plug-ins and scripts."""
