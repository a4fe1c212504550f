"""What oml doctor looks at: whether the server is as durable as it should be."""
