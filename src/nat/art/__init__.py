"""OpenPipe ART: its protocol, a client that trains on an ART server, and an ART server on the backend."""
