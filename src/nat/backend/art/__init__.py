"""OpenPipe ART on the server side: the models of its clients, their batches, and the routes they call."""
