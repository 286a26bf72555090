"""The rollouts of a run as files that other trainers read: TRL, verl, and whatever loads with `datasets`.

`generations` reads the journal's records, `formats` makes the rows of a group, and `export` writes them, one group of
rollouts at a time.
"""
