"""One module per API: from request to response."""
