"""The history of a finetuning run: the journal, its records, and the files and plots derived from it."""
