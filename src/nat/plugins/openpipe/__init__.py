"""OpenPipe ART: the trajectory builder, the adapter and the trainer that train with an ART server over HTTP."""
