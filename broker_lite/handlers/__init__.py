"""One module per API: request to core to response."""
