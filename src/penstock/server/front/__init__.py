"""The front page, the API documentation and the OpenAPI description."""
