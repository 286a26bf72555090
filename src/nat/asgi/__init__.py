"""What the servers of this package share: how they take a port, run, and refuse; what they answer is theirs."""
