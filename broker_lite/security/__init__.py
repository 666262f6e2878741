"""Authentication and authorization of clients: TLS, SASL, access control lists."""
