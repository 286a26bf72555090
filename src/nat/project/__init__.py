"""New projects of users: `new_project.py` lists what an agent can be made with, and writes the files.

The files are in `templates/`: those of `shared/`, under those of the framework's own folder. They are no modules of
this package; ruff checks them under `templates/ruff.toml`.
"""
