"""HTTP/JSON interface of the daemon: server, client, metrics."""
