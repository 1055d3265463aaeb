"""How brokers are reached: addresses, credentials, TLS, and the wire formats that we speak ourselves."""
