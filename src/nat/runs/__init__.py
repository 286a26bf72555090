"""What happened in a finetuning run: the journal, its records, and the files and plots derived from it."""
